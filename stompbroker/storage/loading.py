"""What a start reads: all topics, subscriptions, cursors, redeliveries, producers and last values.

Of the messages it reads only each topic's first offset, by the index, and the keys of those that have failed; of the
ledger only sums. So a start does not take longer with a larger backlog.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import BigInteger, and_, cast, func, select

from stompbroker.storage.batch import (
    CursorRow,
    ExportRow,
    Gathered,
    Kept,
    LastValueRow,
    ProducerRow,
    RedeliveryRow,
    SubscriptionRow,
    TopicRow,
)
from stompbroker.storage.failures import StoreDamaged
from stompbroker.storage.row_format import checked, unpack_ranges, value_checksum
from stompbroker.storage.schema import (
    cursors,
    last_values,
    ledger_batches,
    ledger_exports,
    messages,
    producers,
    redeliveries,
    subscriptions,
    topics,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection, Select, Table

#: Batches of the ledger, of which there may be a hundred thousand, are summed up in groups of this many.
GATHERED_BATCHES: Final = 16
#: The keys of messages that have failed. Looks at each of those by the index of `messages`.
_FAILED_KEYS: Final = (
    select(messages.c.topic_id, messages.c.offset, messages.c.group_key)
    .join(
        redeliveries,
        and_(messages.c.topic_id == redeliveries.c.topic_id, messages.c.offset == redeliveries.c.offset),
    )
    .where(messages.c.group_key.is_not(None))
)


def load(connection: Connection) -> Kept:
    """Raises StoreDamaged if a row is not as it was written, or rows contradict each other: with a cursor ahead of its
    topic, messages to come would count as settled."""
    if connection.dialect.name == "sqlite":
        for table in (topics, subscriptions, cursors, redeliveries, producers, last_values, ledger_exports):
            check_structure(connection, table.name)
    first_offset = select(func.min(messages.c.offset)).where(messages.c.topic_id == topics.c.id).scalar_subquery()
    first_offsets = {row[0]: row[1] for row in connection.execute(select(topics.c.id, first_offset))}
    kept = Kept(
        topics=[(TopicRow(*row), first_offsets.get(row[0])) for row in _rows(connection, topics)],
        subscriptions=[SubscriptionRow(*row) for row in _rows(connection, subscriptions)],
        cursors=[CursorRow._make(_unpacked(row)) for row in _rows(connection, cursors)],
        redeliveries=[RedeliveryRow(*row) for row in _rows(connection, redeliveries)],
        failed_keys={(topic_id, offset): key for topic_id, offset, key in connection.execute(_FAILED_KEYS)},
        producers=[ProducerRow._make(_unpacked(row)) for row in _rows(connection, producers)],
        last_values=list(_last_values(connection)),
        exports=[ExportRow(*row) for row in _rows(connection, ledger_exports)],
        gathered=[Gathered(*row) for row in connection.execute(_gathered_batches())],
    )
    _check_cursors(kept)
    return kept


def check_structure(connection: Connection, table: str) -> None:
    """Raises StoreDamaged if SQLite finds rows by one index and not by another. Reads the whole table."""
    found: str = connection.exec_driver_sql(f"PRAGMA integrity_check('{table}')").scalars().first() or "ok"
    if found != "ok":
        raise StoreDamaged(f"the table {table} contradicts itself ({found})")


def _rows(connection: Connection, table: Table) -> Iterator[tuple[Any, ...]]:
    return checked(table.name, connection.execute(select(table).order_by(*table.primary_key.columns)))


def _last_values(connection: Connection) -> Iterator[LastValueRow]:
    for *values, found in connection.execute(select(last_values).order_by(last_values.c.name)):
        row = LastValueRow._make(values)
        if found is not None and found != value_checksum(row):
            raise StoreDamaged(f"the last value of the topic {row.name!r} is not as it was written")
        yield row


def _unpacked(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """As `batch_writing` packs it."""
    return (*row[:3], unpack_ranges(row[3]), *row[4:])


def _gathered_batches() -> Select[Any]:
    """The batches of the ledger in small groups. Reads every row, but no payloads."""
    batches, exports = ledger_batches.c, ledger_exports.c
    # The exports of one kind and day share no batch, so the join meets each batch once.
    in_export = and_(
        exports.kind == batches.kind,
        exports.day == batches.day,
        exports.after_batch < batches.id,
        exports.last_batch >= batches.id,
    )
    last_batch = func.max(batches.id)
    return (
        select(
            batches.kind,
            batches.day,
            func.coalesce(exports.id, 0),
            last_batch,
            # Sums of BIGINT have a type of their own in PostgreSQL.
            cast(func.sum(batches.records), BigInteger),
            func.sum(func.length(batches.payload), type_=BigInteger),
            func.min(batches.made_at_ns),
        )
        .select_from(ledger_batches.outerjoin(ledger_exports, in_export))
        .group_by(batches.kind, batches.day, batches.id // GATHERED_BATCHES, exports.id)
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
        reached = max(cursor.ack_floor, cursor.sent_up_to, *map(max, cursor.settled))
        if reached > topic.next_offset:
            raise StoreDamaged(
                f"the cursor of subscription {cursor.subscription_id} in the topic {topic.name} stands at {reached}, "
                f"but the next message there gets offset {topic.next_offset}"
            )
