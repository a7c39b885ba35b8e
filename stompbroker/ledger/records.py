"""What becomes a record of the ledger: how deliveries ended, and how far behind subscriptions are. Values only."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stompbroker.message import Message


@final
class Outcome(Enum):
    """How a delivery can end, in the words of counters, ledger and report."""

    ACKED = "acked"
    #: In `auto` mode: handed to the kernel.
    SENT = "sent"
    #: Its attempts were used up, and it is a dead letter.
    DEAD = "dead"
    #: Its attempts were used up, and its policy wants no dead letter.
    DISCARDED = "discarded"
    EXPIRED = "expired"
    #: The subscription was deleted because a message could not be delivered to it, or because nobody came for it.
    EVICTED = "evicted"
    #: The subscriber was too slow for what only memory holds.
    DROPPED = "dropped"
    #: The subscription was deleted by its subscriber or by an operator, or ended with its connection.
    UNSUBSCRIBED = "unsubscribed"
    #: Passed over by an operator: the subscription was moved, or the topic purged.
    SKIPPED = "skipped"


class Settled(NamedTuple):
    """A run of messages that were settled for one subscription at one time and in one way."""

    outcome: Outcome
    #: The offset of the first of them.
    first: int
    #: How many they are, and what they are; empty if that is not known any more.
    length: int
    messages: Sequence[Message]
    settled_at_ns: int
    #: When they were sent first, and last; 0: never.
    first_sent_ns: int = 0
    last_sent_ns: int = 0
    #: How often each was sent, and how often it was refused; and why it last failed.
    attempts: int = 0
    nacks: int = 0
    reason: str = ""
    #: How many deliveries each of them stands for.
    weight: int = 1
    #: Of a group or queue: who had them, as `Consumer.member`; None if nobody did, or that is not known any more. Last,
    #: with a default: drafts of older releases, and of what is not shared, do not have it.
    member: str | None = None


class Party(NamedTuple):
    """A subscription in a topic. The fields are columns of the lake."""

    topic: str
    #: How people name the subscription.
    subscription: str
    client_id: str | None
    subscription_name: str
    is_durable: bool
    ack_mode: str
    #: How often the subscription was moved to another place in the topic.
    generation: int
    #: Of the topic: topic or queue. Last, with a default: drafts of older releases do not have it.
    kind: str = "topic"


class Account(NamedTuple):
    """What one subscription has settled in one topic."""

    party: Party
    settled: list[Settled]


class Behind(NamedTuple):
    """What one durable subscription has not settled of one topic."""

    topic: str
    subscription: str
    client_id: str | None
    subscription_name: str
    lag_messages: int
    #: When the oldest of them was published; None if there is none, or that is not known.
    oldest_published_ns: int | None
    in_flight: int
    waiting: int
    #: What the store keeps for it; None if that is not known.
    pinned_bytes: int | None
    #: Of the topic: topic or queue.
    kind: str
