"""What a measurement needs of a broker, whichever it is: an address, and what can be seen from outside."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol


class Target(Protocol):
    """A running STOMP broker."""

    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    def processor_s(self) -> float:
        """Processor time it has used since it started."""

    def resident_bytes(self) -> int:
        """Memory it occupies now."""

    def raise_if_dead(self) -> None:
        """Raise `Broken` if it has ended."""


#: Runs a broker with the given settings (TOML, may be empty) for the length of a `with` block.
OpenTarget = Callable[[str], AbstractContextManager[Target]]
