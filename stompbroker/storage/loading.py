"""What a start reads.

Law: topics, subscriptions, cursors and redeliveries, all of them; of the messages only the first offset of each topic,
by the index, and of the ledger how much there is. So a start does not take longer because there is more to deliver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import BigInteger, and_, cast, func, select

from stompbroker.errors import OperatorError
from stompbroker.storage import settled_ranges
from stompbroker.storage.batch import CursorRow, ExportRow, Gathered, Kept, RedeliveryRow, SubscriptionRow, TopicRow
from stompbroker.storage.schema import (
    cursors,
    ledger_batches,
    ledger_exports,
    messages,
    redeliveries,
    subscriptions,
    topics,
)

if TYPE_CHECKING:
    from sqlalchemy import Connection, Select

__all__ = ["load", "topics_with_first_offset"]

#: Batches of the ledger that are told of as one, of which there may be a hundred thousand.
GATHERED_BATCHES: Final = 16


def load(connection: Connection, where: str) -> Kept:
    """Raises OperatorError if a cursor is ahead of its topic: messages to come would be taken for settled."""
    kept = Kept(
        topics=[
            (TopicRow(row.id, row.name, row.next_offset), row.first_offset)
            for row in connection.execute(topics_with_first_offset())
        ],
        subscriptions=[
            SubscriptionRow(*row) for row in connection.execute(select(subscriptions).order_by(subscriptions.c.id))
        ],
        cursors=[
            CursorRow(
                row.subscription_id,
                row.topic_id,
                row.ack_floor,
                settled_ranges.unpack(row.settled),
                row.sent_up_to,
                row.generation,
            )
            for row in connection.execute(select(cursors).order_by(cursors.c.subscription_id, cursors.c.topic_id))
        ],
        redeliveries=[
            RedeliveryRow(*row)
            for row in connection.execute(select(redeliveries).order_by(*redeliveries.primary_key.columns))
        ],
        exports=[ExportRow(*row) for row in connection.execute(select(ledger_exports).order_by(ledger_exports.c.id))],
        gathered=[Gathered(*row) for row in connection.execute(gathered_batches())],
    )
    _check_cursors(kept, where)
    return kept


def topics_with_first_offset() -> Select[Any]:
    first_offset = select(func.min(messages.c.offset)).where(messages.c.topic_id == topics.c.id).scalar_subquery()
    return select(topics, first_offset.label("first_offset")).order_by(topics.c.id)


def gathered_batches() -> Select[Any]:
    """What the ledger has, a few batches at a time. Looks at every row, but not at payloads."""
    # The ranges of exports of one kind and day share no batch, so each is met once.
    in_export = and_(
        ledger_exports.c.kind == ledger_batches.c.kind,
        ledger_exports.c.day == ledger_batches.c.day,
        ledger_exports.c.after_batch < ledger_batches.c.id,
        ledger_exports.c.last_batch >= ledger_batches.c.id,
    )
    export = func.coalesce(ledger_exports.c.id, 0)
    last_batch = func.max(ledger_batches.c.id)
    return (
        select(
            ledger_batches.c.kind,
            ledger_batches.c.day,
            export,
            last_batch,
            # Sums of BIGINT are of a type of their own in PostgreSQL.
            cast(func.sum(ledger_batches.c.records), BigInteger),
            func.sum(func.length(ledger_batches.c.payload), type_=BigInteger),
            func.min(ledger_batches.c.made_at_ns),
        )
        .select_from(ledger_batches.outerjoin(ledger_exports, in_export))
        .group_by(
            ledger_batches.c.kind,
            ledger_batches.c.day,
            ledger_batches.c.id // GATHERED_BATCHES,
            ledger_exports.c.id,
        )
        .order_by(last_batch)
    )


def _check_cursors(kept: Kept, where: str) -> None:
    named = {topic.id: topic for topic, _ in kept.topics}
    for cursor in kept.cursors:
        topic = named.get(cursor.topic_id)
        if topic is None:
            raise OperatorError(
                f"The store {where} is damaged: subscription {cursor.subscription_id} has a cursor in a topic "
                f"{cursor.topic_id} that is not there. Restore it from one backup, as a whole."
            )
        reached = max(cursor.ack_floor, cursor.sent_up_to, cursor.settled[-1][1] if cursor.settled else 0)
        if reached > topic.next_offset:
            raise OperatorError(
                f"The store {where} is damaged: the cursor of subscription {cursor.subscription_id} in the topic "
                f"{topic.name} stands at {reached}, but the next message there gets offset {topic.next_offset}. "
                "Restore it from one backup, as a whole."
            )
