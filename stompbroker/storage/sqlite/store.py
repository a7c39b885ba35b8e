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
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

from sqlalchemy import LargeBinary, bindparam, cast, func, literal_column, select
from sqlalchemy.dialects import sqlite

from stompbroker.storage.batch_statements import batch_statements
from stompbroker.storage.paging import Rows
from stompbroker.storage.schema import gaps, ledger_batches, messages
from stompbroker.storage.sqlite.engine import reading_engine, writing_engine
from stompbroker.storage.sqlite.file_writing import FileWriting
from stompbroker.storage.statements import IN_RANGE, text_of
from stompbroker.storage.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from sqlalchemy import ColumnElement, Connection, Select

    from stompbroker.storage.batch_writing import BatchStatements
    from stompbroker.storage.paging import PageLimits

#: Tails with this many bytes on average are read one by one: a page has at most 256 of them, and joining them would
#: copy too much.
LONG_TAIL_BYTES: Final = 4096


class Statements(NamedTuple):
    """Those that are compiled once, for all stores of the process."""

    batches: BatchStatements
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
    return Statements(batch_statements(dialect), heads, joined_tails, single_tails)


@final
class SqliteStore(FileWriting, Store):
    """Opens the file, which must exist and be migrated."""

    checked_tables = messages.name, gaps.name, ledger_batches.name

    def __init__(self, file: Path) -> None:
        super().__init__(str(file), writing_engine(file), reading_engine(file))
        self._statements = statements()
        self._begin_writing(file, self._statements.batches)

    def _connect(self) -> Connection:
        self._upkeep.check_log()  # as FileWriter does
        return super()._connect()

    def hand_over(self) -> dict[str, Any]:
        return super().hand_over() | {
            "fence": tuple(self._fence.texts),
            "statements": self._statements.batches.as_values(),
        }

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
