"""What a measurement needs of any broker: an address, and what can be seen from outside."""

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
        """The roles that speak its protocol."""

    @property
    def data(self) -> Path:
        """Its data directory, for `operating` and `stored`."""

    @property
    def started_in_s(self) -> float:
        """Duration of its last start, from the new process to the line with its address, or to a first CONNECTED."""

    def processor_s(self) -> float:
        """Processor time of all its processes since the start."""

    def resident_bytes(self) -> int:
        """Memory of all its processes now."""

    def raise_if_dead(self) -> None:
        """Raise `Broken` if it has ended."""

    def restart(self, *, is_killed: bool = False) -> None:
        """Stop or kill it and start it again on the same data; its address may change."""


#: Runs a broker with the given settings (TOML, may be empty) for the length of a `with` block.
OpenTarget = Callable[[str], AbstractContextManager[Target]]
