"""Give topics a kind, which is part of their key.

Why: the queue `a` and the topic `a` are two things that may both be there. What there was are topics.
Kind: expand; the rows of `topics` are written anew, since the kind is part of their checksums. No other table changes.
Previous release: stop it first, since the rows it writes get checksums that do not fit any more. It does not start on
the result: downgrade first, which is refused while there is anything but topics.

Revision 0005, after 0004.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from zlib import crc32

import sqlalchemy as sa
from alembic import op

if TYPE_CHECKING:
    from collections.abc import Iterable

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

#: SQLite keeps a table in the order of its INTEGER PRIMARY KEY, which must be spelt so.
_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    rows = _taken_out("id", "name", "next_offset", "whole_from")
    _create(
        sa.UniqueConstraint("kind", "name", name=op.f("uq_topics_kind_name")),
        sa.Column("kind", sa.Text(), nullable=False, server_default="topic"),
    )
    _put_back([({"id": row["id"], "kind": "topic", **row}, checksum, is_sound) for row, checksum, is_sound in rows])


def downgrade() -> None:
    others = op.get_bind().execute(sa.text("SELECT count(*) FROM topics WHERE kind <> 'topic'")).scalar_one()
    if others:
        raise RuntimeError(f"There are {others} queues, which the release before does not know: delete them first.")
    rows = _taken_out("id", "kind", "name", "next_offset", "whole_from")
    _create(sa.UniqueConstraint("name", name=op.f("uq_topics_name")))
    for row, _, _ in rows:
        del row["kind"]
    _put_back(rows)


def _taken_out(*names: str) -> list[tuple[dict[str, Any], int | None, bool]]:
    """All rows, each with its checksum and whether that is right. The table is dropped."""
    connection = op.get_bind()
    if connection.dialect.name == "sqlite":
        # A damaged table may hide rows. They would be lost for good, and nobody would know.
        found = connection.exec_driver_sql("PRAGMA integrity_check('topics')").scalars().first()
        if found != "ok":
            raise RuntimeError(f"The table topics is damaged ({found}). Restore the database from a backup.")
    columns: list[sa.ColumnElement[Any]] = [sa.column(name) for name in (*names, "checksum")]
    rows = []
    for *values, checksum in connection.execute(sa.select(*columns).select_from(sa.table("topics"))):
        rows.append((dict(zip(names, values, strict=True)), checksum, checksum == _checksum(values)))
    op.drop_table("topics")
    return rows


def _create(unique: sa.UniqueConstraint, *kind: sa.Column[Any]) -> None:
    op.create_table(
        "topics",
        sa.Column("id", _ID, autoincrement=False, nullable=False),
        *kind,
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("next_offset", sa.BigInteger(), nullable=False),
        sa.Column("whole_from", sa.BigInteger(), nullable=True),
        sa.Column("checksum", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_topics")),
        unique,
    )


def _put_back(rows: list[tuple[dict[str, Any], int | None, bool]]) -> None:
    """A row that was damaged keeps its wrong checksum, so that it is still found to be; one without any gets none."""
    if rows:
        names = [*rows[0][0], "checksum"]
        op.bulk_insert(
            sa.table("topics", *map(sa.column, names)),
            [{**row, "checksum": _checksum(row.values()) if is_sound else found} for row, found, is_sound in rows],
        )


def _checksum(values: Iterable[Any]) -> int:
    """As `stompbroker/storage/row_format.py` has it."""
    return crc32(repr(tuple(values)).encode())
