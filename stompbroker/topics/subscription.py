"""What somebody wants to receive, apart from who is connected for it just now.

Law: a subscription owns its readings (one per topic), its policy and its counters; a consumer attaches to it and does
the sending. Today it has at most one consumer and lives as long as it; durable subscriptions will outlive theirs.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from stompbroker.ids import ConnectionId
    from stompbroker.topics.consumer import Consumer
    from stompbroker.topics.destination import Pattern
    from stompbroker.topics.reading import Reading
    from stompbroker.topics.topic import Topic

__all__ = ["AckMode", "Counters", "Subscription"]


@final
class AckMode(Enum):
    AUTO = "auto"
    CLIENT = "client"
    INDIVIDUAL = "client-individual"


@final
class Counters:
    """Plain integers, written on the hot path once per run and read by whoever wants statistics."""

    __slots__ = ("acked", "delivered", "dropped", "late", "nacked", "redelivered")

    def __init__(self) -> None:
        #: Deliveries handed to the outbox, redeliveries included.
        self.delivered = 0
        self.redelivered = 0
        #: Settled by ACK, or by having been sent in `auto` mode.
        self.acked = 0
        self.nacked = 0
        #: Given up because the subscriber was too slow.
        self.dropped = 0
        #: Answers that came late: to a message that waited, had been sent again or was settled already.
        self.late = 0


@final
class Subscription:
    """
    Invariants:
        waiting == sum of the waiting offsets of all its readings
        readings[topic] is topic.readings[self] for every topic that knows of it
    """

    __slots__ = (
        "ack_mode",
        "connection_id",
        "consumer",
        "counters",
        "destination",
        "is_closed",
        "is_no_local",
        "name",
        "pattern",
        "readings",
        "waiting",
    )

    def __init__(
        self,
        *,
        name: str | None,
        destination: str,
        pattern: Pattern,
        ack_mode: AckMode,
        is_no_local: bool,
        connection_id: ConnectionId,
    ) -> None:
        #: The id its SUBSCRIBE gave it; in STOMP 1.0 there may be none.
        self.name = name
        #: As the subscriber spelt it.
        self.destination = destination
        self.pattern = pattern
        self.ack_mode = ack_mode
        #: Whether it does not get what its own connection publishes.
        self.is_no_local = is_no_local
        self.connection_id = connection_id
        self.readings: dict[Topic, Reading] = {}
        self.consumer: Consumer | None = None
        self.counters = Counters()
        #: Messages set aside, over all topics.
        self.waiting = 0
        self.is_closed = False

    @property
    def may_go_again(self) -> bool:
        """Whether what was sent to it must be kept until it is settled: in `auto` mode nothing goes again."""
        return self.ack_mode is not AckMode.AUTO
