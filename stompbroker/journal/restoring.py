"""Rebuilds topics, subscriptions and cursors from what the store has kept.

Law: runs once, before anybody is served. Messages stay in the store: readings ask for pages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stompbroker.commitlog import Cursor
from stompbroker.delivery import (
    AckMode,
    Durability,
    Failure,
    Identity,
    IdentityKind,
    Pattern,
    Subscription,
    key_of,
    redelivery,
)
from stompbroker.errors import OperatorError
from stompbroker.journal.rows import ATTACHED, read_wishes

if TYPE_CHECKING:
    from stompbroker.delivery import Registry, Topic
    from stompbroker.ids import Offset
    from stompbroker.storage import CursorRow, Kept, RedeliveryRow, SubscriptionRow


def restore(kept: Kept, registry: Registry, now_ns: int) -> None:
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
        for subscription in registry.durable_for(topic):
            assert subscription.durability is not None
            cursor = cursors.get((subscription.durability.store_id, row.id))
            reading = topic.add_reading(subscription, _cursor(cursor, start))
            if cursor is not None:
                reading.generation = cursor.generation
    for subscription in subscriptions.values():
        registry.begin(subscription, now_ns)
    for failed in kept.redeliveries:
        _restore_failure(failed, subscriptions, topics, registry)


def _subscription(row: SubscriptionRow, now_ns: int) -> Subscription:
    wishes, starts_at = read_wishes(row.delivery)
    subscription = Subscription(
        name=row.name,
        destination=row.destination,
        pattern=Pattern.keyed(row.pattern),
        ack_mode=AckMode(row.ack_mode),
        is_no_local=row.is_no_local,
        is_ordered=row.is_ordered,
        wishes=wishes,
        durability=Durability(
            Identity(row.owner, IdentityKind(row.kind), row.scope, row.name),
            row.id,
            created_at_ns=row.created_at_ns,
            last_seen_at_ns=now_ns if row.last_seen_at_ns >= ATTACHED else row.last_seen_at_ns,
        ),
    )
    subscription.starts_at = starts_at
    return subscription


def _cursor(row: CursorRow | None, first_stored: Offset) -> Cursor:
    """Without a row every message that exists is unsettled."""
    if row is None:
        return Cursor(first_stored)
    return Cursor.restored(row.ack_floor, row.settled, row.sent_up_to)


def _restore_failure(
    row: RedeliveryRow, subscriptions: dict[int, Subscription], topics: dict[int, Topic], registry: Registry
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
    )
    if not redelivery.restore_failure(reading, row.offset, failure):
        # Its message is settled by now: have the row deleted.
        reading.changed_failures[row.offset] = None
        registry.unsaved.note_reading(reading, 1)
