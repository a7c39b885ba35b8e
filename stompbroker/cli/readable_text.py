"""Lines for people: labels and values, numbers with their noun.

Law: pure; from texts to lines. What strangers write is made readable by `visible_text`.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from stompbroker.visible_text import readable

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["counted", "in_one_piece", "labelled"]

#: A blank at which no line is broken. `readable` lets none through, so it is ours wherever it stands.
_UNBREAKABLE = "\xa0"


def in_one_piece(name: str) -> str:
    """A readable name that `labelled` does not break."""
    return readable(name).replace(" ", _UNBREAKABLE)


def labelled(pairs: Iterable[tuple[str, str]], *, width: int | None) -> list[str]:
    """One line for each label and value; values that are longer than `width` leaves room for go on below themselves.

    Nothing is broken but at blanks, and without a width nothing is.
    """
    pairs = list(pairs)
    label_width = max(len(label) for label, _ in pairs)
    lines = []
    for label, value in pairs:
        first, below = f"  {label:{label_width}}  ", " " * (label_width + 4)
        if width is None:
            lines.append(first + value)
        else:
            lines += textwrap.wrap(
                value,
                max(width, 2 * len(below)),
                initial_indent=first,
                subsequent_indent=below,
                break_long_words=False,
                break_on_hyphens=False,
            ) or [first]
    return [line.replace(_UNBREAKABLE, " ").rstrip() for line in lines]


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
