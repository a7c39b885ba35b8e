"""What a file of the lake is made of, read from the database.

Law: for a process of its own, which knows where the database is and nothing else; it only reads. Batches are never
changed, and those of an export stay until its file is there, so they are read in many short transactions: a long one
would keep the write-ahead log from being shortened.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import select

from stompbroker.storage import postgres, sqlite
from stompbroker.storage.checking import is_batch_sound
from stompbroker.storage.failures import Failures, StoreDamaged
from stompbroker.storage.schema import ledger_batches

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sqlalchemy import Engine, Row

    from stompbroker.storage.batch import ExportRow

__all__ = ["read_ledger"]

#: Batches that are read at once. One has what was settled in one transaction of the journal, some 100 KiB at most.
PAGE: Final = 32


def read_ledger(database: str, directory: Path, export: ExportRow) -> Iterator[tuple[int, bytes]]:
    """Id and payload of each batch of an export, in order. Raises OperatorError; or StoreDamaged, for a batch that is
    not as it was written."""
    engine, failures = _engine(database, directory)
    try:
        after = export.after_batch
        while True:
            page = (
                select(ledger_batches)
                .where(
                    ledger_batches.c.kind == export.kind,
                    ledger_batches.c.day == export.day,
                    ledger_batches.c.id > after,
                    ledger_batches.c.id <= export.last_batch,
                )
                .order_by(ledger_batches.c.id)
                .limit(PAGE)
            )
            with failures.translated_for_operator("Cannot read the ledger in"), engine.begin() as connection:
                found = connection.execute(page).all()
            yield from map(_checked, found)
            if len(found) < PAGE:
                return
            after = found[-1].id
    finally:
        engine.dispose()


def _checked(row: Row[Any]) -> tuple[int, bytes]:
    if not is_batch_sound(row):
        raise StoreDamaged(f"batch {row.id} of the ledger cannot be read: it is not as it was written")
    return row.id, bytes(row.payload)


def _engine(database: str, directory: Path) -> tuple[Engine, Failures]:
    if not database:
        file = sqlite.database_file(directory)
        return sqlite.reading_engine(file), Failures(sqlite3, str(file))
    url = postgres.server_url(database)
    engine = postgres.reading_engine(url)
    return engine, Failures(engine.dialect.loaded_dbapi, postgres.shown(url), postgres.passwords_in(url))
