"""Makes text that clients chose safe to show: names of topics and subscriptions, reasons, message ids.

Pure functions. The result has no control, invisible or direction-changing characters, and is short. It is not HTML: the
caller escapes it.
"""

from __future__ import annotations

from typing import Final

#: Characters of a name in a table; the whole of it is in `report.json`.
MAX_LENGTH: Final = 80

_UNSEEN: Final = {
    **{code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA1))},
    # Soft hyphens, line separators, direction marks and zero-width characters.
    **{
        code: f"\\u{code:04x}"
        for code in (0x00AD, 0x061C, *range(0x200B, 0x2010), *range(0x2028, 0x202F), *range(0x2060, 0x2070), 0xFEFF)
    },
}


def visible(text: str) -> str:
    """On one line, with an escape for every invisible character."""
    return text.translate(_UNSEEN)


def shortened(text: str, length: int = MAX_LENGTH) -> str:
    """At most `length` characters; an ellipsis replaces the middle, since both ends of a name tell most."""
    if len(text) <= length:
        return text
    start = (length - 1) * 2 // 3
    return f"{text[:start]}…{text[len(text) - (length - 1 - start) :]}"
