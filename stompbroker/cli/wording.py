"""How numbers, times and labelled values read in what commands print.

Law: pure; the caller supplies `now`. Instants are texts as the broker writes them, ISO 8601 in UTC, or None.
"""

from __future__ import annotations

import sys
import textwrap
from datetime import datetime
from typing import TYPE_CHECKING

from stompbroker.visible_text import readable

if TYPE_CHECKING:
    from collections.abc import Iterable

#: A blank at which no line is broken. `readable` lets none through, so each one is ours.
_UNBREAKABLE = "\xa0"
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def size(number: int) -> str:
    from stompbroker.config import bytes_as_text

    return bytes_as_text(number)


def duration(seconds: float) -> str:
    """In whole units, the largest that fit."""
    for length, unit in _UNITS:
        if seconds >= length:
            return f"{seconds // length:,.0f} {unit}"
    return "0 s"


def relative(instant: str | None, now: datetime) -> str:
    """`3 min ago`, `in 4 s`, or `now`."""
    if not instant:
        return ""
    seconds = (datetime.fromisoformat(instant) - now).total_seconds()
    if seconds <= -1:
        return f"{duration(-seconds)} ago"
    return f"in {duration(seconds)}" if seconds >= 1 else "now"


def to_the_second(instant: str) -> str:
    return datetime.fromisoformat(instant).strftime("%Y-%m-%d %H:%M:%S")


def moment(instant: str | None, now: datetime) -> str:
    return f"{to_the_second(instant)} ({relative(instant, now)})" if instant else ""


def in_one_piece(name: str) -> str:
    """A readable name that `labelled` does not break."""
    return readable(name).replace(" ", _UNBREAKABLE)


def labelled(pairs: Iterable[tuple[str, str]], *, width: int | None) -> list[str]:
    """One line for each label and value. A value too long for `width` is wrapped at blanks; None wraps nothing."""
    pairs = list(pairs)
    label_width = max(len(label) for label, _ in pairs)
    lines = []
    for label, value in pairs:
        first, below = f"  {label:{label_width}}  ", " " * (label_width + 4)
        lines += textwrap.wrap(
            value,
            sys.maxsize if width is None else max(width, 2 * len(below)),
            initial_indent=first,
            subsequent_indent=below,
            break_long_words=False,
            break_on_hyphens=False,
        ) or [first]
    return [line.replace(_UNBREAKABLE, " ").rstrip() for line in lines]
