"""Judges histories: which promises were broken.

Pure functions. The promises, for every subscriber whose subscription is older than the first message:
    every message with a receipt was delivered at least once;
    the first deliveries of a publisher's messages are in the publisher's order;
    nothing was delivered after the receipt for its ACK;
    one SEND is one message: it has one id, for everybody and for ever;
    a transaction was delivered completely or not at all;
    nothing was delivered that was not sent.
Redeliveries before the ACK is confirmed break no promise. Copies of a message that its publisher sent again are
separate messages.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from soak.history import Delivered, Publication

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from soak.history import PublisherHistory, SubscriberHistory


class Fault(Enum):
    LOST = "has a receipt and was never delivered"
    DISORDERED = "was first delivered after a later message of the same publisher"
    RESURRECTED = "came again after its ACK was confirmed"
    DOUBLED = "came under two message ids"
    TORN = "was delivered though other parts of its transaction were not"
    INVENTED = "was delivered and never sent"
    # In groups and queues; `Holdings` finds these.
    UNSETTLED = "has a receipt and nobody has acknowledged it"
    SETTLED_TWICE = "had its ACK confirmed twice"
    HELD_TWICE = "was in flight to two members at once"
    UNMARKED = "came again without redelivered:true"
    OVERTOOK = "was delivered before the one before it with the same key was acknowledged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    fault: Fault
    subscriber: str
    publisher: int
    number: int

    def __str__(self) -> str:
        message = f"message {self.number} of publisher {self.publisher}"
        return f"{self.fault.name}: {message} {self.fault.value} ({self.subscriber})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """How much there was to judge."""

    receipted: int
    deliveries: int
    confirmed_acks: int
    #: Messages that publishers sent again because they had no receipt.
    sent_again: int
    #: Deliveries of messages that the same subscriber had got before.
    delivered_again: int


def findings(publishers: Sequence[PublisherHistory], subscribers: Sequence[SubscriberHistory]) -> list[Finding]:
    by_number = {history.publisher: history for history in publishers}
    message_ids: dict[Publication, str] = {}
    found: list[Finding] = []
    for subscriber in subscribers:
        found += _lost(by_number, subscriber)
        found += _disordered(subscriber) if subscriber.is_ordered else ()
        found += _resurrected(subscriber)
        found += _torn(by_number, subscriber)
        found += _invented(by_number, subscriber)
        found += _doubled(message_ids, subscriber)
    return found


def tally(publishers: Sequence[PublisherHistory], subscribers: Sequence[SubscriberHistory]) -> Tally:
    deliveries = [Counter(delivery.publication for delivery in _deliveries(each)) for each in subscribers]
    return Tally(
        receipted=sum(len(each.receipted) for each in publishers),
        deliveries=sum(each.total() for each in deliveries),
        confirmed_acks=sum(len(each.events) for each in subscribers) - sum(each.total() for each in deliveries),
        sent_again=sum(sum(each.copies) - len(each.copies) for each in publishers),
        delivered_again=sum(each.total() - len(each) for each in deliveries),
    )


def _deliveries(subscriber: SubscriberHistory) -> Iterator[Delivered]:
    return (event for event in subscriber.events if isinstance(event, Delivered))


def _finding(fault: Fault, subscriber: SubscriberHistory, publisher: int, number: int) -> Finding:
    return Finding(fault=fault, subscriber=subscriber.subscriber, publisher=publisher, number=number)


def _lost(publishers: Mapping[int, PublisherHistory], subscriber: SubscriberHistory) -> Iterator[Finding]:
    delivered = {(each.publication.publisher, each.publication.number) for each in _deliveries(subscriber)}
    for publisher in sorted(subscriber.publishers):
        for number in sorted(publishers[publisher].receipted):
            if (publisher, number) not in delivered:
                yield _finding(Fault.LOST, subscriber, publisher, number)


def _disordered(subscriber: SubscriberHistory) -> Iterator[Finding]:
    seen: set[tuple[int, int]] = set()
    newest: dict[int, int] = {}
    for delivery in _deliveries(subscriber):
        publisher, number, _copy = delivery.publication
        if (publisher, number) in seen:
            continue
        seen.add((publisher, number))
        if number < newest.get(publisher, 0):
            yield _finding(Fault.DISORDERED, subscriber, publisher, number)
        newest[publisher] = max(number, newest.get(publisher, 0))


def _resurrected(subscriber: SubscriberHistory) -> Iterator[Finding]:
    confirmed: set[Publication] = set()
    for event in subscriber.events:
        if not isinstance(event, Delivered):
            confirmed.add(event.publication)
        elif event.publication in confirmed:
            yield _finding(Fault.RESURRECTED, subscriber, event.publication.publisher, event.publication.number)


def _torn(publishers: Mapping[int, PublisherHistory], subscriber: SubscriberHistory) -> Iterator[Finding]:
    delivered = {each.publication for each in _deliveries(subscriber)}
    for publisher in sorted(subscriber.publishers):
        for transaction in publishers[publisher].transactions:
            there = [part for part in transaction if part in delivered]
            if there and len(there) < len(transaction):
                yield _finding(Fault.TORN, subscriber, publisher, there[0].number)


def _invented(publishers: Mapping[int, PublisherHistory], subscriber: SubscriberHistory) -> Iterator[Finding]:
    for delivery in _deliveries(subscriber):
        publisher, number, copy = delivery.publication
        copies = publishers[publisher].copies if publisher in subscriber.publishers else []
        if not 1 <= number <= len(copies) or not 1 <= copy <= copies[number - 1]:
            yield _finding(Fault.INVENTED, subscriber, publisher, number)


def _doubled(message_ids: dict[Publication, str], subscriber: SubscriberHistory) -> Iterator[Finding]:
    """`message_ids` holds the ids that others saw, and is added to."""
    for publication, message_id in _deliveries(subscriber):
        if message_ids.setdefault(publication, message_id) != message_id:
            yield _finding(Fault.DOUBLED, subscriber, publication.publisher, publication.number)
