"""What a batch consists of: units, and what has changed in memory since the last one.

Law: gives offsets, looks at cursors, and writes down rows; it completes nothing. Between forming a batch and its
completion no other is formed, so that the end of a stored topic's log is the offset its next message gets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias, final

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
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from stompbroker.message import Message
    from stompbroker.topics import Answer, Decision, Pattern, Reading, Registry, Subscription, Topic, Unit

__all__ = ["Numbers", "Positions", "add_collected", "add_units", "add_unsaved", "find_positions"]

#: The cursors of new subscriptions, found before their units are written down.
Positions: TypeAlias = "Mapping[Subscription, Sequence[CursorRow]]"

#: Messages of one topic that are deleted in one batch: 5,000 take a few milliseconds.
MAX_DELETED: Final = 5_000
#: Fewer are left until there is nothing else to do.
MIN_DELETED: Final = 1_000
#: Things looked at between two moments at which others may run; each takes a few microseconds.
STEP: Final = 100


@final
class Numbers:
    """Gives every topic and durable subscription a number that no other ever had in this store: the upper half says at
    which start of it, the lower half counts."""

    __slots__ = ("_last",)

    def __init__(self, start_number: int) -> None:
        self._last = start_number << 32

    def take(self) -> int:
        self._last += 1
        return self._last


@final
class _Units:
    """The units of one batch, while they are being written down."""

    __slots__ = ("_batch", "_cursors", "_next_offsets", "_numbers", "_positions", "_registry")

    def __init__(self, batch: Batch, positions: Positions, registry: Registry, numbers: Numbers) -> None:
        self._batch = batch
        self._registry = registry
        self._positions = positions
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
        """Write down where all of it leaves topics and cursors. Of several rows for one thing the last counts."""
        for topic, next_offset in self._next_offsets.items():
            assert topic.store_id is not None
            self._batch.topics.append(TopicRow(topic.store_id, topic.name, next_offset))
        batch = self._batch
        rows = [_cursor_row(reading, cursor) for reading, cursor in self._cursors.items()]
        batch.cursors += [row for row in rows if row.subscription_id not in batch.removed_subscriptions]

    def _next_offset(self, topic: Topic) -> Offset:
        if topic not in self._next_offsets:
            if topic.store_id is None:
                topic.enter_store(self._numbers.take())
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
        """No cursor means that everything there is is unsettled: it needs one where something was stored before it, in
        earlier batches or by earlier units of this one."""
        row = _subscription_row(subscription)
        self._batch.subscriptions.append(row)
        self._batch.cursors += self._positions.get(subscription, ())
        for topic in self._topics_named_by(subscription.pattern):
            position = self._next_offset(topic)
            assert topic.store_id is not None
            self._batch.cursors.append(CursorRow(row.id, topic.store_id, position, (), position))

    def _topics_named_by(self, pattern: Pattern) -> list[Topic]:
        """The very topic that is meant; or of those that are, the ones this batch publishes to."""
        if pattern.is_exact:
            return self._registry.topics_matching(pattern)
        return [topic for topic in self._next_offsets if pattern.matches(topic.segments)]

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
                failed = [offset for offset in reading.failures if start <= offset < stop]
                self._batch.settled_redeliveries += [_redelivery_key(reading, offset) for offset in failed]
                continue
            for offset in map(Offset, range(start, stop)):
                if not reading.cursor.is_settled(offset, offset + 1):
                    self._batch.redeliveries.append(_refused_row(reading, offset, answer))

    def _cursor(self, reading: Reading) -> Cursor:
        if reading not in self._cursors:
            cursor = reading.cursor
            self._cursors[reading] = Cursor.restored(cursor.ack_floor, cursor.settled_ranges, cursor.next_offset)
        return self._cursors[reading]


def find_positions(subscription: Subscription, registry: Registry, rows: list[CursorRow]) -> Iterator[None]:
    """Where a new subscription stands in topics that hold stored messages. In short steps: until the batch is completed
    their logs end where they do now."""
    subscription_id = _subscription_row(subscription).id
    for number, topic in enumerate(list(registry.topics.values())):
        if number % STEP == STEP - 1:
            yield
        end = topic.log.end_offset
        holds_messages = topic.store_id is not None and topic.collected_up_to < end
        if holds_messages and not topic.is_removed and subscription.pattern.matches(topic.segments):
            assert topic.store_id is not None
            rows.append(CursorRow(subscription_id, topic.store_id, end, (), end))


def add_units(batch: Batch, units: Iterable[Unit], positions: Positions, registry: Registry, numbers: Numbers) -> None:
    forming = _Units(batch, positions, registry, numbers)
    for unit in units:
        forming.add(unit)
    forming.finish()


def add_unsaved(batch: Batch, registry: Registry) -> Iterator[None]:
    """Cursors that have moved, failures that came or went, subscriptions that were seen, topics that are gone.

    In short steps: a cursor that moves between two of them is unsaved again. Must come before the units: a
    transaction's cursor is the later word.
    """
    readings, subscriptions, removed_topics = registry.unsaved.take()
    batch.removed_topics += removed_topics
    for subscription in subscriptions:
        if not subscription.is_closed and subscription.has_begun:
            batch.subscriptions.append(_subscription_row(subscription))
    for number, reading in enumerate(readings):
        if number % STEP == STEP - 1:
            yield
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


def add_collected(batch: Batch, registry: Registry, *, is_idle: bool) -> Iterator[None]:
    """What every subscription has settled goes; the cursors that allow it are in this batch, or were in one before, or
    will be in the next, and then one more delivery is spared. In short steps."""
    for number, topic in enumerate(list(registry.unsaved.collectable)):
        if number % STEP == STEP - 1:
            yield
        if topic not in registry.unsaved.collectable:
            continue  # it was removed between two steps
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
