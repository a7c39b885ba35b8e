"""A batch as SQL, written within the caller's transaction.

Hot path: cost is by statement, not by row; `benchmarks/` measures it as part of every durable scenario.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Final, final

from sqlalchemy import bindparam

from stompbroker.storage.row_format import checksum, message_checksum, origin_checksum, pack_ranges, with_checksum
from stompbroker.storage.schema import (
    cursors,
    gaps,
    ledger_batches,
    ledger_exports,
    messages,
    redeliveries,
    subscriptions,
    topics,
)
from stompbroker.storage.statements import IN_RANGE, deletion, insertion, upsert

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from sqlalchemy import Column, ColumnElement, Dialect
    from sqlalchemy.engine.interfaces import DBAPICursor

    from stompbroker.storage.batch import Batch, CursorRow, Gap, LedgerRow, MessageRun

    MessageWriter = Callable[[DBAPICursor, Sequence[MessageRun]], None]

_NOT_NEEDED: Final = (gaps.c.topic_id == bindparam("topic_id"), gaps.c.stop <= bindparam("whole_from"))
_EXPORTED: Final = (
    ledger_batches.c.kind == bindparam("kind"),
    ledger_batches.c.day == bindparam("day"),
    ledger_batches.c.id > bindparam("after_batch"),
    ledger_batches.c.id <= bindparam("last_batch"),
)


@final
class BatchWriter:
    """Writes batches on connections of one dialect; `write_messages` is its fastest way to insert messages."""

    def __init__(self, dialect: Dialect, write_messages: MessageWriter) -> None:
        self._write_messages = write_messages
        self._topics = upsert(topics, dialect, never_changed=["kind", "name"])
        self._subscriptions = upsert(subscriptions, dialect)
        self._cursors = upsert(cursors, dialect)
        self._redeliveries = upsert(redeliveries, dialect)
        self._settled_redeliveries = deletion(redeliveries, _equal(*redeliveries.primary_key), dialect)
        self._deletions = deletion(messages, IN_RANGE, dialect)
        self._gaps = upsert(gaps, dialect)
        self._closed_gaps = deletion(gaps, _NOT_NEEDED, dialect)
        self._ledger = insertion(ledger_batches, dialect)
        self._exports = upsert(ledger_exports, dialect)
        self._exported = deletion(ledger_batches, _EXPORTED, dialect)
        self._finished_exports = deletion(ledger_exports, _equal(ledger_exports.c.id), dialect)
        self._removed_topics = [
            deletion(column.table, _equal(column), dialect)
            for column in (*(table.c.topic_id for table in (messages, gaps, cursors, redeliveries)), topics.c.id)
        ]
        self._removed_subscriptions = [
            deletion(column.table, _equal(column), dialect)
            for column in (cursors.c.subscription_id, redeliveries.c.subscription_id, subscriptions.c.id)
        ]

    def write(self, cursor: DBAPICursor, batch: Batch) -> None:
        """Raises what the driver raises."""
        if batch.removed_topics:
            for removal in self._removed_topics:
                removal.run(cursor, batch.removed_topics)
        if batch.removed_subscriptions:
            for removal in self._removed_subscriptions:
                removal.run(cursor, batch.removed_subscriptions)
        if batch.topics:
            self._topics.run(cursor, _flat_last_of_each(map(with_checksum, batch.topics), 1))
        if batch.subscriptions:
            self._subscriptions.run(cursor, _flat_last_of_each(map(with_checksum, batch.subscriptions), 1))
        if batch.messages:
            self._write_messages(cursor, batch.messages)
        if batch.cursors:
            self._cursors.run(cursor, _flat_last_of_each(map(_packed, batch.cursors), 2))
        if batch.settled_redeliveries:
            self._settled_redeliveries.run(cursor, _flat(batch.settled_redeliveries))
        if batch.redeliveries:
            self._redeliveries.run(cursor, _flat_last_of_each(map(with_checksum, batch.redeliveries), 3))
        if batch.deletions:
            self._deletions.run(cursor, _flat(batch.deletions))
            deleted_from = {deleted.topic_id for deleted in batch.deletions}
            closed = [(row.id, row.whole_from) for row in batch.topics if row.id in deleted_from and row.whole_from]
            if closed:
                self._closed_gaps.run(cursor, _flat(closed))
        if batch.gaps:
            self._gaps.run(cursor, _flat(map(with_checksum, _merged(batch.gaps))))
        if batch.ledger:
            self._ledger.run(cursor, _flat(map(_with_payload, batch.ledger)))
        if batch.exports:
            self._exports.run(cursor, _flat_last_of_each(map(with_checksum, batch.exports), 1))
        if batch.exported:
            self._exported.run(cursor, _flat(batch.exported))
        if batch.finished_exports:
            held = [(row.kind, row.day, row.after_batch, row.last_batch) for row in batch.finished_exports]
            self._exported.run(cursor, _flat(held))
            self._finished_exports.run(cursor, [row.id for row in batch.finished_exports])


def message_insertion(dialect: Dialect) -> MessageWriter:
    """Messages by INSERT of many rows.

    Messages for all and ever, the usual ones, leave out two columns: Python's SQLite takes 0.4 µs to bind a None, and
    1.5 for the rest of a row.
    """
    plain_rows = insertion(messages, dialect, left_out=("expires_at_ns", "only_for"))
    limited_rows = insertion(messages, dialect)

    def write(cursor: DBAPICursor, runs: Sequence[MessageRun]) -> None:
        values: list[Any] = []
        limited: list[Any] = []
        for run in runs:
            if all(message.origin.is_for_all_and_ever for message in run.messages):
                values += _plain_values(run)
            else:
                limited += chain.from_iterable(message_rows([run]))
        if values:
            plain_rows.run(cursor, values)
        if limited:
            limited_rows.run(cursor, limited)

    return write


def _plain_values(run: MessageRun) -> list[Any]:
    """The values of all rows, without the two columns that messages for all and ever leave out.

    Hot path: 0.76 µs a message, 0.58 of it for the checksum; `message_rows` would take 1.01.
    """
    values: list[Any] = []
    topic_id, first_offset, messages = run
    origin, publisher, begins_with = None, "", 0
    for offset, message in enumerate(messages, first_offset):
        if message.origin is not origin:
            origin = message.origin
            publisher = origin.publisher
            begins_with = origin_checksum(publisher, None)
        published_at_ns, body_bytes, tail = message.published_at_ns, message.body_bytes, message.tail
        checksum = message_checksum(begins_with, topic_id, offset, published_at_ns, body_bytes, None, tail)
        values += (topic_id, offset, published_at_ns, publisher, body_bytes, tail, checksum)
    return values


def message_rows(runs: Iterable[MessageRun]) -> Iterator[tuple[Any, ...]]:
    """Rows of `messages` with all columns."""
    for topic_id, first_offset, run in runs:
        origin, begins_with = None, 0
        for offset, message in enumerate(run, first_offset):
            if message.origin is not origin:
                origin = message.origin
                publisher, only_for = origin.publisher, origin.only_for
                begins_with = origin_checksum(publisher, only_for)
            published_at_ns, body_bytes, tail = message.published_at_ns, message.body_bytes, message.tail
            expires_at_ns = message.expires_at_ns if origin.can_expire else None
            yield (
                topic_id,
                offset,
                published_at_ns,
                publisher,
                body_bytes,
                tail,
                expires_at_ns,
                only_for,
                message_checksum(begins_with, topic_id, offset, published_at_ns, body_bytes, expires_at_ns, tail),
            )


def _flat(rows: Iterable[tuple[Any, ...]]) -> list[Any]:
    return list(chain.from_iterable(rows))


def _flat_last_of_each(rows: Iterable[tuple[Any, ...]], key_width: int) -> list[Any]:
    """The values of all rows, of rows with one key only the last: an upsert may not meet a key twice."""
    return _flat({row[:key_width]: row for row in rows}.values())


def _merged(gaps: Iterable[Gap]) -> list[Gap]:
    """Gaps that touch become one: of many messages in a row each may be a gap."""
    merged: list[Gap] = []
    for gap in sorted(gaps, key=lambda gap: (gap.topic_id, gap.start)):
        last = merged[-1] if merged else None
        if last is not None and last.topic_id == gap.topic_id and gap.start <= last.stop:
            merged[-1] = last._replace(stop=max(last.stop, gap.stop))
        else:
            merged.append(gap)
    return merged


def _packed(row: CursorRow) -> tuple[Any, ...]:
    return with_checksum((*row[:3], pack_ranges(row.settled), *row[4:]))


def _with_payload(row: LedgerRow) -> tuple[Any, ...]:
    payload = row.payload()
    return (*row[:-1], payload, checksum(tuple(row[:-1]), payload))


def _equal(*columns: Column[Any]) -> list[ColumnElement[bool]]:
    return [column == bindparam(column.name) for column in columns]
