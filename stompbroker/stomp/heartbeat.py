"""Heart-beat arithmetic.

Law: pure functions over numbers; no clock. Who sends and who watches is the pacemaker's business.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from stompbroker.errors import PeerViolation

__all__ = ["HeartBeats", "negotiate", "parse_heart_beat"]

#: Largest interval we take, in milliseconds (ten digits are 115 days): beyond it is a mistake, not a wish.
MAX_INTERVAL_MS = 9_999_999_999


@final
@dataclass(frozen=True, slots=True)
class HeartBeats:
    """The negotiated intervals in milliseconds; 0 means none in that direction."""

    from_client_ms: int
    to_client_ms: int


def parse_heart_beat(value: str | None) -> tuple[int, int]:
    """`<what I can send>,<what I want to get>` in milliseconds. Missing means `0,0`; anything odd is a violation."""
    if value is None:
        return 0, 0
    parts = [part.strip() for part in value.split(",")]
    if len(parts) == 2 and all(part.isascii() and part.isdigit() and len(part) <= 10 for part in parts):
        return int(parts[0]), int(parts[1])
    raise PeerViolation(
        "malformed heart-beat header",
        f"{value!r} is not two whole numbers of milliseconds, 0 to {MAX_INTERVAL_MS}, such as 10000,10000",
    )


def negotiate(client: tuple[int, int], server: tuple[int, int]) -> HeartBeats:
    """STOMP 1.2, "Heart-beating": none if one side cannot or does not want to, else the larger of the two."""
    client_can, client_wants = client
    server_can, server_wants = server
    return HeartBeats(
        from_client_ms=max(client_can, server_wants) if client_can and server_wants else 0,
        to_client_ms=max(server_can, client_wants) if server_can and client_wants else 0,
    )
