"""What clients choose, as it can be shown and copied.

Law: pure. What cannot be seen, or would be mistaken for something else, is written as %XX; different texts stay
different.
"""

from __future__ import annotations

from urllib.parse import quote

__all__ = ["visible"]


def visible(text: str, *, also: str = "") -> str:
    """The text without blanks and what moves the cursor, and without the signs of `also`."""
    return "".join(
        quote(sign, safe="") if sign in f"%{also}" or sign.isspace() or not sign.isprintable() else sign
        for sign in text
    )
