"""Pages from PostgreSQL.

Law: one statement a page. The server adds up lengths, which it knows without reading what lies outside of the row, and
sends no row beyond the limits; the driver takes them in binary form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from sqlalchemy import bindparam, func, select

from stompbroker.storage.paging import Rows
from stompbroker.storage.schema import messages
from stompbroker.storage.statements import text_of

if TYPE_CHECKING:
    from sqlalchemy import Connection, Dialect

    from stompbroker.storage.paging import PageLimits

__all__ = ["PostgresPageReader"]


@final
class PostgresPageReader:
    """Reads rows, on whatever connection it is given."""

    def __init__(self, dialect: Dialect) -> None:
        tail_bytes = func.octet_length(messages.c.tail)
        bytes_before = func.sum(tail_bytes).over(order_by=messages.c.offset, rows=(None, 0)) - tail_bytes
        rows = (
            select(messages, bytes_before.label("bytes_before"))
            .where(
                messages.c.topic_id == bindparam("topic_id"),
                messages.c.offset >= bindparam("start"),
                messages.c.offset < bindparam("stop"),
            )
            .order_by(messages.c.offset)
            .limit(bindparam("rows"))
            .subquery()
        )
        columns = rows.columns
        self._text, names = text_of(
            select(
                columns.offset,
                columns.published_at_ns,
                columns.publisher,
                columns.body_bytes,
                columns.tail,
                columns.expires_at_ns,
                columns.only_for,
                columns.checksum,
            )
            .where(columns.bytes_before < bindparam("bytes"))
            .order_by(columns.offset),
            dialect,
        )
        assert names == ("topic_id", "start", "stop", "rows", "bytes")

    def __call__(self, connection: Connection, topic_id: int, start: int, stop: int, limits: PageLimits) -> Rows:
        driver = connection.connection.driver_connection
        assert driver is not None
        with driver.cursor(binary=True) as cursor:
            cursor.execute(self._text, (topic_id, start, stop, limits.rows, limits.bytes))
            rows = cursor.fetchall()
        sent_bytes = sum(len(row[4]) for row in rows)
        return Rows(rows, is_cut=len(rows) == limits.rows or sent_bytes >= limits.bytes)
