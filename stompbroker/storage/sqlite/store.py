"""A store in an SQLite file.

One broker at a time opens the file: the caller holds the lock on the data directory, so there is none here. One thread
writes, in the broker or in its writing process; others read at the same time.

Hot path: a page costs two steps of SQLite and 2.8 µs a message. The first step reads lengths, which decide where the
page ends; the second joins the tails to one blob. Python releases its interpreter lock at every step, and beside a busy
event loop may wait for it each time: row by row, a page of a thousand rows took 200 ms instead of 10.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from contextlib import suppress
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

from sqlalchemy import LargeBinary, bindparam, cast, func, literal_column, select
from sqlalchemy.dialects import sqlite

from stompbroker.storage.batch_writing import BatchWriter, message_insertion
from stompbroker.storage.failures import StoreFailing
from stompbroker.storage.paging import Rows
from stompbroker.storage.schema import gaps, ledger_batches, messages
from stompbroker.storage.sqlite.checkpoints import Checkpoints, FairLock
from stompbroker.storage.sqlite.engine import BEGIN_WRITING, reading_engine, writing_engine
from stompbroker.storage.statements import IN_RANGE, text_of
from stompbroker.storage.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from sqlalchemy import ColumnElement, Connection, Select
    from sqlalchemy.engine.interfaces import DBAPICursor

    from stompbroker.storage.batch import Batch
    from stompbroker.storage.paging import PageLimits

#: Tails with this many bytes on average are read one by one: a page has at most 256 of them, and joining them would
#: copy too much.
LONG_TAIL_BYTES: Final = 4096


class Statements(NamedTuple):
    """Those that are compiled once, for all stores of the process and of those forked from it."""

    batch_writer: BatchWriter
    #: Of `_read_rows`.
    heads: str
    joined_tails: str
    single_tails: str


@cache
def statements() -> Statements:
    dialect = sqlite.dialect()
    columns = messages.c
    tail_bytes = func.length(columns.tail).label("tail_bytes")
    wanted = _rows(columns.offset, columns.published_at_ns, columns.publisher, columns.body_bytes, tail_bytes)
    listed = wanted.limit(bindparam("rows")).offset(literal_column("0")).subquery()
    heads, names = text_of(select(*map(func.json_group_array, listed.columns)), dialect)
    assert names == ("topic_id", "start", "stop", "rows")
    behind = columns.expires_at_ns, columns.only_for, columns.checksum, columns.group_key, columns.outcome_to
    tails = _rows(columns.tail, *behind)
    tail, *others = tails.subquery().columns
    joined = cast(func.group_concat(tail, literal_column("''")), LargeBinary)
    joined_tails, _ = text_of(select(joined, *map(func.json_group_array, others)), dialect)
    single_tails, _ = text_of(tails, dialect)
    return Statements(BatchWriter(dialect, message_insertion(dialect)), heads, joined_tails, single_tails)


@final
class SqliteStore(Store):
    """Opens the file, which must exist and be migrated."""

    _begin = BEGIN_WRITING
    checked_tables = messages.name, gaps.name, ledger_batches.name

    def __init__(self, file: Path) -> None:
        super().__init__(str(file), writing_engine(file), reading_engine(file))
        self._statements = statements()
        self._batch_writer = self._statements.batch_writer
        self._fair_lock = FairLock()
        self._upkeep = Checkpoints(file, self._fair_lock)

    def _connect(self) -> Connection:
        # If the log was deleted, a new connection would begin another one beside those that still use the old one.
        self._upkeep.check_log()
        return super()._connect()

    def _writing_alone(self) -> FairLock:
        return self._fair_lock

    def _note_written(self, cursor: DBAPICursor, batch: Batch) -> None:
        self._upkeep.note_written(cursor, batch)

    def commit(self, batch: Batch) -> None:
        super().commit(batch)
        if self._upkeep.is_overdue:
            # The batch is safe. If the log cannot be shortened, a later commit will fail and say so.
            with suppress(StoreFailing):
                self.checkpoint()

    def close(self, *, is_sound: bool = True) -> None:
        super().close(is_sound=is_sound)
        self._upkeep.close()

    def stored_bytes(self) -> int:
        with self._failures.translated():
            return self._upkeep.stored_bytes()

    def free_bytes(self) -> int:
        with self._failures.translated():
            return self._upkeep.free_bytes()

    @property
    def needs_checkpoint(self) -> bool:
        return self._upkeep.is_due

    def checkpoint(self, *, truncate: bool = False) -> None:
        with self._failures.translated():
            self._upkeep.run(truncate=truncate)

    def _read_rows(self, connection: Connection, topic_id: int, start: int, stop: int, limits: PageLimits) -> Rows:
        columns = connection.exec_driver_sql(self._statements.heads, (topic_id, start, stop, limits.rows)).one()
        offsets, published_at_ns, publishers, body_bytes, tail_bytes = map(json.loads, columns)
        if not offsets:
            return Rows((), is_cut=False)
        ends = list(accumulate(tail_bytes))
        del ends[bisect_left(ends, limits.bytes) + 1 :]
        tails = self._tails(connection, (topic_id, offsets[0], offsets[len(ends) - 1] + 1), ends)
        is_cut = len(offsets) == limits.rows or ends[-1] >= limits.bytes
        # There are as many tails as rows in the page, so they decide where the other columns end.
        return Rows(zip(offsets, published_at_ns, publishers, body_bytes, *tails, strict=False), is_cut)

    def _tails(self, connection: Connection, rows: tuple[int, int, int], ends: list[int]) -> Iterable[Iterable[Any]]:
        """Tails of the rows, and the columns behind them; `ends` are those of the tails when joined."""
        if ends[-1] < LONG_TAIL_BYTES * len(ends):
            joined, *others = connection.exec_driver_sql(self._statements.joined_tails, rows).one()
            # SQLite joins texts, and does not say what becomes of a NUL among them. Before 3.39 it was the end.
            if len(joined) == ends[-1]:
                tails = [joined[start:end] for start, end in zip([0, *ends], ends, strict=False)]
                return tails, *map(json.loads, others)
        return zip(*connection.exec_driver_sql(self._statements.single_tails, rows), strict=True)


def _rows(*columns: ColumnElement[Any]) -> Select[Any]:
    return select(*columns).where(*IN_RANGE).order_by(messages.c.offset)
