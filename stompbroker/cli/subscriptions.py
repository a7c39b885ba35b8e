"""`stompbroker subscriptions`: the durable ones, and the end of one.

Law: asks over the control socket and shows the answer. Messages are given up only when a person has said so after
seeing how many, or with --yes; a program that did not say so is refused.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from stompbroker.cli.options import ConfigOption, DataOption, JsonOption
from stompbroker.cli.terminal import ask, open_console, say, say_json

__all__ = ["make_subscriptions"]

#: Subscriptions in one answer: the most the broker gives.
PAGE = 1_000

Subscription = dict[str, Any]  # as `Control` describes it


def make_subscriptions() -> typer.Typer:
    """The command and what is below it."""
    application = typer.Typer(rich_markup_mode="rich")
    application.callback(invoke_without_command=True)(_list)
    application.command("rm")(_remove)
    return application


def _list(
    context: typer.Context, data: DataOption = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """List the durable subscriptions of the broker that runs on this machine; [bold]rm[/] deletes one.

    Backlog: what it has still to get, for the first time or again.
    In flight: what it has got and not acknowledged. Waiting: what it refused and will get again.

    Examples:

    $ stompbroker subscriptions
    $ stompbroker subscriptions --data /var/lib/stompbroker --json
    $ stompbroker subscriptions rm billing/invoices
    """
    # "subscriptions --data DIR rm KEY" means the same as "subscriptions rm KEY --data DIR".
    context.obj = {"data": data, "config": config, "as_json": as_json}
    if context.invoked_subcommand is not None:
        return
    from stompbroker.cli.outcome import run

    found = run(_ask_for_all, _directory(data, config))
    if as_json:
        say_json({"total": len(found), "subscriptions": found})
    elif found:
        _print_table(found)
    else:
        say("There are no durable subscriptions. A client makes one by giving it a name, for example:")
        say("  stompbroker subscribe /topic/orders --durable invoices --client-id billing")


def _remove(
    context: typer.Context,
    key: Annotated[list[str], typer.Argument(metavar="KEY", help="Which one: as in the first column of the list.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask, even if messages are given up.")] = False,
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete a durable subscription, and with it what it has still to get.

    If messages are given up, you are asked first.

    Examples:

    $ stompbroker subscriptions rm billing/invoices
    $ stompbroker subscriptions rm "audit @ /topic/orders" --yes
    """
    from stompbroker.cli.outcome import CommandFailed, run

    directory = _directory(data or context.obj["data"], config or context.obj["config"])
    # The blanks in a key are single ones, so it is known what was meant without quotes, too.
    one = run(_find, directory, " ".join(key))

    name, at_stake = one["key"], _at_stake(one)
    if at_stake and not yes:
        if not sys.stdin.isatty():
            raise CommandFailed(f"{name} has {at_stake}; to give them up and delete it, say so with --yes.")
        _confirm(f"{name} has {at_stake}. Give them up and delete it?")
    answer = run(_delete, directory, one["key"])
    if as_json or context.obj["as_json"]:
        say_json(answer)
    else:
        say(f"Deleted {name}; {_messages(answer['backlog'])} it had still to get given up.")


def _confirm(question: str) -> None:
    """End the program unless a person says yes. Asked on stderr: stdout is for what came of it."""
    ask(question)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        say("Nothing was deleted.", err=True)
        raise typer.Exit(1)


def _directory(data: Path | None, config: Path | None) -> Path:
    from stompbroker.config import load

    return load(config, flags={} if data is None else {"data": data}).data


def _at_stake(one: Subscription) -> str:
    """What deleting it would lose, in words; empty if nothing."""
    parts = [f"a backlog of {_messages(one['backlog'])}"] if one["backlog"] else []
    parts += [f"{_messages(one['in_flight'])} in flight"] if one["in_flight"] else []
    return " and ".join(parts)


def _messages(number: int) -> str:
    return "1 message" if number == 1 else f"{number:,} messages"


async def _ask_for_all(directory: Path) -> list[Subscription]:
    from stompbroker.cli.control_client import connect

    found: list[Subscription] = []
    async with connect(directory) as control:
        while True:
            after = {"after": found[-1]["key"]} if found else {}
            answer = await control.call("durable_subscriptions", limit=PAGE, **after)
            found += answer["subscriptions"]
            # Some may have gone since the first answer, so an answer without any is an end, too.
            if not answer["subscriptions"] or len(found) >= answer["total"]:
                return found


async def _find(directory: Path, key: str) -> Subscription:
    """The one that is meant. Raises CommandFailed with what could be."""
    from stompbroker.cli.outcome import CommandFailed
    from stompbroker.cli.subscription_names import find, near
    from stompbroker.visible_text import readable

    known = await _ask_for_all(directory)
    found = find(known, key)
    if found is not None:
        return found
    close, name = near(known, key), readable(key)
    if close:
        raise CommandFailed("\n".join([f'There is no durable subscription "{name}". Did you mean:', *_indented(close)]))
    raise CommandFailed(f'There is no durable subscription "{name}"; "stompbroker subscriptions" lists all there are.')


def _indented(names: Sequence[str]) -> list[str]:
    return [f"  {name}" for name in names]


async def _delete(directory: Path, key: str) -> dict[str, Any]:
    from stompbroker.cli.control_client import connect

    async with connect(directory) as control:
        answer: dict[str, Any] = await control.call("delete_subscription", key=key)
        return answer


def _print_table(found: list[Subscription]) -> None:
    from datetime import UTC, datetime

    from stompbroker.cli.subscription_table import print_uncut, table_of

    print_uncut(table_of(found, datetime.now(UTC)), open_console())
