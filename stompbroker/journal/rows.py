"""From what is in memory to rows of a batch, which changes nothing, and at start from rows back to memory.

Messages stay in the store at a start: readings ask for pages.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Final

from stompbroker.commitlog import Cursor, OffsetRanges
from stompbroker.delivery import (
    AckMode,
    DeliveryWishes,
    Durability,
    Failure,
    Identity,
    IdentityKind,
    Pattern,
    Replay,
    Subscription,
    account_of,
    answering,
    key_of,
)
from stompbroker.errors import OperatorError
from stompbroker.ledger import Kind, Payload, day_of
from stompbroker.ledger.drafts import draft
from stompbroker.ledger.records import Account
from stompbroker.message import Message, Origin
from stompbroker.storage import (
    CursorRow,
    Gap,
    LastValueRow,
    LedgerRow,
    ProducerRow,
    RedeliveryKey,
    RedeliveryRow,
    SubscriptionRow,
    TopicRow,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from stompbroker.changes import Producer, Producers
    from stompbroker.delivery import Reading, Registry, Topic
    from stompbroker.ids import Offset
    from stompbroker.ledger.records import Outcome
    from stompbroker.storage import Batch, Kept

#: `last_seen_at_ns` while a client is attached, later than every time: a killed broker has seen it until the end.
ATTACHED: Final = 1 << 62
#: Kept beside the wishes of a subscription, if they are true.
_SHARING: Final = ("is_shared", "is_exclusive")


def subscription_row(subscription: Subscription) -> SubscriptionRow:
    durability = subscription.durability
    assert durability is not None
    identity = durability.identity
    wishes = subscription.wishes.as_plain()
    if subscription.starts_at is not None:
        wishes["starts_at"] = list(subscription.starts_at)
    wishes |= {name: True for name in _SHARING if getattr(subscription, name)}
    return SubscriptionRow(
        id=durability.store_id,
        owner=identity.owner,
        kind=identity.kind.value,
        scope=identity.scope,
        name=identity.name,
        destination=subscription.destination,
        pattern=subscription.pattern.key,
        ack_mode=subscription.ack_mode.value,
        is_no_local=subscription.is_no_local,
        created_at_ns=durability.created_at_ns,
        last_seen_at_ns=ATTACHED if subscription.consumers else durability.last_seen_at_ns,
        is_ordered=subscription.is_ordered,
        delivery=json.dumps(wishes, sort_keys=True) if wishes else "",
    )


def add_topic(batch: Batch, topic: Topic, topic_id: int, next_offset: Offset) -> None:
    """`next_offset` is the end of its log, or behind that if the batch publishes."""
    end = topic.log.end_offset
    if topic.store_id is None:
        whole_from = end
    else:
        whole_from = max(topic.whole_from, topic.collected_up_to)
        if max(topic.stored_end, whole_from) < end:  # it was not stored for a while
            batch.gaps.append(Gap(topic_id, end, topic.stored_end))
    batch.topics.append(TopicRow(topic_id, topic.destination.kind.value, topic.name, next_offset, whole_from))


def redelivery_key(reading: Reading, offset: Offset) -> RedeliveryKey:
    durability, topic_id = reading.subscription.durability, reading.topic.store_id
    assert durability is not None
    assert topic_id is not None
    return RedeliveryKey(durability.store_id, topic_id, offset)


def cursor_row(reading: Reading, cursor: Cursor) -> CursorRow:
    subscription_id, topic_id, _ = redelivery_key(reading, cursor.ack_floor)
    above = *cursor.settled_ranges, *((stop, start) for start, stop in cursor.held_up_ranges)
    return CursorRow(
        subscription_id, topic_id, cursor.ack_floor, above, cursor.next_offset, generation=reading.generation
    )


def restored_cursor(row: CursorRow) -> Cursor:
    settled = ((start, stop) for start, stop in row.settled if start < stop)
    held_up = ((start, stop) for stop, start in row.settled if start < stop)
    return Cursor.restored(row.ack_floor, settled, row.sent_up_to, held_up)


def producer_row(producer: Producer, taking: OffsetRanges) -> ProducerRow:
    """With what a batch takes."""
    taken = OffsetRanges()
    for start, stop in (*producer.taken, *taking):
        taken.add(start, stop)
    return ProducerRow(producer.owner, producer.name, producer.epoch, tuple(taken), producer.used_at_ns)


def last_value_row(destination: Pattern, message: Message) -> LastValueRow:
    origin = message.origin
    return LastValueRow(
        destination.name,
        message.published_at_ns,
        origin.publisher,
        message.body_bytes,
        message.expires_at_ns,
        message.tail,
    )


def redelivery_row(key: RedeliveryKey, failure: Failure) -> RedeliveryRow:
    # By position, which takes a third less time (0.6 against 0.9 µs): somebody may refuse thousands a second.
    return RedeliveryRow(
        *key,
        failure.count,
        failure.due_ns,
        failure.reason,
        failure.first_attempt_ns,
        failure.last_attempt_ns,
        failure.is_final,
        failure.nacks,
    )


def accounts_of_removed(subscription: Subscription, outcome: Outcome, now_ns: int) -> list[Account]:
    """What a subscription that is being removed has not settled, and no other unit will. None of that changes while it
    is leaving."""
    return [
        Account(reading.party, settled)
        for reading in subscription.readings.values()
        if reading.is_recorded and not reading.is_idle
        if (settled := account_of(reading, reading.meant(reading.unclaimed_ranges()), outcome, now_ns, 0))
    ]


def ledger_rows(accounts: list[Account], now_ns: int, next_id: Callable[[], int]) -> list[LedgerRow]:
    """One for each day on which something was settled."""
    by_day: dict[int, list[Account]] = {}
    for party, settled in accounts:
        for one in settled:
            of_day = by_day.setdefault(day_of(one.settled_at_ns), [])
            if not of_day or of_day[-1].party is not party:
                of_day.append(Account(party, []))
            of_day[-1].settled.append(one)
    return [
        LedgerRow(
            next_id(),
            Kind.DELIVERIES.value,
            day,
            sum(len(one.messages) or 1 for account in of_day for one in account.settled),
            now_ns,
            Payload(partial(draft, of_day)),
        )
        for day, of_day in by_day.items()
    ]


# At start ------------------------------------------------------------------------------------------------------------


def restore(kept: Kept, registry: Registry, now_ns: int) -> None:
    """Rebuild topics, subscriptions and cursors, before anybody is served."""
    subscriptions = {row.id: _subscription(row, now_ns) for row in kept.subscriptions}
    for subscription in subscriptions.values():
        registry.add_durable(subscription)
    cursors = {(row.subscription_id, row.topic_id): row for row in kept.cursors}
    topics: dict[int, Topic] = {}
    for row, first_stored in kept.topics:
        whole_from = row.next_offset if row.whole_from is None else row.whole_from
        # From `whole_from` on nothing may be missing: if the first messages there are lost, readings must notice.
        start = whole_from if first_stored is None else min(first_stored, whole_from)
        name = Pattern.keyed(key_of(row.kind, row.name))
        topic = registry.restore_topic(name, row.id, start, row.next_offset, now_ns, whole_from=whole_from)
        topics[row.id] = topic
        for subscription in registry.durable_patterns.match(topic.destination):
            assert subscription.durability is not None
            cursor = cursors.get((subscription.durability.store_id, row.id))
            if cursor is None:  # every message that exists is unsettled
                topic.add_reading(subscription, Cursor(start))
            else:
                reading = topic.add_reading(subscription, restored_cursor(cursor))
                reading.generation = cursor.generation
                reading.change_order()
    for subscription in subscriptions.values():
        registry.begin(subscription, now_ns)
    for value in kept.last_values:
        _restore_value(value, registry)
    for failed in kept.redeliveries:
        _restore_failure(failed, kept, subscriptions, topics, registry)


def _restore_value(row: LastValueRow, registry: Registry) -> None:
    is_plain = row.tail.find(b"\\r", 0, -1 - row.body_bytes) < 0
    origin = Origin(row.publisher, is_plain=is_plain, expires_at_ns=row.expires_at_ns)
    registry.last_values.set(
        Pattern.keyed(row.name), Message(row.body_bytes, bytes(row.tail), origin, row.published_at_ns)
    )


def restore_producers(kept: Kept, producers: Producers) -> None:
    for row in kept.producers:
        producers.restore(row.owner, row.name, epoch=row.epoch, taken=row.taken, used_at_ns=row.used_at_ns)


def _subscription(row: SubscriptionRow, now_ns: int) -> Subscription:
    wishes = json.loads(row.delivery or "{}")
    starts_at = wishes.pop("starts_at", None)
    sharing = {name: wishes.pop(name, False) for name in _SHARING}
    subscription = Subscription(
        name=row.name,
        destination=row.destination,
        pattern=Pattern.keyed(row.pattern),
        ack_mode=AckMode(row.ack_mode),
        is_no_local=row.is_no_local,
        is_ordered=row.is_ordered,
        wishes=DeliveryWishes.from_plain(wishes),
        **sharing,
        durability=Durability(
            Identity(row.owner, IdentityKind(row.kind), row.scope, row.name),
            row.id,
            created_at_ns=row.created_at_ns,
            last_seen_at_ns=now_ns if row.last_seen_at_ns >= ATTACHED else row.last_seen_at_ns,
        ),
    )
    subscription.starts_at = None if starts_at is None else Replay(*starts_at)
    return subscription


def _restore_failure(
    row: RedeliveryRow,
    kept: Kept,
    subscriptions: dict[int, Subscription],
    topics: dict[int, Topic],
    registry: Registry,
) -> None:
    subscription, topic = subscriptions.get(row.subscription_id), topics.get(row.topic_id)
    if subscription is None or topic is None or topic not in subscription.readings:
        raise OperatorError(
            f"The store is damaged: a message of topic {row.topic_id} has failed for subscription "
            f"{row.subscription_id}, and one of them is not there. Restore it from one backup, as a whole."
        )
    reading = subscription.readings[topic]
    failure = Failure(
        row.attempts,
        row.due_at_ns,
        row.reason,
        first_attempt_ns=row.first_attempt_at_ns,
        last_attempt_ns=row.last_attempt_at_ns,
        is_final=row.is_final,
        nacks=row.nacks,
        is_stored=True,
    )
    key = kept.failed_keys.get((row.topic_id, row.offset))
    if not answering.restore_failure(reading, row.offset, failure, key):
        # Its message is settled by now: have the row deleted.
        reading.changed_failures[row.offset] = None
        registry.unsaved.note_reading(reading, 1)
