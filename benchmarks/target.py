"""What a measurement needs of a broker, whichever it is: an address, and what can be seen from outside."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path


class Target(Protocol):
    """A running STOMP broker."""

    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def data(self) -> Path:
        """The directory it keeps its files in; `operating` and `stored` look there."""

    @property
    def started_in_s(self) -> float:
        """How long its last start took, from the new process to the line that says where it listens."""

    def processor_s(self) -> float:
        """Processor time it has used since it started."""

    def resident_bytes(self) -> int:
        """Memory it occupies now."""

    def raise_if_dead(self) -> None:
        """Raise `Broken` if it has ended."""

    def restart(self, *, is_killed: bool = False) -> None:
        """End it as one should, or kill it, and start it again on the same data; its address may be another."""


#: Runs a broker with the given settings (TOML, may be empty) for the length of a `with` block.
OpenTarget = Callable[[str], AbstractContextManager[Target]]
