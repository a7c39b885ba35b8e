"""What became of deliveries, on its way from topics to `ledger/drafts.py`. Values only."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stompbroker.ledger.outcome import Outcome
    from stompbroker.message import Message


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


class Party(NamedTuple):
    """A subscription in a topic."""

    topic: str
    #: How people name the subscription.
    subscription: str
    client_id: str | None
    name: str
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
