"""Everything ends as a `trio.abc.Stream`; nobody above knows which kind.

Law: listeners and streams, and how much to read at once. No protocol, no topics.
"""

from stompbroker.transport.accepting import accept
from stompbroker.transport.chunk_sizes import FAIR_BYTES, ChunkSize, Traffic
from stompbroker.transport.quick_acks import QuickAcks
from stompbroker.transport.tcp import (
    close_gently,
    is_reset,
    leaving_of,
    open_listeners,
    raise_descriptor_limit,
    sender_of,
    tune,
)

__all__ = [
    "FAIR_BYTES",
    "ChunkSize",
    "QuickAcks",
    "Traffic",
    "accept",
    "close_gently",
    "is_reset",
    "leaving_of",
    "open_listeners",
    "raise_descriptor_limit",
    "sender_of",
    "tune",
]
