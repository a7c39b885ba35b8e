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
    client_id: str | None
    #: Agreed intervals, in milliseconds; 0 for none.
    heart_beat_to_client_ms: int
    heart_beat_from_client_ms: int
    subscriptions: int
    in_flight: int
    #: The names of the topics it has published to, some of them if there are many.
    publishing_to: tuple[str, ...]
    bytes_in: int
    bytes_out: int
    connected_at_ns: int
    is_held_back: bool
    late_answers: int
