"""`stompbroker subscriptions`: list those that have a name (durable ones, groups and queues), or delete one.

Law: messages are given up only with --yes, or after a person has seen how many and agreed.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stompbroker.cli.options import ConfigOption, DataOption, JsonOption, data_directory
from stompbroker.cli.outcome import CommandFailed, ask_broker, require_consent, run
from stompbroker.cli.terminal import counts, print_uncut, say, say_json, table_of
from stompbroker.cli.wording import counted, duration, to_the_second
from stompbroker.visible_text import readable, visible

if TYPE_CHECKING:
    from rich.table import Table

#: Subscriptions in one answer: the most the broker gives.
PAGE = 1_000
#: Keys suggested for one that is not there.
MAX_NEAR = 3
Subscription = dict[str, Any]  # as `Control` describes it


commands = typer.Typer(rich_markup_mode="rich")


@commands.callback(invoke_without_command=True)
def _list(
    context: typer.Context, data: DataOption = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """List the durable subscriptions, groups and queues of the broker on this machine; [bold]rm[/] deletes one.

    A queue is the subscription that its consumers share, and so is a group. Members: those that are attached to it.

    Backlog: messages still to be sent, for the first time or again. In flight: sent and not acknowledged.
    Waiting: refused, and to be sent again later.

    Examples:

    $ stompbroker subscriptions
    $ stompbroker subscriptions --data /var/lib/stompbroker --json
    $ stompbroker subscriptions rm billing/invoices
    """
    # "subscriptions --data DIR rm KEY" means the same as "subscriptions rm KEY --data DIR".
    context.obj = {"data": data, "config": config, "as_json": as_json}
    if context.invoked_subcommand is not None:
        return
    found = run(_ask_for_all, data_directory(data, config))
    if as_json:
        say_json({"total": len(found), "subscriptions": found})
    elif found:
        print_uncut(subscription_table(found, datetime.now(UTC)))
    else:
        say(
            "There are no durable subscriptions, groups or queues. A client makes one by naming it, for example:",
            "  stompbroker subscribe /topic/orders --durable invoices --client-id billing",
            "  stompbroker subscribe /topic/orders --group billing",
            "  stompbroker subscribe /queue/jobs",
        )


@commands.command("rm")
def _remove(
    context: typer.Context,
    key: Annotated[list[str], typer.Argument(metavar="KEY", help="Its name, as in the first column of the list.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask, even if messages are given up.")] = False,
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete a durable subscription, group or queue, and its backlog.

    If messages are given up, you are asked first.

    Examples:

    $ stompbroker subscriptions rm billing/invoices
    $ stompbroker subscriptions rm "audit @ orders" --yes
    $ stompbroker subscriptions rm "group:billing @ orders"
    $ stompbroker subscriptions rm /queue/jobs
    """
    directory = data_directory(data or context.obj["data"], config or context.obj["config"])
    # A key has only single blanks, so it can be put together again if it came without quotes.
    one = run(_find, directory, " ".join(key))

    name, at_stake = one["key"], _at_stake(one)
    if at_stake and not yes:
        require_consent(
            f"{name} has {at_stake}",
            to="give them up and delete it",
            question="Give them up and delete it?",
            otherwise="Nothing was deleted.",
        )
    answer = ask_broker(directory, "remove_subscription", id=one["id"])
    if as_json or context.obj["as_json"]:
        say_json(answer)
    else:
        say(f"Deleted {name}; {counted(answer['backlog'], 'message')} it had still to get given up.")


@commands.command("give")
def _give(
    context: typer.Context,
    key: Annotated[str, typer.Argument(metavar="KEY", help="Its name, as in the first column of the list.")],
    user: Annotated[str, typer.Argument(metavar="USER", help="Whose it will be.")],
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a durable subscription, with its backlog, a user's own.

    Those from a time without login belong to nobody, until a user with read permission asks for one by its name.

    Examples:

    $ stompbroker subscriptions give billing/invoices alice
    """
    directory = data_directory(data or context.obj["data"], config or context.obj["config"])
    one = run(_find, directory, key)
    answer = ask_broker(directory, "give_subscription", id=one["id"], owner=user)
    if as_json or context.obj["as_json"]:
        say_json(answer)
    else:
        say(f"{one['key']} belongs to {user} now, as {answer['key']}.")


def _at_stake(one: Subscription) -> str:
    parts = [f"a backlog of {counted(one['backlog'], 'message')}"] if one["backlog"] else []
    parts += [f"{counted(one['in_flight'], 'message')} in flight"] if one["in_flight"] else []
    return " and ".join(parts)


async def _ask_for_all(directory: Path, text: str = "") -> list[Subscription]:
    """All durable subscriptions, groups and queues whose key contains the text, by key."""
    from stompbroker.cli.control_client import connect

    found: list[Subscription] = []
    async with connect(directory) as control:
        # Groups that end with their last member, and queues in memory, are not durable.
        for kind in ({"durable": True}, {"durable": False, "shared": True}):
            params: dict[str, Any] = {**kind, "sort": "key", "limit": PAGE, "q": text}
            while True:
                answer = await control.call("subscriptions", **params)
                found += answer["subscriptions"]
                if answer["next_cursor"] is None:
                    break
                params["cursor"] = answer["next_cursor"]
    return sorted(found, key=lambda one: str(one["key"]))


async def _find(directory: Path, key: str) -> Subscription:
    """The subscription with this key. Raises CommandFailed, with similar keys."""
    for one in await _ask_for_all(directory, key):
        if one["key"] == key:
            return one
    missing = f'There is no durable subscription, group or queue "{readable(key)}"'
    if close := near(await _ask_for_all(directory), key):
        raise CommandFailed("\n".join([f"{missing}. Did you mean:", *(f"  {name}" for name in close)]))
    raise CommandFailed(f'{missing}; "stompbroker subscriptions" lists all there are.')


def near(subscriptions: Iterable[Mapping[str, Any]], key: str) -> list[str]:
    """Similar keys, the likeliest first."""
    from difflib import get_close_matches

    return get_close_matches(key, [one["key"] for one in subscriptions], n=MAX_NEAR)


def subscription_table(subscriptions: Iterable[Mapping[str, Any]], now: datetime) -> "Table":
    return table_of(
        subscriptions,
        {
            "name": lambda one: one["key"],
            "destination": lambda one: visible(one["destination"]),
            "ack": lambda one: one["ack"].removeprefix("client-"),
            "state": lambda one: _state(one, now),
            **counts("backlog", "in_flight", "waiting"),
            "created": lambda one: "" if one["created_at"] is None else to_the_second(one["created_at"]),
        },
        right=("backlog", "in flight", "waiting", "created"),
        folds=("destination", "ack", "state"),
    )


def _state(one: Mapping[str, Any], now: datetime) -> str:
    if one["members"] and one["sharing"] != "none":
        behind = f", {one['held_up']:,} held up behind {counted(one['keys_held_up'], 'key')}" if one["held_up"] else ""
        return counted(one["members"], "member") + (", exclusive" if one["sharing"] == "exclusive" else "") + behind
    if one["connected"]:
        return f"connected ({one['peer']})"
    if one["last_seen_at"] is None:
        return "no members"
    unseen_s = (now - datetime.fromisoformat(one["last_seen_at"])).total_seconds()
    return f"last seen {duration(unseen_s)} ago"
