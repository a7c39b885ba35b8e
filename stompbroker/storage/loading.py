"""What a start reads.

Law: topics, subscriptions, cursors and redeliveries, all of them; of the messages only the first offset of each topic,
by the index. So a start does not take longer because there is more to deliver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import func, select

from stompbroker.errors import OperatorError
from stompbroker.storage import settled_ranges
from stompbroker.storage.batch import CursorRow, Kept, RedeliveryRow, SubscriptionRow, TopicRow
from stompbroker.storage.schema import cursors, messages, redeliveries, subscriptions, topics

if TYPE_CHECKING:
    from sqlalchemy import Connection, Select

__all__ = ["load", "topics_with_first_offset"]


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
            )
            for row in connection.execute(select(cursors).order_by(cursors.c.subscription_id, cursors.c.topic_id))
        ],
        redeliveries=[
            RedeliveryRow(*row)
            for row in connection.execute(select(redeliveries).order_by(*redeliveries.primary_key.columns))
        ],
    )
    _check_cursors(kept, where)
    return kept


def topics_with_first_offset() -> Select[Any]:
    first_offset = select(func.min(messages.c.offset)).where(messages.c.topic_id == topics.c.id).scalar_subquery()
    return select(topics, first_offset.label("first_offset")).order_by(topics.c.id)


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
