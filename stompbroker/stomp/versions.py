r"""The three versions of STOMP and how they differ, escape sequences included.

Law: a difference between versions is written here once; other modules ask the version. STOMP 1.2 escapes
`\r \n \c \\`, 1.1 the same without `\r`, 1.0 nothing. CONNECT and CONNECTED are never escaped.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, final

from stompbroker.errors import PeerViolation

if TYPE_CHECKING:
    from collections.abc import Mapping


@final
class Version(Enum):
    """A negotiated protocol version. The value is its spelling on the wire."""

    V1_0 = "1.0"
    V1_1 = "1.1"
    V1_2 = "1.2"

    #: Members are compared by identity, so they may be hashed by it; Enum's own hash is a Python call per look-up.
    __hash__ = object.__hash__

    @property
    def trims_values(self) -> bool:
        """1.0 clients pad header values with blanks; from 1.1 on nothing may be trimmed."""
        return self is Version.V1_0

    @property
    def accepts_crlf(self) -> bool:
        """Whether a line may end in CR LF. In 1.1 a CR before the LF belongs to the line; 1.0 trims it away."""
        return self is not Version.V1_1

    @property
    def has_heart_beats(self) -> bool:
        return self is not Version.V1_0


def choose_version(accept_version: str | None) -> Version | None:
    """The highest version both sides speak; None when there is none.

    A missing `accept-version` means 1.0. Any order and blanks around the commas are accepted.
    """
    if accept_version is None:
        return Version.V1_0
    offered = {part.strip() for part in accept_version.split(",")}
    common = [version for version in Version if version.value in offered]
    return common[-1] if common else None


_UNESCAPED: Mapping[Version, Mapping[str, str]] = {
    Version.V1_1: {r"\n": "\n", r"\c": ":", "\\\\": "\\"},
    Version.V1_2: {r"\r": "\r", r"\n": "\n", r"\c": ":", "\\\\": "\\"},
}
_SEQUENCE = re.compile(r"\\.?", re.DOTALL)

_ESCAPED: Mapping[Version, Mapping[int, str]] = {
    # 1.0 cannot express a line feed in a header. Escaping it all the same keeps the value readable, and keeps it from
    # becoming a header line of its own (test_a_line_feed_cannot_inject_a_header_into_1_0).
    Version.V1_0: {ord("\n"): r"\n"},
    **{
        version: {ord(character): sequence for sequence, character in sequences.items()}
        for version, sequences in _UNESCAPED.items()
    },
}


def escape(text: str, version: Version) -> str:
    """`text` as it may stand in a header line of this version."""
    return text.translate(_ESCAPED[version])


def unescape(text: str, version: Version) -> str:
    """The inverse of `escape`. Raises PeerViolation on an undefined sequence."""
    if "\\" not in text or version is Version.V1_0:
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
