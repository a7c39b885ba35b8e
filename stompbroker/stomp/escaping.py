r"""Escape sequences of header names and values.

Law: STOMP 1.2 knows `\r \n \c \\`, 1.1 the same without `\r`, 1.0 none. Any other sequence is a fatal protocol
error. CONNECT and CONNECTED are exempt in every version; their callers simply do not call this module.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from stompbroker.errors import PeerViolation
from stompbroker.stomp.versions import Version

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["escape", "unescape"]

_UNESCAPED: Mapping[Version, Mapping[str, str]] = {
    Version.V1_1: {r"\n": "\n", r"\c": ":", "\\\\": "\\"},
    Version.V1_2: {r"\r": "\r", r"\n": "\n", r"\c": ":", "\\\\": "\\"},
}
_SEQUENCE = re.compile(r"\\.?", re.DOTALL)

_ESCAPED: Mapping[Version, dict[int, str]] = {
    # 1.0 cannot say a line feed in a header at all. The two characters keep the value readable, and above all
    # keep it from becoming a header line of its own (test_a_line_feed_cannot_inject_a_header_into_1_0).
    Version.V1_0: {ord("\n"): r"\n"},
    Version.V1_1: {ord("\n"): r"\n", ord(":"): r"\c", ord("\\"): "\\\\"},
    Version.V1_2: {ord("\r"): r"\r", ord("\n"): r"\n", ord(":"): r"\c", ord("\\"): "\\\\"},
}


def escape(text: str, version: Version) -> str:
    """`text` as it may stand in a header line of this version."""
    return text.translate(_ESCAPED[version])


def unescape(text: str, version: Version) -> str:
    """The text meant by a name or value as it stood on the wire. Raises PeerViolation on an undefined sequence."""
    if "\\" not in text or not version.escapes_headers:
        return text
    known = _UNESCAPED[version]

    def meaning(match: re.Match[str]) -> str:
        try:
            return known[match[0]]
        except KeyError:
            raise PeerViolation(
                "undefined escape sequence",
                f"{match[0]!r} stands in the header text {text!r}; STOMP {version.value} defines {', '.join(known)}",
            ) from None

    return _SEQUENCE.sub(meaning, text)
