"""What every session of a broker shares.

Law: one value, built once by the composition root and handed to each session, instead of a dozen constructor arguments.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from stompbroker.clock import Clock
    from stompbroker.ids import ConnectionId
    from stompbroker.memory_budget import MemoryBudget
    from stompbroker.sessions.rhythm import Rhythm
    from stompbroker.stomp import Limits
    from stompbroker.topics import Journal, Registry

__all__ = ["MessageIds", "SessionSettings", "Surroundings"]

#: Bytes of randomness in a store's name, written in hexadecimal.
STORE_ID_BYTES: Final = 4


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """What the operator decided about single connections."""

    limits: Limits
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
    #: How long a refused message waits before it goes again.
    nack_delay_ns: int
    transaction_timeout_ns: int
    #: Bytes of frames kept for a connection that is held back, before it is no longer read.
    parking_bytes: int
    #: How long a held-back connection with deliveries in flight may keep its parking full.
    block_timeout_ns: int


@final
class MessageIds:
    """Makes message ids: which store, which start of it, and a running number; unique for all time."""

    __slots__ = ("_start_number", "_store_id", "next_number", "prefix")

    def __init__(self, store_id: str, start_number: int) -> None:
        self._store_id = store_id
        self._start_number = start_number
        self.prefix = f"{store_id}-{start_number}-".encode()
        #: Advanced by the sessions' hot loop, which makes the ids itself.
        self.next_number = 1

    @classmethod
    def for_memory(cls) -> MessageIds:
        """For a broker without a store: every start is its first, and makes up a name."""
        return cls(secrets.token_hex(STORE_ID_BYTES), 1)

    def connection_name(self, connection_id: ConnectionId) -> str:
        """What a connection is called that has no client id: like no other, for all time."""
        return f"{self.prefix.decode()}{connection_id}"

    def was_made(self, message_id: str) -> bool:
        """Whether a broker has given that id to a message: this one since it started, or an earlier one on this
        store."""
        store_id, _, rest = message_id.partition("-")
        start, _, number = rest.partition("-")
        if store_id != self._store_id or not all(_is_number(text) for text in (start, number)):
            return False
        if int(start) == self._start_number:
            return int(number) < self.next_number
        return int(start) < self._start_number


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20 and not text.startswith("0")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    registry: Registry
    journal: Journal
    budget: MemoryBudget
    clock: Clock
    rhythm: Rhythm
    message_ids: MessageIds
    settings: SessionSettings
    #: How the broker calls itself in CONNECTED.
    server: str
