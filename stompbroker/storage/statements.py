"""One statement for many rows.

A statement is compiled once for one row, and repeats its part for as many rows as it gets. Rows are cut into powers of
two, so that few texts are used again and again. Never a call per row: beside a busy event loop each call waits for the
interpreter's lock.

Hot path: SQLAlchemy's own way to the driver costs 24 µs a statement against 1, and a new text per batch size 3.6 µs a
row against 2.0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final

from sqlalchemy import bindparam, delete
from sqlalchemy.dialects import sqlite

from stompbroker.storage.schema import messages

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from sqlalchemy import ColumnElement, Dialect, Executable, Insert, Table
    from sqlalchemy.engine.interfaces import DBAPICursor

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


@final
@dataclass(slots=True)
class ManyRows:
    """A statement for any number of rows: the text before, a part for each row, and the text after."""

    before: str
    part: str
    after: str
    joined_by: str
    #: Values in a row.
    width: int
    sizes: tuple[int, ...]
    _texts: dict[int, str] = field(default_factory=dict, init=False)

    def run(self, cursor: DBAPICursor, values: Sequence[Any]) -> None:
        """`values` are those of all rows, one after the other."""
        if len(values) == self.width:  # the usual case at a thousand messages a second
            cursor.execute(self._text(1), tuple(values))
            return
        position = 0
        for size in self.sizes:
            step = size * self.width
            while len(values) - position >= step:
                cursor.execute(self._text(size), tuple(values[position : position + step]))
                position += step

    def _text(self, size: int) -> str:
        # Not compiled by SQLAlchemy for so many rows: the largest would take a tenth of a second.
        if size not in self._texts:
            self._texts[size] = self.before + self.joined_by.join([self.part] * size) + self.after
        return self._texts[size]


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
