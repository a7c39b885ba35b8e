"""The identity of a durable subscriber across connections; a `Dialect` turns it into headers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DurableIdentity:
    client_id: str
    name: str


def numbered_identity(number: int, name: str = "benchmark") -> DurableIdentity:
    """The durable subscriber on connection `number` of the subscriber role."""
    return DurableIdentity(client_id=f"subscriber-{number}", name=name)
