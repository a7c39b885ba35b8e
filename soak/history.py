"""What publishers and subscribers have seen, in the order in which they saw it.

Law: records only; `verdict` judges. A publication is one SEND: the same message sent again after a lost connection is
another *copy*, so that what a publisher repeats is never mistaken for what the broker repeats.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Publication(NamedTuple):
    """One SEND."""

    publisher: int
    #: From 1, without gaps, in the order of sending.
    number: int
    #: From 1; more when the publisher had no receipt and sent the message again.
    copy: int


class Delivered(NamedTuple):
    """A MESSAGE was received."""

    publication: Publication
    message_id: str


class AckConfirmed(NamedTuple):
    """A RECEIPT for the ACK of this publication was received."""

    publication: Publication


@dataclass(slots=True, kw_only=True)
class PublisherHistory:
    """Invariants: message n was sent copies[n - 1] times, each at least once; receipted numbers are among them."""

    publisher: int
    copies: list[int] = field(default_factory=list)
    #: Numbers of messages of which at least one copy has its receipt.
    receipted: set[int] = field(default_factory=set)
    #: What was sent between BEGIN and COMMIT.
    transactions: list[tuple[Publication, ...]] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class SubscriberHistory:
    subscriber: str
    #: Whose messages its subscription includes.
    publishers: frozenset[int]
    events: list[Delivered | AckConfirmed] = field(default_factory=list)
