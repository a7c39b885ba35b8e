"""A batch as SQL.

Law: writes the parts of a batch in the order in which `Batch` names them, within the caller's transaction. Cost is by
statement, not by row. Hot path: `benchmarks/` measures it as part of every durable scenario.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Final, final

from sqlalchemy import bindparam

from stompbroker.storage import settled_ranges
from stompbroker.storage.schema import (
    cursors,
    ledger_batches,
    ledger_exports,
    messages,
    redeliveries,
    subscriptions,
    topics,
)
from stompbroker.storage.statements import deletion, insertion, upsert

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from sqlalchemy import Column, ColumnElement, Dialect
    from sqlalchemy.engine.interfaces import DBAPICursor

    from stompbroker.storage.batch import Batch, CursorRow, LedgerRow, MessageRun

    MessageWriter = Callable[[DBAPICursor, Sequence[MessageRun]], None]

__all__ = ["BatchWriter", "message_insertion"]

_IN_RANGE: Final = (
    messages.c.topic_id == bindparam("topic_id"),
    messages.c.offset >= bindparam("start"),
    messages.c.offset < bindparam("stop"),
)
_EXPORTED: Final = (
    ledger_batches.c.kind == bindparam("kind"),
    ledger_batches.c.day == bindparam("day"),
    ledger_batches.c.id > bindparam("after_batch"),
    ledger_batches.c.id <= bindparam("last_batch"),
)


@final
class BatchWriter:
    """Writes batches on connections of one dialect; `write_messages` is that dialect's best way to insert messages."""

    def __init__(self, dialect: Dialect, write_messages: MessageWriter) -> None:
        self._write_messages = write_messages
        self._topics = upsert(topics, dialect, never_changed=["name"])
        self._subscriptions = upsert(subscriptions, dialect)
        self._cursors = upsert(cursors, dialect)
        self._redeliveries = upsert(redeliveries, dialect)
        self._settled_redeliveries = deletion(redeliveries, _equal(*redeliveries.primary_key), dialect)
        self._deletions = deletion(messages, _IN_RANGE, dialect)
        self._ledger = insertion(ledger_batches, dialect)
        self._exports = upsert(ledger_exports, dialect)
        self._exported = deletion(ledger_batches, _EXPORTED, dialect)
        self._finished_exports = deletion(ledger_exports, _equal(ledger_exports.c.id), dialect)
        # A topic or a subscription goes after what belongs to it.
        self._removals_of_topics = [
            deletion(column.table, _equal(column), dialect)
            for column in (messages.c.topic_id, cursors.c.topic_id, redeliveries.c.topic_id, topics.c.id)
        ]
        self._removals_of_subscriptions = [
            deletion(column.table, _equal(column), dialect)
            for column in (cursors.c.subscription_id, redeliveries.c.subscription_id, subscriptions.c.id)
        ]

    def write(self, cursor: DBAPICursor, batch: Batch) -> None:
        """Raises what the driver raises."""
        if batch.removed_topics:
            for removal in self._removals_of_topics:
                removal.run(cursor, batch.removed_topics)
        if batch.removed_subscriptions:
            for removal in self._removals_of_subscriptions:
                removal.run(cursor, batch.removed_subscriptions)
        if batch.topics:
            self._topics.run(cursor, _flat_last_of_each(batch.topics, 1))
        if batch.subscriptions:
            self._subscriptions.run(cursor, _flat_last_of_each(batch.subscriptions, 1))
        if batch.messages:
            self._write_messages(cursor, batch.messages)
        if batch.cursors:
            self._cursors.run(cursor, _flat_last_of_each(map(_packed, batch.cursors), 2))
        if batch.settled_redeliveries:
            self._settled_redeliveries.run(cursor, list(chain.from_iterable(batch.settled_redeliveries)))
        if batch.redeliveries:
            self._redeliveries.run(cursor, _flat_last_of_each(batch.redeliveries, 3))
        if batch.deletions:
            self._deletions.run(cursor, list(chain.from_iterable(batch.deletions)))
        if batch.ledger:
            self._ledger.run(cursor, list(chain.from_iterable(map(_with_payload, batch.ledger))))
        if batch.exports:
            self._exports.run(cursor, _flat_last_of_each(batch.exports, 1))
        if batch.exported:
            self._exported.run(cursor, list(chain.from_iterable(batch.exported)))
        if batch.finished_exports:
            held = [(row.kind, row.day, row.after_batch, row.last_batch) for row in batch.finished_exports]
            self._exported.run(cursor, list(chain.from_iterable(held)))
            self._finished_exports.run(cursor, [row.id for row in batch.finished_exports])


def message_insertion(dialect: Dialect) -> MessageWriter:
    """Messages by INSERT, many rows at a time.

    Those for all and ever, which most are, leave out the columns that say otherwise: Python's SQLite takes 0.4 µs to
    bind a None, where all the rest of a row takes 1.5.
    """
    rows = insertion(messages, dialect, left_out=("expires_at_ns", "only_for"))
    limited_rows = insertion(messages, dialect)

    def write(cursor: DBAPICursor, runs: Sequence[MessageRun]) -> None:
        values: list[Any] = []
        limited: list[Any] = []
        for topic_id, first_offset, run in runs:
            for offset, message in enumerate(run, first_offset):
                origin = message.origin
                row = (
                    topic_id,
                    offset,
                    message.published_at_ns,
                    origin.publisher,
                    message.body_bytes,
                    message.tail,
                )
                if origin.is_for_all_and_ever:
                    values += row
                else:
                    limited += (*row, message.expires_at_ns, origin.only_for)
        if values:
            rows.run(cursor, values)
        if limited:
            limited_rows.run(cursor, limited)

    return write


def _flat_last_of_each(rows: Iterable[tuple[Any, ...]], key_width: int) -> list[Any]:
    """The values of all rows; of rows with one key the last. An upsert may not meet a key twice."""
    return list(chain.from_iterable({row[:key_width]: row for row in rows}.values()))


def _packed(row: CursorRow) -> tuple[Any, ...]:
    settled = settled_ranges.pack(row.settled)
    return row.subscription_id, row.topic_id, row.ack_floor, settled, row.sent_up_to, row.generation


def _with_payload(row: LedgerRow) -> tuple[Any, ...]:
    return row.id, row.kind, row.day, row.records, row.made_at_ns, row.payload()


def _equal(*columns: Column[Any]) -> list[ColumnElement[bool]]:
    return [column == bindparam(column.name) for column in columns]
