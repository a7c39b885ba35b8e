"""What clients write, as it can be printed.

Law: pure. Nothing that is printed moves the cursor, recolours the terminal or turns the direction of what follows;
everything else stays as it is, blanks too. (`visible_text` is for names, of which people copy every sign.)
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["counted", "in_one_piece", "labelled", "readable"]

_LINE_SEPARATORS = (0x2028, 0x2029)
_DIRECTIONS = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
_ESCAPED = {
    **{code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA1))},
    **{code: f"\\u{code:04x}" for code in (*_LINE_SEPARATORS, *_DIRECTIONS)},
}
_ESCAPED_IN_LINES = {code: text for code, text in _ESCAPED.items() if chr(code) not in "\n\t"}

#: A blank at which no line is broken. `readable` lets none through, so it is ours wherever it stands.
_UNBREAKABLE = "\xa0"


def readable(text: str, *, keeps_lines: bool = False) -> str:
    """In one line, or with `keeps_lines` in as many as it has."""
    return text.replace("\r\n", "\n").translate(_ESCAPED_IN_LINES) if keeps_lines else text.translate(_ESCAPED)


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
