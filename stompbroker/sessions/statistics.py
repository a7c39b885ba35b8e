"""What there is to know about one connection.

Law: a frozen snapshot; looking at it changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

__all__ = ["ConnectionStatistics"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionStatistics:
    id: int
    peer: str
    #: None until the client has sent CONNECT.
    version: str | None
    subscriptions: int
    bytes_in: int
    bytes_out: int
    connected_at_ns: int
    is_held_back: bool
    late_answers: int
