"""What strangers chose, as it can be shown: names of topics and subscriptions, reasons, message ids.

Law: pure. Nothing in it moves, hides or turns the direction of what follows, and nothing is longer than a page can
bear; that something is left out can be seen. It is not yet HTML: whoever makes HTML of it escapes it.
"""

from __future__ import annotations

from typing import Final

__all__ = ["MAX_LENGTH", "shortened", "visible"]

#: Characters of a name in a table; the whole of it is in `report.json`.
MAX_LENGTH: Final = 80

_UNSEEN: Final = {
    **{code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA1))},
    # Line separators, what turns the direction of text, what has no width, and private marks that Unicode hides.
    **{
        code: f"\\u{code:04x}"
        for code in (0x00AD, 0x061C, *range(0x200B, 0x2010), *range(0x2028, 0x202F), *range(0x2060, 0x2070), 0xFEFF)
    },
}


def visible(text: str) -> str:
    """In one line, with a sign for everything that is there."""
    return text.translate(_UNSEEN)


def shortened(text: str, length: int = MAX_LENGTH) -> str:
    """At most that many characters; both ends of a name tell most, so the middle goes."""
    if len(text) <= length:
        return text
    start = (length - 1) * 2 // 3
    return f"{text[:start]}…{text[len(text) - (length - 1 - start) :]}"
