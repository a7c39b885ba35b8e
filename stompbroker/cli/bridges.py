"""`stompbroker bridges`: the bridges of the broker on this machine, and how they go."""

import shutil
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from stompbroker.cli.options import ConfigOption, DataOption, JsonOption, data_directory
from stompbroker.cli.outcome import ask_broker
from stompbroker.cli.terminal import say, say_json
from stompbroker.cli.wording import counted, duration, labelled, moment
from stompbroker.visible_text import readable, visible


def bridges(data: DataOption = None, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show the bridges of the broker on this machine: state, lag, what they have carried, and what is wrong.

    Examples:

    $ stompbroker bridges
    $ stompbroker bridges --data /var/lib/stompbroker --json
    """
    answer = ask_broker(data_directory(data, config), "bridges")
    if as_json:
        say_json(answer)
    elif answer["bridges"] or answer["left"]:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        say(*description(answer["bridges"], datetime.now(UTC), width=width), *left_lines(answer))
    else:
        say("This broker has no bridges. A [[bridges]] table in its settings makes one; docs/bridges.md has examples.")


def description(found: list[Mapping[str, Any]], now: datetime, *, width: int | None) -> Iterator[str]:
    for number, one in enumerate(found):
        if number:
            yield ""
        way = "to" if one["direction"] == "send" else "from"
        yield f"{visible(one['name'])}, {one['direction']}:"
        yield from labelled(_facts(one, way, now), width=width)


def left_lines(answer: Mapping[str, Any]) -> Iterator[str]:
    if answer["left"] and answer["bridges"]:
        yield ""
    if answer["left"]:
        yield "Kept for bridges or patterns that are gone, with all that is published; to delete:"
    for one in answer["left"]:
        yield f'  stompbroker subscriptions rm "{one["subscription"]}"    # {counted(one["backlog"], "message")}'


def _facts(one: Mapping[str, Any], way: str, now: datetime) -> Iterator[tuple[str, str]]:
    yield "state", f"{one['state']} since {moment(one['since'], now)}"
    if one["problem"] is not None:
        last = "" if one["state"] == "retrying" else "last: "
        yield "problem", f"{last}{readable(one['problem'])}"
    yield way, f"{', '.join(map(visible, one['urls']))} ({one['kind']}, {one['guarantee'].replace('-', ' ')})"
    yield "patterns", ", ".join(map(visible, one["patterns"]))
    yield "lag", _lag(one)
    yield "received", counted(one["received"], "message")
    more = [f"{one[name]:,} {says}" for name, says in _MORE.items() if one[name]]
    yield "sent", ", ".join([counted(one["sent"], "message"), *more])


#: What became of other messages.
_MORE = {
    "duplicates": "were there already",
    "circles": "had come back in a circle",
    "refused": "refused",
    "in_flight": "on their way",
}


def _lag(one: Mapping[str, Any]) -> str:
    behind = "" if one["backlog"] is None else counted(one["backlog"], "message")
    for_s = "" if not one["lag_s"] else f"the oldest {duration(one['lag_s'])} old"
    return ", ".join(filter(None, (behind, for_s))) or "not known: what waits is at the other broker"
