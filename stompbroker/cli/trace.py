"""`stompbroker trace`: what has become of one message. Every state shown is the broker's answer."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stompbroker.cli.options import ConfigOption, DataOption, JsonOption, data_directory, require_utf8
from stompbroker.cli.outcome import ExitCode, ask_broker
from stompbroker.cli.terminal import complain, print_uncut, say, say_json, table_of
from stompbroker.cli.wording import moment, relative, size
from stompbroker.visible_text import readable, visible

if TYPE_CHECKING:
    from rich.table import Table


def trace(
    message_id: Annotated[
        str, typer.Argument(metavar="MESSAGE-ID", help="The message-id header of a MESSAGE or of a dead letter.")
    ],
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show where a message is stored, and how far each subscription has got with it.

    The exit code is 1 if the message is nowhere.

    Examples:

    $ stompbroker trace 5f0c9a3e-4-1207
    $ stompbroker trace 5f0c9a3e-4-1207 --json | jq .found[].subscriptions
    """
    require_utf8(message_id, "MESSAGE-ID")
    answer = ask_broker(data_directory(data, config), "trace", message_id=message_id)
    if as_json:
        say_json(answer)
    else:
        _print(answer)
    if not answer["found"]:
        raise typer.Exit(ExitCode.FAILED)


def _print(answer: dict[str, Any]) -> None:
    if answer["note"]:
        complain(readable(answer["note"]))
    now = datetime.now(UTC)
    for number, found in enumerate(answer["found"]):
        title, *lines = place(found, now)
        if number:
            say("")
        say(title, bold=True)
        say(*lines)
        if found["subscriptions"]:
            print_uncut(progress_table(found["subscriptions"], now))


def place(found: Mapping[str, Any], now: datetime) -> Iterator[str]:
    """Where the message is: a title, then lines about it."""
    from stompbroker.delivery import Pattern

    where, offset = Pattern.keyed(found["topic"]), found["offset"]
    is_letter = found["is_dead_letter"] and bool(where.origin.segments)
    topic = visible(where.origin.key if is_letter else where.name)
    if is_letter:
        yield f"Dead letter {offset} of {topic}"
    else:
        yield f"{where.kind.value.capitalize()} {topic}, offset {offset}"
    expires = f", expires {relative(found['expires_at'], now)}" if found["expires_at"] else ""
    yield f"  published {moment(found['published_at'], now)}, {size(found['body_bytes'])}{expires}"
    if is_letter:
        yield f"  stompbroker dead-letters show {topic} {offset}"
    if not found["subscriptions"]:
        yield "  no subscription has to do with it here"


def progress_table(subscriptions: Iterable[Mapping[str, Any]], now: datetime) -> "Table":
    return table_of(
        subscriptions,
        {
            "subscription": lambda one: one["subscription"],
            "state": lambda one: one["state"] + _attached(one),
            "attempts": lambda one: "" if one["attempts"] is None else f"{one['attempts']:,}",
            "first attempt": lambda one: relative(one["first_attempt_at"], now),
            "last attempt": lambda one: relative(one["last_attempt_at"], now),
            "next attempt": lambda one: _due(one["next_attempt_at"], now),
            "last reason": lambda one: one["reason"] or "",
        },
        right=("attempts",),
        folds=("state", "last reason"),
    )


def _attached(one: Mapping[str, Any]) -> str:
    members = one["members"]
    return " (not connected)" if not members else f" ({members:,} members)" if members > 1 else ""


def _due(instant: str | None, now: datetime) -> str:
    """An overdue attempt is about to happen."""
    return "now" if instant and datetime.fromisoformat(instant) <= now else relative(instant, now)
