"""What publishers and subscribers saw, in order.

Records only; `verdict` judges them. A publication is one SEND: a message sent again after a lost connection is another
*copy*, so that a publisher's repeats are not mistaken for the broker's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Publication(NamedTuple):
    """One SEND."""

    publisher: int
    #: From 1 in sending order, without gaps.
    number: int
    #: From 1; higher if the publisher had no receipt and sent the message again.
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
    """Of one subscriber, or of all members of a group together."""

    subscriber: str
    #: Publishers whose messages its subscription matches.
    publishers: frozenset[int]
    #: False for a group, whose members receive at the same time.
    is_ordered: bool = True
    events: list[Delivered | AckConfirmed] = field(default_factory=list)
