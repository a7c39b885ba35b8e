"""`stompbroker gc`: what is kept, why, and what could go. Every number and reason is the broker's answer."""

import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from stompbroker.cli.options import ConfigOption, DataOption, JsonOption, data_directory, read_topic
from stompbroker.cli.outcome import run
from stompbroker.cli.terminal import say, say_json
from stompbroker.cli.wording import counted, duration, in_one_piece, labelled, moment, relative, size
from stompbroker.visible_text import readable, visible

#: Topics in one answer. The broker counts the stored messages of each, and must answer before the timeout.
PAGE = 20
#: The most subscriptions that the broker names for one topic.
MAX_PINS = 5
Topic = dict[str, Any]  # as `Control` describes it


commands = typer.Typer(rich_markup_mode="rich", no_args_is_help=True)


@commands.callback()
def _about() -> None:
    """What the garbage collector keeps, and why.

    Examples:

    $ stompbroker gc explain
    $ stompbroker gc explain orders
    """


@commands.command("explain")
def _explain(
    topic: Annotated[
        str | None,
        typer.Argument(
            metavar="TOPIC",
            help="One topic, as orders or /topic/orders, or a queue, as /queue/jobs.",
            show_default="all",
        ),
    ] = None,
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say for each topic what is kept, which subscriptions pin it since when, and what a run would collect.

    The topics with the most bytes in the store come first.

    Examples:

    $ stompbroker gc explain
    $ stompbroker gc explain orders
    $ stompbroker gc explain /queue/jobs
    $ stompbroker gc explain DLQ.orders --json | jq .topics[0].why
    """
    name = None if topic is None else read_topic(topic).key
    found = biggest_first(run(_ask, data_directory(data, config), name))
    if as_json:
        say_json({"total": len(found), "topics": found})
        return
    # Without a terminal each fact is one line, however long.
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in explanation(found, datetime.now(UTC), is_about_one=name is not None, width=width):
        say(line, bold=line.endswith(":") and not line.startswith(" "))


async def _ask(directory: Path, topic: str | None) -> list[dict[str, Any]]:
    from stompbroker.cli.control_client import connect

    found: list[dict[str, Any]] = []
    async with connect(directory) as control:
        if topic is not None:
            return list((await control.call("explain_collection", topic=topic))["topics"])
        while True:
            after = found[-1]["topic"] if found else ""
            answer = await control.call("explain_collection", after=after, limit=PAGE)
            found += answer["topics"]
            # Topics may have gone since the first answer, so an empty answer is the end as well.
            if not answer["topics"] or len(found) >= answer["total"]:
                return found


def biggest_first(topics: Iterable[Topic]) -> list[Topic]:
    """By bytes in the store, then by those in memory, then by name."""
    return sorted(
        topics, key=lambda one: (-(one["stored"] or {"bytes": 0})["bytes"], -one["in_memory"]["bytes"], one["topic"])
    )


def explanation(topics: Sequence[Topic], now: datetime, *, is_about_one: bool, width: int | None) -> Iterator[str]:
    """A block for each topic that keeps something, or for the only one; titles end with a colon."""
    shown = [one for one in topics if is_about_one or _keeps_something(one)]
    for number, one in enumerate(shown):
        if number:
            yield ""
        yield f"{visible(one['topic'])}:"
        yield from labelled(_facts(one, now), width=width)
    if is_about_one:
        return
    if not topics:
        yield "There are no topics."
    elif not shown:
        yield f"Nothing is kept ({counted(len(topics), 'topic')})."
    elif rest := len(topics) - len(shown):
        yield ""
        yield "1 other topic keeps nothing." if rest == 1 else f"{rest:,} other topics keep nothing."


def _keeps_something(topic: Topic) -> bool:
    return bool(topic["in_memory"]["messages"] or (topic["stored"] and topic["stored"]["messages"]))


def _facts(topic: Topic, now: datetime) -> Iterator[tuple[str, str]]:
    stored, pins, collectable = topic["stored"], topic["pinned_by"], topic["collectable"]["messages"]
    yield "in memory", _amount(topic["in_memory"])
    if stored is None:
        yield "in the store", "nothing; it lives in memory only"
    elif stored["messages"]:
        span = f"offsets {stored['first_offset']} to {stored['next_offset'] - 1}"
        yield "in the store", f"{_amount(stored)} ({span})"
    else:
        yield "in the store", f"nothing (the next offset is {stored['next_offset']})"
    yield "retention", _retention(topic["retention"])
    for number, pin in enumerate(pins):
        yield "" if number else "pinned by", _pin(pin, topic["topic"], now)
    if not pins:
        yield "pinned by", "nobody"
    elif len(pins) >= MAX_PINS:
        yield "", f"(the {len(pins)} that are furthest behind; there may be others)"
    yield "collectable", f"{counted(collectable, 'message')}, by a run now" if collectable else "nothing now"
    yield "why", readable(topic["why"])


def _amount(kept: Mapping[str, int]) -> str:
    if not kept["messages"]:
        return "nothing"
    return f"{counted(kept['messages'], 'message')}, {in_one_piece(size(kept['bytes']))}"


def _retention(retention: Mapping[str, Any] | None) -> str:
    if retention is None:
        return "none: what everybody has settled goes"
    bounds = [f"younger than {duration(retention['age_s'])}"] if retention["age_s"] else []
    bounds += [f"within {size(retention['max_bytes'])}"] if retention["max_bytes"] else []
    bounds += [f"within {counted(retention['max_messages'], 'message')}"] if retention["max_messages"] else []
    return f"what is {' and '.join(bounds)}: {_amount(retention)}"


def _pin(pin: Mapping[str, Any], topic: str, now: datetime) -> str:
    about = ["durable" if pin["durable"] else "not durable"]
    if pin["destination"] not in (topic, f"/topic/{topic}"):
        about.append(f"by {visible(pin['destination'])}")
    if pin["members"] > 1:
        about.append(f"{pin['members']:,} members")
    elif pin["connected"]:
        about.append("connected")
    else:
        seen = relative(pin["last_seen_at"], now)
        about.append(f"not connected, last seen {seen}" if seen else "not connected")
    since = f", since {moment(pin['since'], now)}" if pin["since"] else ""
    unsettled = f"{counted(pin['unsettled'], 'message')} unsettled from offset {pin['lowest_unsettled']} on"
    return f"{in_one_piece(pin['subscription'])} ({', '.join(about)}): {unsettled}{since}"
