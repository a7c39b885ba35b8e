"""What all sessions of a broker share.

Law: one value, made by the composition root and given to each session.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from stompbroker.clock import NANOSECONDS

if TYPE_CHECKING:
    from stompbroker.changes import Journal
    from stompbroker.clock import Clock
    from stompbroker.delivery import Registry
    from stompbroker.log_throttle import LogThrottle
    from stompbroker.memory_budget import MemoryBudget
    from stompbroker.message import MessageIds
    from stompbroker.sessions.outbox import FlushQueue
    from stompbroker.sessions.session_timers import SessionTimers
    from stompbroker.stomp import Limits

#: NACKs a second, over all connections, while other clients wait for the store. One costs about 31 µs in all, so this
#: is an eighth of the time.
REFUSALS_PER_S: Final = 4_000
#: The longest pause, however many are refused: the client must not miss its heart-beats.
MAX_REST_NS: Final = NANOSECONDS // 2


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """What the operator decided about single connections."""

    limits: Limits
    #: Sent after the NUL of every frame.
    after_frame: bytes
    heart_beat_send_ms: int
    heart_beat_want_ms: int
    #: A client is disconnected after this many agreed intervals of silence.
    heart_beat_margin: float
    connect_timeout_ns: int
    max_subscriptions: int
    #: Of all clients together.
    max_durable_subscriptions: int
    default_prefetch: int
    max_prefetch: int
    max_waiting: int
    transaction_timeout_ns: int
    #: Bytes of frames kept for a connection that is held back, before it is no longer read.
    parking_bytes: int
    #: How long a held-back connection with deliveries in flight may keep its parking full.
    block_timeout_ns: int


@final
@dataclass(slots=True, eq=False)
class RefusalPace:
    """Limits refusals to REFUSALS_PER_S, over all clients, while another client waits for the store.

    A refused message comes again, so a client that refuses everything keeps the broker busy for nothing.
    """

    #: When the time for all refusals so far is over.
    _free_at_ns: int = 0

    def rest_ns(self, refusals: int, now_ns: int) -> int:
        """How long not to read from the client that has just refused so many."""
        self._free_at_ns = max(self._free_at_ns, now_ns) + refusals * NANOSECONDS // REFUSALS_PER_S
        return min(self._free_at_ns - now_ns, MAX_REST_NS)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SessionContext:
    registry: Registry
    journal: Journal
    budget: MemoryBudget
    flush_queue: FlushQueue
    clock: Clock
    timers: SessionTimers
    message_ids: MessageIds
    settings: SessionSettings
    refusal_pace: RefusalPace
    throttle: LogThrottle
    #: The `server` header of CONNECTED; empty for none.
    server: str
