"""What a start reads.

Law: topics, subscriptions, cursors and redeliveries, all of them; of the messages only the first offset of each topic,
by the index, and of the ledger how much there is. So a start does not take longer because there is more to deliver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import BigInteger, and_, cast, func, select

from stompbroker.storage.batch import CursorRow, ExportRow, Gathered, Kept, RedeliveryRow, SubscriptionRow, TopicRow
from stompbroker.storage.checking import check_structure
from stompbroker.storage.failures import StoreDamaged
from stompbroker.storage.row_format import checked, unpack_ranges
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
    from collections.abc import Iterator

    from sqlalchemy import Connection, Select, Table

__all__ = ["first_offsets_of_topics", "load"]

#: Batches of the ledger that are told of as one, of which there may be a hundred thousand.
GATHERED_BATCHES: Final = 16


def load(connection: Connection) -> Kept:
    """Raises StoreDamaged if anything is not as it was written, or rows contradict each other: with a cursor ahead of
    its topic messages to come would be taken for settled."""
    if connection.dialect.name == "sqlite":
        for table in (topics, subscriptions, cursors, redeliveries, ledger_exports):
            check_structure(connection, table.name)
    first_offsets = {row[0]: row[1] for row in connection.execute(first_offsets_of_topics())}
    kept = Kept(
        topics=[(TopicRow(*row), first_offsets.get(row[0])) for row in _rows(connection, topics)],
        subscriptions=[SubscriptionRow(*row) for row in _rows(connection, subscriptions)],
        cursors=[CursorRow._make((*row[:3], unpack_ranges(row[3]), *row[4:])) for row in _rows(connection, cursors)],
        redeliveries=[RedeliveryRow(*row) for row in _rows(connection, redeliveries)],
        exports=[ExportRow(*row) for row in _rows(connection, ledger_exports)],
        gathered=[Gathered(*row) for row in connection.execute(gathered_batches())],
    )
    _check_cursors(kept)
    return kept


def _rows(connection: Connection, table: Table) -> Iterator[tuple[Any, ...]]:
    return checked(table.name, connection.execute(select(table).order_by(*table.primary_key.columns)))


def first_offsets_of_topics() -> Select[Any]:
    first_offset = select(func.min(messages.c.offset)).where(messages.c.topic_id == topics.c.id).scalar_subquery()
    return select(topics.c.id, first_offset)


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


def _check_cursors(kept: Kept) -> None:
    named = {topic.id: topic for topic, _ in kept.topics}
    for cursor in kept.cursors:
        topic = named.get(cursor.topic_id)
        if topic is None:
            raise StoreDamaged(
                f"subscription {cursor.subscription_id} has a cursor in a topic {cursor.topic_id} that is not there"
            )
        reached = max(cursor.ack_floor, cursor.sent_up_to, cursor.settled[-1][1] if cursor.settled else 0)
        if reached > topic.next_offset:
            raise StoreDamaged(
                f"the cursor of subscription {cursor.subscription_id} in the topic {topic.name} stands at {reached}, "
                f"but the next message there gets offset {topic.next_offset}"
            )
