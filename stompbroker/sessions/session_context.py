"""What every session of a broker shares.

Law: one value, built once by the composition root and handed to each session, instead of a dozen constructor arguments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from stompbroker.changes import Journal
    from stompbroker.clock import Clock
    from stompbroker.delivery import Registry
    from stompbroker.log_throttle import LogThrottle
    from stompbroker.memory_budget import MemoryBudget
    from stompbroker.message_ids import MessageIds
    from stompbroker.sessions.outbox import FlushQueue
    from stompbroker.sessions.refusal_pace import RefusalPace
    from stompbroker.sessions.session_timers import SessionTimers
    from stompbroker.stomp import Limits

__all__ = ["SessionContext", "SessionSettings"]


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
@dataclass(frozen=True, slots=True, kw_only=True)
class SessionContext:
    registry: Registry
    journal: Journal
    budget: MemoryBudget
    flush_queue: FlushQueue
    clock: Clock
    rhythm: SessionTimers
    message_ids: MessageIds
    settings: SessionSettings
    refusal_pace: RefusalPace
    throttle: LogThrottle
    #: How the broker calls itself in CONNECTED; empty if it does not.
    server: str
