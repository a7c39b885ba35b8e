"""The three versions of STOMP and what sets them apart.

Law: a difference between versions is a fact written here once; everybody else asks the version.
"""

from __future__ import annotations

from enum import Enum
from typing import final

__all__ = ["Version", "choose_version"]


@final
class Version(Enum):
    """A negotiated protocol version. The value is its spelling on the wire."""

    V1_0 = "1.0"
    V1_1 = "1.1"
    V1_2 = "1.2"

    #: Members are compared by identity, so they may be hashed by it; Enum's own hash is a Python call per look-up.
    __hash__ = object.__hash__

    @property
    def escapes_headers(self) -> bool:
        """1.0 has no escape sequences at all."""
        return self is not Version.V1_0

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

    A missing `accept-version` means 1.0. The list comes in any order (stompjs sends `1.2,1.1,1.0`), and blanks
    around its commas are tolerated.
    """
    if accept_version is None:
        return Version.V1_0
    offered = {part.strip() for part in accept_version.split(",")}
    common = [version for version in Version if version.value in offered]
    return common[-1] if common else None
