"""A batch as SQL, written within the caller's transaction.

Knows the order of the steps and what each takes; the statements are compiled elsewhere (`batch_statements.py`), so the
writing process needs no SQLAlchemy. Hot path: cost is by statement, not by row; `benchmarks/` measures it as part of
every durable scenario.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

from stompbroker.storage.many_rows import ManyRows
from stompbroker.storage.row_format import (
    checksum,
    message_checksum,
    origin_checksum,
    pack_ranges,
    value_checksum,
    with_checksum,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from sqlalchemy.engine.interfaces import DBAPICursor

    from stompbroker.storage.batch import Batch, CursorRow, ExportRow, Gap, LedgerRow, MessageRun, ProducerRow

    Row = tuple[Any, ...]
    Run = Callable[[DBAPICursor, list[Any]], None]
    Values = Callable[[Sequence[Any]], list[Any]]

#: The step that `write_messages` takes.
_MESSAGES: Final = "messages"


class BatchStatements(NamedTuple):
    """The statements of a dialect."""

    #: In the order of STEPS, without that of the messages.
    steps: Sequence[ManyRows]
    close_gaps: ManyRows
    #: Messages without the four columns that ordinary ones leave out, and with all.
    plain_messages: ManyRows
    all_messages: ManyRows

    def as_values(self) -> tuple[Any, ...]:
        """For another process."""
        return [each.values for each in self.steps], *(each.values for each in self[1:])

    @classmethod
    def of_values(cls, values: Sequence[Any]) -> BatchStatements:
        steps, *others = values
        return cls([ManyRows(*each) for each in steps], *(ManyRows(*each) for each in others))


@final
class BatchWriter:
    """Writes batches; `write_messages` is the fastest way to insert messages."""

    def __init__(self, statements: BatchStatements, write_messages: Run | None = None) -> None:
        run_messages = write_messages or message_insertion(statements)
        runs = iter(statements.steps)
        #: In their order: a part of a batch, a statement, and the values that it takes.
        self._steps: tuple[tuple[str, Run, Values], ...] = tuple(
            (part, run_messages if part == _MESSAGES else next(runs).run, values) for part, values in STEPS
        )
        assert next(runs, None) is None, "a statement without a step"
        self._close_gaps = statements.close_gaps.run

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


def message_insertion(statements: BatchStatements) -> Run:
    """Messages by INSERT of many rows.

    Ordinary messages leave out four columns: SQLite takes 0.4 µs to bind a None, and 1.5 for the rest of a row.
    """
    plain_rows, limited_rows = statements.plain_messages, statements.all_messages

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


def _upserted(keys: int, as_stored: Callable[[Any], Row] = with_checksum) -> Values:
    """Of rows with one key (the first `keys` values) only the last: an upsert may not meet a key twice."""
    return lambda rows: _flat({row[:keys]: row for row in map(as_stored, rows)}.values())


#: In their order: a part of a batch, and the values that its statement takes.
STEPS: Final[tuple[tuple[str, Values], ...]] = (
    *(("removed_topics", list),) * 5,
    *(("removed_subscriptions", list),) * 3,
    ("topics", _upserted(1)),
    ("subscriptions", _upserted(1)),
    (_MESSAGES, list),
    ("cursors", _upserted(2, _packed)),
    ("settled_redeliveries", _flat),
    ("redeliveries", _upserted(3)),
    ("removed_values", list),
    ("last_values", _upserted(1, lambda row: (*row, value_checksum(row)))),
    ("removed_producers", _flat),
    ("producers", _upserted(2, _packed)),
    ("deletions", _flat),
    ("gaps", lambda rows: _flat(map(with_checksum, _merged(rows)))),
    ("ledger", lambda rows: _flat(map(_with_payload, rows))),
    ("exports", _upserted(1)),
    ("exported", _flat),
    ("finished_exports", lambda rows: _flat(map(_held_by, rows))),
    ("finished_exports", lambda rows: [row.id for row in rows]),
)
