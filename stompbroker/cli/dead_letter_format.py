"""Dead letters as a person reads them.

Law: pure; from the broker's answers to tables that Rich can print, and to lines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stompbroker.cli.instants import moment, relative
from stompbroker.cli.readable_text import counted, in_one_piece, labelled
from stompbroker.cli.uncut_table import Column, uncut_table
from stompbroker.config import bytes_as_text
from stompbroker.visible_text import readable, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime

    from rich.table import Table

__all__ = ["letter_lines", "letter_table", "skipped_lines", "topic_table"]

#: Bytes shown of a body that is not text: 64 lines.
SHOWN_BINARY_BYTES = 1_024
_BYTES_A_LINE = 16

#: What occurs in text. Anything else below a blank is a sign of something else that happens to be UTF-8.
_TEXT_CONTROLS = frozenset("\t\n\f\r\x1b")

#: Reasons, and offsets of each, that are listed for what was skipped. `--json` has all.
MAX_REASONS = 10
MAX_OFFSETS = 10


def topic_table(topics: Iterable[Mapping[str, Any]], now: datetime) -> Table:
    columns = [Column("topic"), Column("letters", is_number=True), Column("bytes", is_number=True), Column("oldest")]
    rows = [
        [
            visible(one["topic"]),
            f"{one['letters']:,}",
            bytes_as_text(one["bytes"]),
            relative(one["oldest_died_at"], now),
        ]
        for one in topics
    ]
    return uncut_table(columns, rows)


def letter_table(letters: Iterable[Mapping[str, Any]], now: datetime) -> Table:
    columns = [
        Column("offset", is_number=True),
        Column("died"),
        Column("subscription"),
        Column("attempts", is_number=True),
        Column("cause", folds=True),
        Column("reason", folds=True),
        Column("message id"),
        Column("size", is_number=True),
    ]
    rows = [
        [
            str(one["offset"]),
            relative(one["died_at"], now),
            readable(one["subscription"]),
            f"{one['attempts']:,}",
            readable(one["cause"]),
            readable(one["reason"]),
            readable(one["original_message_id"]),
            bytes_as_text(one["body_bytes"]),
        ]
        for one in letters
    ]
    return uncut_table(columns, rows)


def letter_lines(letter: Mapping[str, Any], topic: str, body: bytes, now: datetime) -> Iterator[str]:
    """Everything about one letter; the first line is its title."""
    yield f"Dead letter {letter['offset']} of {visible(topic)}"
    kind = "durable" if letter["is_durable"] else "not durable"
    own_id = readable(letter["message_id"])
    pairs = {
        "died": moment(letter["died_at"], now),
        "cause": readable(letter["cause"]),
        "reason": readable(letter["reason"]) or "(none was given)",
        "subscription": f"{in_one_piece(letter['subscription'])} ({kind})",
        "attempts": f"{letter['attempts']:,}",
        "first attempt": moment(letter["first_attempt_at"], now),
        "last attempt": moment(letter["last_attempt_at"], now),
        "published": moment(letter["published_at"], now),
        "destination": visible(letter["destination"]),
        "message id": f"{readable(letter['original_message_id'])} (the letter's own is {own_id})",
    }
    yield from labelled([(label, text) for label, text in pairs.items() if text], width=None)
    yield "Headers"
    yield from (f"  {readable(name)}: {readable(value)}" for name, value in letter["headers"])
    yield from _body_lines(body)


def skipped_lines(skipped: Mapping[str, list[int]]) -> Iterator[str]:
    """A line for each reason, the most frequent first."""
    by_number = sorted(skipped.items(), key=lambda entry: -len(entry[1]))
    for why, offsets in by_number[:MAX_REASONS]:
        shown = ", ".join(map(str, offsets[:MAX_OFFSETS])) + (", …" if len(offsets) > MAX_OFFSETS else "")
        yield f"  {len(offsets):,}: {readable(why)} (at {'offset' if len(offsets) == 1 else 'offsets'} {shown})"
    if len(by_number) > MAX_REASONS:
        rest = sum(len(offsets) for _, offsets in by_number[MAX_REASONS:])
        yield f"  {rest:,} for {counted(len(by_number) - MAX_REASONS, 'other reason')}; --json has all"


def _body_lines(body: bytes) -> Iterator[str]:
    text = _as_text(body)
    if not body:
        yield "No body"
    elif text is not None:
        yield f"Body ({bytes_as_text(len(body))})"
        yield from (f"  {line}" for line in readable(text, keeps_lines=True).removesuffix("\n").split("\n"))
    else:
        yield f"Body ({bytes_as_text(len(body))}, not text)"
        yield from _hexadecimal(body[:SHOWN_BINARY_BYTES])
        if len(body) > SHOWN_BINARY_BYTES:
            yield f"  … and {counted(len(body) - SHOWN_BINARY_BYTES, 'byte')} more"
        yield "  --body FILE writes it to a file."


def _as_text(body: bytes) -> str | None:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    return None if any(sign < " " and sign not in _TEXT_CONTROLS for sign in text) else text


def _hexadecimal(data: bytes) -> Iterator[str]:
    """As `hexdump -C` has it: where, what, and what of it can be read."""
    for start in range(0, len(data), _BYTES_A_LINE):
        part = data[start : start + _BYTES_A_LINE]
        signs = "".join(chr(code) if 0x20 <= code < 0x7F else "." for code in part)
        yield f"  {start:08x}  {part.hex(' '):{3 * _BYTES_A_LINE - 1}}  {signs}"
