"""What all sessions of a broker share.

Law: one value, built once by the composition root and handed to each session, instead of a dozen constructor arguments.
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

__all__ = ["RefusalPace", "SessionContext", "SessionSettings"]

#: NACKs a second, over all connections, while other clients wait for the store. With all that follows one takes about
#: 31 µs: this is an eighth of the time.
REFUSALS_PER_S: Final = 4_000
#: The longest rest, however many are refused: the client must not miss its heart-beats.
MAX_REST_NS: Final = NANOSECONDS // 2


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """What the operator decided about single connections."""

    limits: Limits
    #: What is sent behind the NUL of every frame.
    after_frame: bytes
    heart_beat_send_ms: int
    heart_beat_want_ms: int
    #: A client is given up when it was silent this many times the agreed interval.
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
class RefusalPace:
    """How fast messages may be refused while another client waits for the store.

    A refused message comes again: a client that refuses everything makes the broker do each time what a message costs,
    and nobody gains by it. Beside others all such clients together are read no faster than REFUSALS_PER_S.
    """

    __slots__ = ("_free_at_ns",)

    def __init__(self) -> None:
        #: When the time for all refusals so far has passed.
        self._free_at_ns = 0

    def rest_ns(self, refusals: int, now_ns: int) -> int:
        """How long the client that has just refused so many is not to be read."""
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
    #: How the broker calls itself in CONNECTED; empty if it does not.
    server: str
