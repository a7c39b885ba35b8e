"""What a batch consists of: units, and what has changed in memory since the last one.

Law: gives offsets, looks at cursors, and writes down rows; it completes nothing. Between forming a batch and its
completion no other is formed, so that the end of a stored topic's log is the offset its next message gets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from stompbroker.commitlog import Cursor
from stompbroker.ids import Offset
from stompbroker.storage import (
    Batch,
    CursorRow,
    Deletion,
    MessageRun,
    RedeliveryKey,
    RedeliveryRow,
    SubscriptionRow,
    TopicRow,
)
from stompbroker.topics import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stompbroker.message import Message
    from stompbroker.topics import Answer, Decision, Reading, Registry, Subscription, Topic, Unit

__all__ = ["Numbers", "add_collected", "add_units", "add_unsaved"]

#: Messages of one topic that are deleted in one batch: 5,000 take a few milliseconds.
MAX_DELETED: Final = 5_000
#: Fewer are left until there is nothing else to do.
MIN_DELETED: Final = 1_000


@final
class Numbers:
    """Gives every topic and durable subscription in the store a number of its own."""

    __slots__ = ("_next_subscription", "_next_topic")

    def __init__(self, *, next_topic: int = 1, next_subscription: int = 1) -> None:
        self._next_topic = next_topic
        self._next_subscription = next_subscription

    def topic(self) -> int:
        self._next_topic += 1
        return self._next_topic - 1

    def subscription(self) -> int:
        self._next_subscription += 1
        return self._next_subscription - 1


@final
class _Units:
    """The units of one batch, while they are being written down."""

    __slots__ = ("_batch", "_cursors", "_next_offsets", "_numbers", "_registry")

    def __init__(self, batch: Batch, registry: Registry, numbers: Numbers) -> None:
        self._batch = batch
        self._registry = registry
        self._numbers = numbers
        self._next_offsets: dict[Topic, Offset] = {}
        #: Where transactions of this batch leave the cursors they move.
        self._cursors: dict[Reading, Cursor] = {}

    def add(self, unit: Unit) -> None:
        if unit.created is not None:
            self._create(unit.created)
        if unit.removed is not None:
            self._remove(unit.removed)
        stored = []
        for topic, messages in unit.publications.items():
            if topic.is_stored:
                stored.append(topic)
                self._publish(topic, messages)
        unit.stored_topics = stored
        for decision in unit.decisions:
            subscription = decision.answer.consumer.subscription
            if subscription.is_durable and not subscription.is_closed:
                self._decide(decision)

    def finish(self) -> None:
        """Write down where all of it leaves topics and cursors."""
        for topic, next_offset in self._next_offsets.items():
            assert topic.store_id is not None
            self._batch.topics.append(TopicRow(topic.store_id, topic.name, next_offset))
        batch = self._batch
        for reading, cursor in self._cursors.items():
            batch.cursors.append(_cursor_row(reading, cursor))
        # Of several rows for one thing only the last is written.
        batch.cursors = list({(row.subscription_id, row.topic_id): row for row in batch.cursors}.values())
        batch.redeliveries = list({row[:3]: row for row in batch.redeliveries}.values())

    def _next_offset(self, topic: Topic) -> Offset:
        if topic not in self._next_offsets:
            if topic.store_id is None:
                topic.enter_store(self._numbers.topic())
            self._next_offsets[topic] = topic.log.end_offset
        return self._next_offsets[topic]

    def _publish(self, topic: Topic, messages: list[Message]) -> None:
        first = self._next_offset(topic)
        self._next_offsets[topic] = Offset(first + len(messages))
        assert topic.store_id is not None
        if all(message.origin.is_persistent for message in messages):
            self._batch.messages.append(MessageRun(topic.store_id, first, messages))
            return
        for offset, message in enumerate(messages, first):
            if message.origin.is_persistent:
                self._batch.messages.append(MessageRun(topic.store_id, Offset(offset), [message]))

    def _create(self, subscription: Subscription) -> None:
        """No cursor means that everything there is is unsettled: it needs one where something was stored before it."""
        row = _subscription_row(subscription)
        self._batch.subscriptions.append(row)
        for topic in self._registry.topics_matching(subscription.pattern):
            if topic.is_in_store or subscription.pattern.is_exact:
                position = self._next_offset(topic)
                assert topic.store_id is not None
                self._batch.cursors.append(CursorRow(row.id, topic.store_id, position, (), position))

    def _remove(self, subscription: Subscription) -> None:
        assert subscription.durability is not None
        removed = subscription.durability.store_id
        batch = self._batch
        batch.removed_subscriptions.append(removed)
        # It may have moved just before, or have been created by an earlier unit of this very batch.
        batch.subscriptions = [row for row in batch.subscriptions if row.id != removed]
        batch.cursors = [row for row in batch.cursors if row.subscription_id != removed]
        batch.redeliveries = [row for row in batch.redeliveries if row.subscription_id != removed]

    def _decide(self, decision: Decision) -> None:
        """An answer in a transaction: what it will change when the transaction is completed."""
        answer, parts = decision
        for reading, start, stop in parts:
            if reading.topic.store_id is None or reading.topic.is_removed:
                continue
            cursor = self._cursor(reading)
            if answer.verdict is Verdict.ACK:
                cursor.settle(start, stop)
                continue
            for offset in map(Offset, range(start, stop)):
                if not reading.cursor.is_settled(offset, offset + 1):
                    self._batch.redeliveries.append(_refused_row(reading, offset, answer))

    def _cursor(self, reading: Reading) -> Cursor:
        if reading not in self._cursors:
            cursor = reading.cursor
            self._cursors[reading] = Cursor.restored(cursor.ack_floor, cursor.settled_ranges, cursor.next_offset)
        return self._cursors[reading]


def add_units(batch: Batch, units: Iterable[Unit], registry: Registry, numbers: Numbers) -> None:
    forming = _Units(batch, registry, numbers)
    for unit in units:
        forming.add(unit)
    forming.finish()


def add_unsaved(batch: Batch, registry: Registry) -> None:
    """Cursors that have moved, failures that came or went, subscriptions that were seen, topics that are gone.

    Must come before the units: a transaction's cursor is the later word.
    """
    readings, subscriptions, removed_topics = registry.unsaved.take()
    batch.removed_topics += removed_topics
    for subscription in subscriptions:
        if not subscription.is_closed and subscription.has_begun:
            batch.subscriptions.append(_subscription_row(subscription))
    for reading in readings:
        if reading.topic.is_removed or reading.topic.store_id is None or reading.subscription.is_closed:
            continue
        batch.cursors.append(_cursor_row(reading, reading.cursor))
        for offset in reading.changed_failures:
            key = _redelivery_key(reading, offset)
            failure = reading.failures.get(offset)
            if failure is None:
                batch.settled_redeliveries.append(key)
            else:
                batch.redeliveries.append(RedeliveryRow(*key, failure.count, failure.due_ns, failure.reason))
        reading.changed_failures.clear()


def add_collected(batch: Batch, registry: Registry, *, is_idle: bool) -> None:
    """What every subscription has settled goes; the cursors that allow it are in this batch, or were in one before."""
    for topic in list(registry.unsaved.collectable):
        floor = topic.settled_floor
        if topic.store_id is None or topic.collected_up_to >= floor:
            del registry.unsaved.collectable[topic]
        elif is_idle or floor - topic.collected_up_to >= MIN_DELETED:
            stop = Offset(min(floor, topic.collected_up_to + MAX_DELETED))
            batch.deletions.append(Deletion(topic.store_id, topic.collected_up_to, stop))
            topic.collected_up_to = stop


def _subscription_row(subscription: Subscription) -> SubscriptionRow:
    durability = subscription.durability
    assert durability is not None
    identity = durability.identity
    return SubscriptionRow(
        id=durability.store_id,
        owner=identity.owner,
        kind=identity.kind.value,
        scope=identity.scope,
        name=identity.name,
        destination=subscription.destination,
        pattern=subscription.pattern.name,
        ack_mode=subscription.ack_mode.value,
        is_no_local=subscription.is_no_local,
        created_at_ns=durability.created_at_ns,
        last_seen_at_ns=durability.last_seen_at_ns,
    )


def _redelivery_key(reading: Reading, offset: Offset) -> RedeliveryKey:
    durability, topic_id = reading.subscription.durability, reading.topic.store_id
    assert durability is not None
    assert topic_id is not None
    return RedeliveryKey(durability.store_id, topic_id, offset)


def _cursor_row(reading: Reading, cursor: Cursor) -> CursorRow:
    subscription_id, topic_id, _ = _redelivery_key(reading, cursor.ack_floor)
    return CursorRow(subscription_id, topic_id, cursor.ack_floor, tuple(cursor.settled_ranges), cursor.next_offset)


def _refused_row(reading: Reading, offset: Offset, answer: Answer) -> RedeliveryRow:
    failure = reading.failures.get(offset)
    attempts = 1 if failure is None else failure.count + 1
    return RedeliveryRow(*_redelivery_key(reading, offset), attempts, answer.due_ns, answer.reason)
