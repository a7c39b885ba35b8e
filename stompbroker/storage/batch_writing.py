"""A batch as SQL, written within the caller's transaction.

Hot path: cost is by statement, not by row; `benchmarks/` measures it as part of every durable scenario.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Final, final

from sqlalchemy import bindparam

from stompbroker.storage.row_format import (
    checksum,
    message_checksum,
    origin_checksum,
    pack_ranges,
    value_checksum,
    with_checksum,
)
from stompbroker.storage.schema import (
    cursors,
    gaps,
    last_values,
    ledger_batches,
    ledger_exports,
    messages,
    producers,
    redeliveries,
    subscriptions,
    topics,
)
from stompbroker.storage.statements import IN_RANGE, deletion, insertion, upsert

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from sqlalchemy import Column, Dialect, Table
    from sqlalchemy.engine.interfaces import DBAPICursor

    from stompbroker.storage.batch import Batch, CursorRow, ExportRow, Gap, LedgerRow, MessageRun, ProducerRow

    Row = tuple[Any, ...]
    Run = Callable[[DBAPICursor, list[Any]], None]
    Values = Callable[[Sequence[Any]], list[Any]]

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

    def __init__(self, dialect: Dialect, write_messages: Run) -> None:
        def upserting(
            table: Table, as_stored: Callable[[Any], Row] = with_checksum, **options: Any
        ) -> tuple[Run, Values]:
            # Of rows with one key only the last: an upsert may not meet a key twice.
            keys = len(table.primary_key)
            statement = upsert(table, dialect, **options)
            return statement.run, lambda rows: _flat({row[:keys]: row for row in map(as_stored, rows)}.values())

        def removing(*columns: Column[Any]) -> Run:
            return deletion(columns[0].table, [column == bindparam(column.name) for column in columns], dialect).run

        of_topic = (*(table.c.topic_id for table in (messages, gaps, cursors, redeliveries)), topics.c.id)
        of_subscription = (cursors.c.subscription_id, redeliveries.c.subscription_id, subscriptions.c.id)
        delete_exported = deletion(ledger_batches, _EXPORTED, dialect).run
        #: In their order: a part of a batch, a statement, and the values that it takes.
        self._steps: tuple[tuple[str, Run, Values], ...] = (
            *(("removed_topics", removing(column), list) for column in of_topic),
            *(("removed_subscriptions", removing(column), list) for column in of_subscription),
            ("topics", *upserting(topics, never_changed=["kind", "name"])),
            ("subscriptions", *upserting(subscriptions)),
            ("messages", write_messages, list),
            ("cursors", *upserting(cursors, _packed)),
            ("settled_redeliveries", removing(*redeliveries.primary_key), _flat),
            ("redeliveries", *upserting(redeliveries)),
            ("removed_values", removing(last_values.c.name), list),
            ("last_values", *upserting(last_values, lambda row: (*row, value_checksum(row)))),
            ("removed_producers", removing(*producers.primary_key), _flat),
            ("producers", *upserting(producers, _packed)),
            ("deletions", deletion(messages, IN_RANGE, dialect).run, _flat),
            ("gaps", upsert(gaps, dialect).run, lambda rows: _flat(map(with_checksum, _merged(rows)))),
            ("ledger", insertion(ledger_batches, dialect).run, lambda rows: _flat(map(_with_payload, rows))),
            ("exports", *upserting(ledger_exports)),
            ("exported", delete_exported, _flat),
            ("finished_exports", delete_exported, lambda rows: _flat(map(_held_by, rows))),
            ("finished_exports", removing(ledger_exports.c.id), lambda rows: [row.id for row in rows]),
        )
        self._close_gaps = deletion(gaps, _NOT_NEEDED, dialect).run

    def write(self, cursor: DBAPICursor, batch: Batch) -> None:
        """Raises what the driver raises."""
        if batch.deletions:
            deleted_from = {deleted.topic_id for deleted in batch.deletions}
            closed = [(row.id, row.whole_from) for row in batch.topics if row.id in deleted_from and row.whole_from]
            if closed:
                self._close_gaps(cursor, _flat(closed))
        for part, run, values in self._steps:
            if rows := getattr(batch, part):
                run(cursor, values(rows))


def message_insertion(dialect: Dialect) -> Run:
    """Messages by INSERT of many rows.

    Ordinary messages leave out four columns: SQLite takes 0.4 µs to bind a None, and 1.5 for the rest of a row.
    """
    plain_rows = insertion(messages, dialect, left_out=("expires_at_ns", "only_for", "group_key", "outcome_to"))
    limited_rows = insertion(messages, dialect)

    def write(cursor: DBAPICursor, runs: Sequence[MessageRun]) -> None:
        values: list[Any] = []
        limited: list[Any] = []
        for run in runs:
            if all(message.origin.is_ordinary for message in run.messages):
                values += _plain_values(run)
            else:
                limited += chain.from_iterable(message_rows([run]))
        if values:
            plain_rows.run(cursor, values)
        if limited:
            limited_rows.run(cursor, limited)

    return write


def _plain_values(run: MessageRun) -> list[Any]:
    """The values of all rows, without the four columns that ordinary messages leave out.

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


def message_rows(runs: Iterable[MessageRun]) -> Iterator[Row]:
    """Rows of `messages` with all columns."""
    for topic_id, first_offset, run in runs:
        origin, begins_with = None, 0
        for offset, message in enumerate(run, first_offset):
            if message.origin is not origin:
                origin = message.origin
                publisher, only_for, asked = origin.publisher, origin.only_for, (origin.group_key, origin.outcome_to)
                begins_with = origin_checksum(publisher, only_for, *asked)
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
                *asked,
            )


def _flat(rows: Iterable[Row]) -> list[Any]:
    return list(chain.from_iterable(rows))


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


def _packed(row: CursorRow | ProducerRow) -> Row:
    """The fourth value of both is ranges."""
    return with_checksum((*row[:3], pack_ranges(row[3]), *row[4:]))


def _with_payload(row: LedgerRow) -> Row:
    payload = row.payload()
    return (*row[:-1], payload, checksum(tuple(row[:-1]), payload))


def _held_by(row: ExportRow) -> Row:
    return row.kind, row.day, row.after_batch, row.last_batch
