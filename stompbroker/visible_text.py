"""Makes clients' texts safe to show on a terminal, in a log line, or as a name that people copy.

Law: pure. The result cannot move the cursor, recolour the terminal, turn the direction of writing or hide anything.
`visible` is for names, which people copy sign by sign; `readable` is for texts.
"""

from __future__ import annotations

import unicodedata
from typing import Final, final
from urllib.parse import quote

#: Controls, marks without a width or with a direction, surrogates, line and paragraph separators.
_UNSEEN_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
#: Joiners have no width either, but belong to words in Persian and to many emoji.
_JOINERS: Final = frozenset("\u200c\u200d")
_UNBREAKABLE: Final = "\xa0"


def visible(text: str, *, also: str = "") -> str:
    """A name in which blanks, what cannot be seen, and the signs of `also` are written as %XX. Different names stay
    different."""
    return "".join(
        quote(sign, safe="") if sign in f"%{also}" or sign.isspace() or not sign.isprintable() else sign
        for sign in text
    )


def readable(text: str, *, keeps_lines: bool = False) -> str:
    r"""In one line, or with `keeps_lines` in as many as it has. What cannot be seen is written as \xXX or \uXXXX, and
    so is the unbreakable blank, which we use for layout."""
    if text.isprintable():
        return text
    return text.replace("\r\n", "\n").translate(_IN_LINES) if keeps_lines else text.translate(_IN_ONE_LINE)


@final
class _Escapes(dict[int, str]):
    """For `str.translate`, which looks each sign up; nothing is cached."""

    def __missing__(self, code: int) -> str:
        sign = chr(code)
        if sign == _UNBREAKABLE or (unicodedata.category(sign) in _UNSEEN_CATEGORIES and sign not in _JOINERS):
            return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x1_0000 else f"\\U{code:08x}"
        return sign


_IN_ONE_LINE: Final = _Escapes()
_IN_LINES: Final = _Escapes({ord(sign): sign for sign in "\n\t"})
