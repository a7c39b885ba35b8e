"""What a measurement needs of a broker, whichever it is: an address, and what can be seen from outside."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.address import Address
    from benchmarks.flow_roles import FlowRoles


class Target(Protocol):
    """A running broker."""

    @property
    def address(self) -> Address: ...
    @property
    def roles(self) -> FlowRoles:
        """Who speaks its protocol."""

    @property
    def data(self) -> Path:
        """The directory it keeps its files in; `operating` and `stored` look there."""

    @property
    def started_in_s(self) -> float:
        """How long its last start took, from the new process to the line that says where it listens."""

    def processor_s(self) -> float:
        """Processor time that all its processes have used since it started."""

    def resident_bytes(self) -> int:
        """Memory that all its processes occupy now."""

    def raise_if_dead(self) -> None:
        """Raise `Broken` if it has ended."""

    def restart(self, *, is_killed: bool = False) -> None:
        """End it as one should, or kill it, and start it again on the same data; its address may be another."""


#: Runs a broker with the given settings (TOML, may be empty) for the length of a `with` block.
OpenTarget = Callable[[str], AbstractContextManager[Target]]
