"""Statements as texts: compiled once from the tables, and run without SQLAlchemy (`many_rows.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import bindparam, delete
from sqlalchemy.dialects import sqlite

from stompbroker.storage.many_rows import ManyRows
from stompbroker.storage.schema import messages

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from sqlalchemy import ColumnElement, Dialect, Executable, Insert, Table

#: Rows per statement. The largest, with the widest table, has 6,656 parameters: SQLite takes 32,766, PostgreSQL 65,535.
SIZES: Final = (512, 256, 128, 64, 32, 16, 8, 4, 2, 1)
#: Conditions joined by OR are planned one by one, so these stay short.
CONDITION_SIZES: Final = (64, 16, 4, 1)
#: The messages of a topic at offsets start <= o < stop.
IN_RANGE: Final = (
    messages.c.topic_id == bindparam("topic_id"),
    messages.c.offset >= bindparam("start"),
    messages.c.offset < bindparam("stop"),
)


def text_of(statement: Executable, dialect: Dialect) -> tuple[str, tuple[str, ...]]:
    """The statement as the driver takes it, and the names of its parameters in their order."""
    compiled = statement.compile(dialect=dialect)  # type: ignore[attr-defined]
    return str(compiled), tuple(compiled.positiontup)


def insertion(table: Table, dialect: Dialect, *, left_out: Collection[str] = ()) -> ManyRows:
    """New rows, their values in the order of the columns. Columns that are left out get their defaults."""
    columns = [column.name for column in table.columns if column.name not in left_out]
    return _inserting(table.insert().values({name: bindparam(name) for name in columns}), columns, dialect)


def upsert(table: Table, dialect: Dialect, *, never_changed: Collection[str] = ()) -> ManyRows:
    """New rows, or new values for rows whose primary key is there. No key may come twice in one run.

    `never_changed` saves work: SQLite writes the index of a column even if its value stays the same.
    """
    if dialect.name == "postgresql":
        from sqlalchemy.dialects import postgresql  # 30 ms and 2 MiB, which an embedded store need not have

        statement: postgresql.Insert | sqlite.Insert = postgresql.insert(table)
    else:
        statement = sqlite.insert(table)
    keys = [column.name for column in table.primary_key]
    kept = {*keys, *never_changed}
    changed = {column.name: statement.excluded[column.name] for column in table.columns if column.name not in kept}
    inserting_or_changing = statement.on_conflict_do_update(index_elements=keys, set_=changed)
    return _inserting(inserting_or_changing, table.columns.keys(), dialect)


def deletion(table: Table, conditions: Sequence[ColumnElement[bool]], dialect: Dialect) -> ManyRows:
    """Delete all rows that meet all conditions for one of the given rows. Each condition has one parameter."""
    text, names = text_of(delete(table).where(*conditions), dialect)
    assert len(names) == len(conditions)
    before, where, condition = text.partition(" WHERE ")
    return ManyRows(before + where, f"({condition})", "", " OR ", len(conditions), CONDITION_SIZES)


def _inserting(statement: Insert, columns: Sequence[str], dialect: Dialect) -> ManyRows:
    text, names = text_of(statement, dialect)
    assert list(names) == list(columns)
    before, values, row_and_rest = text.partition(" VALUES ")
    row, closing, after = row_and_rest.partition(")")
    return ManyRows(before + values, row + closing, after, ", ", len(names), SIZES)
