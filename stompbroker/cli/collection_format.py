"""What the garbage collector says of topics, as a person reads it.

Law: pure; from the broker's answers to lines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stompbroker.cli.instants import duration, moment, relative
from stompbroker.cli.readable_text import counted, in_one_piece, labelled
from stompbroker.config import bytes_as_text
from stompbroker.visible_text import readable, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

__all__ = ["biggest_first", "explanation"]

#: The most subscriptions that the broker names for one topic.
MAX_PINS = 5

Topic = dict[str, Any]  # as `Control` describes it


def biggest_first(topics: Iterable[Topic]) -> list[Topic]:
    """By bytes in the store, then by those in memory, then by name."""
    return sorted(
        topics, key=lambda one: (-(one["stored"] or {"bytes": 0})["bytes"], -one["in_memory"]["bytes"], one["topic"])
    )


def explanation(topics: Sequence[Topic], now: datetime, *, is_about_one: bool, width: int | None) -> Iterator[str]:
    """A block for each topic that keeps something, or for the one that was asked for; titles end with a colon."""
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
    return f"{counted(kept['messages'], 'message')}, {in_one_piece(bytes_as_text(kept['bytes']))}"


def _retention(retention: Mapping[str, Any] | None) -> str:
    if retention is None:
        return "none: what everybody has settled goes"
    bounds = [f"younger than {duration(retention['age_s'])}"] if retention["age_s"] else []
    bounds += [f"within {bytes_as_text(retention['max_bytes'])}"] if retention["max_bytes"] else []
    bounds += [f"within {counted(retention['max_messages'], 'message')}"] if retention["max_messages"] else []
    return f"what is {' and '.join(bounds)}: {_amount(retention)}"


def _pin(pin: Mapping[str, Any], topic: str, now: datetime) -> str:
    about = ["durable" if pin["durable"] else "not durable"]
    if pin["destination"] not in (topic, f"/topic/{topic}"):
        about.append(f"by {visible(pin['destination'])}")
    if pin["connected"]:
        about.append("connected")
    else:
        seen = relative(pin["last_seen_at"], now)
        about.append(f"not connected, last seen {seen}" if seen else "not connected")
    since = f", since {moment(pin['since'], now)}" if pin["since"] else ""
    unsettled = f"{counted(pin['unsettled'], 'message')} unsettled from offset {pin['lowest_unsettled']} on"
    return f"{in_one_piece(pin['subscription'])} ({', '.join(about)}): {unsettled}{since}"
