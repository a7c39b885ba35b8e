"""From the database the operator named to an open, migrated one.

Opening an embedded file migrates it. A server database, which others may be using, is migrated only by the command for
that. A database that a newer release has changed is never opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stompbroker.errors import OperatorError
from stompbroker.storage import migrating, paging, postgres
from stompbroker.storage.failures import RESTORE, Failures
from stompbroker.storage.migrating import Standing
from stompbroker.storage.schema import ledger_batches
from stompbroker.storage.sqlite.backend import SqliteBackend
from stompbroker.storage.sqlite.engine import database_file, reading_engine, writing_engine
from stompbroker.storage.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sqlalchemy import Connection, Engine

    from stompbroker.storage.batch import ExportRow

__all__ = ["migrate", "open_store", "read_ledger", "recognise"]

#: Names the store of a data directory, so that a lost one is not mistaken for a first start.
MARKER_NAME: Final = "store.id"


def open_store(database: str, directory: Path) -> Store:
    """Open the PostgreSQL database at the URL `database` or, if that is empty, the SQLite file in `directory`.

    The caller holds the directory. Raises OperatorError.
    """
    engine, failures = _engine(database, directory, migrates=True)
    if not database:
        migrate(database, directory)
        with failures.translated_for_operator("Cannot open"):
            return Store(SqliteBackend(database_file(directory)))
    with failures.translated_for_operator("Cannot open the database"), engine.connect() as connection:
        found = _usable_standing(connection, failures.where)
        if found is not Standing.CURRENT:
            raise OperatorError(
                f"The database {failures.where} {found.value}. Bring it up to date first: "
                f"stompbroker migrate --database {failures.where}"
            )
    return Store(postgres.PostgresBackend(postgres.server_url(database)))


def migrate(database: str, directory: Path) -> list[str]:
    """Bring a database up to date; returns the revisions applied, oldest first. Raises OperatorError."""
    if not database and not database_file(directory).exists():
        _refuse_lost(directory, "is gone")
    engine, failures = _engine(database, directory, migrates=True)
    with failures.translated_for_operator("Cannot migrate the database"), engine.begin() as connection:
        found = _usable_standing(connection, failures.where)
        if not database and found is Standing.EMPTY:
            _refuse_lost(directory, "is empty")
        return migrating.bring_up_to_date(connection)


def recognise(directory: Path, store_id: str) -> None:
    """Remember which store the directory has, or check that it is still that one. Raises OperatorError."""
    marker = directory / MARKER_NAME
    try:
        if not marker.exists():
            marker.write_text(f"{store_id}\n")
        known = marker.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise OperatorError(f"The file {marker}, which says whose store it is, cannot be used: {error}.") from error
    if known != store_id:
        raise OperatorError(
            f"The store in {directory} is {store_id}, but the directory had the store {known}. If the database file "
            f"was replaced on purpose, remove {marker} first."
        )


def read_ledger(database: str, directory: Path, export: ExportRow) -> Iterator[tuple[int, bytes]]:
    """Id and payload of each ledger batch of an export, in order. For a process that knows only where the database is.

    Many short transactions: a long one would keep the write-ahead log from being shortened. Batches never change, and
    stay until their file is written. Raises OperatorError, or StoreDamaged for a batch that is not as it was written.
    """
    engine, failures = _engine(database, directory, migrates=False)
    columns = ledger_batches.c
    in_export = columns.kind == export.kind, columns.day == export.day, columns.id <= export.last_batch
    after = export.after_batch
    try:
        while True:
            with failures.translated_for_operator("Cannot read the ledger in"), engine.begin() as connection:
                found = paging.ledger_page(connection, after, *in_export)
            for row in found:
                paging.check_batch(row)
                yield row.id, bytes(row.payload)
            if len(found) < paging.LEDGER_PAGE_ROWS:
                return
            after = found[-1].id
    finally:
        engine.dispose()


def _engine(database: str, directory: Path, *, migrates: bool) -> tuple[Engine, Failures]:
    """For migrating, or else only for reading."""
    if not database:
        file = database_file(directory)
        engine = writing_engine(file, may_create=True) if migrates else reading_engine(file)
        return engine, Failures(engine, str(file))
    url = postgres.server_url(database)
    engine = postgres.migrating_engine(url) if migrates else postgres.reading_engine(url)
    return engine, Failures(engine, postgres.shown(url), postgres.passwords_in(url))


def _refuse_lost(directory: Path, what: str) -> None:
    """Raises OperatorError if the directory had a store. SQLite also finds a file empty that was cut within its first
    page."""
    file, marker = database_file(directory), directory / MARKER_NAME
    if marker.exists():
        raise OperatorError(
            f"The database file {file} {what}, although the directory had a store. {RESTORE} "
            f"To begin with an empty one instead, remove {marker}."
        )


def _usable_standing(connection: Connection, where: str) -> Standing:
    """Where the database stands. Raises OperatorError if no migration can make it usable."""
    if connection.dialect.name == "postgresql":
        encoding = connection.exec_driver_sql("SHOW server_encoding").scalar_one()
        if encoding != "UTF8":
            raise OperatorError(
                f"The database {where} has the encoding {encoding}, in which not every name can be written. "
                "Create one with ENCODING UTF8."
            )
    found = migrating.standing_of(connection)
    if found is Standing.AHEAD:
        raise OperatorError(f"The database {where} {found.value}. Run that release, or a later one.")
    return found
