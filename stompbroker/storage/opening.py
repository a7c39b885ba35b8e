"""From what the operator wrote to an open store.

Law: opening an embedded file migrates it. A server database, which others may be using, is migrated only by the command
that says so. A database that a newer release has changed is never opened.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Final

from stompbroker.errors import OperatorError
from stompbroker.storage import migrating, postgres, sqlite
from stompbroker.storage.failures import RESTORE, Failures
from stompbroker.storage.migrating import Standing
from stompbroker.storage.postgres import PostgresBackend, passwords_in, server_url, shown
from stompbroker.storage.sqlite import SqliteBackend, database_file
from stompbroker.storage.store import Store

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import Connection, Engine

__all__ = ["current_revision", "head_revision", "migrate", "open_store", "recognise"]

#: Says which store a data directory has, so that one that is lost is not mistaken for the first start.
MARKER_NAME: Final = "store.id"

head_revision = migrating.head_revision


def open_store(database: str, directory: Path) -> Store:
    """Open the PostgreSQL database at the URL `database` or, if that is empty, the SQLite file in `directory`.

    The caller holds the directory. Raises OperatorError.
    """
    if not database:
        migrate(database, directory)
        file = database_file(directory)
        with Failures(sqlite3, str(file)).translated_for_operator("Cannot open"):
            return Store(SqliteBackend(file))
    url = server_url(database)
    engine, failures = _migrating_engine(database, directory)
    with failures.translated_for_operator("Cannot open the database"), engine.connect() as connection:
        found = _usable_standing(connection, shown(url))
        if found is not Standing.CURRENT:
            raise OperatorError(
                f"The database {shown(url)} {found.value}. Bring it up to date first: "
                f"stompbroker migrate --database {shown(url)}"
            )
    return Store(PostgresBackend(url))


def migrate(database: str, directory: Path) -> list[str]:
    """Bring a database up to date; returns the revisions applied, oldest first. Raises OperatorError."""
    if not database and not database_file(directory).exists():
        _refuse_lost(directory, "is gone")
    engine, failures = _migrating_engine(database, directory)
    with failures.translated_for_operator("Cannot migrate the database"), engine.begin() as connection:
        found = _usable_standing(connection, _shown(database, directory))
        if not database and found is Standing.EMPTY:
            _refuse_lost(directory, "is empty")
        return migrating.bring_up_to_date(connection)


def recognise(directory: Path, store_id: str) -> None:
    """Remember which store the directory has, or make sure that it is still that one. Raises OperatorError."""
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


def _refuse_lost(directory: Path, what: str) -> None:
    """There is nothing in the file, or no file, as at the first start. SQLite takes one that was cut within its first
    page for empty too. Raises OperatorError if there was a store before."""
    file, marker = database_file(directory), directory / MARKER_NAME
    if marker.exists():
        raise OperatorError(
            f"The database file {file} {what}, although the directory had a store. {RESTORE} "
            f"To begin with an empty one instead, remove {marker}."
        )


def current_revision(database: str, directory: Path) -> str | None:
    """The revision a database is at; None when it is empty. Raises OperatorError."""
    engine, failures = _migrating_engine(database, directory)
    with failures.translated_for_operator("Cannot open the database"), engine.connect() as connection:
        return migrating.current_revision(connection)


def _migrating_engine(database: str, directory: Path) -> tuple[Engine, Failures]:
    where = _shown(database, directory)
    if not database:
        return sqlite.writing_engine(database_file(directory), may_create=True), Failures(sqlite3, where)
    url = server_url(database)
    engine = postgres.migrating_engine(url)
    return engine, Failures(engine.dialect.loaded_dbapi, where, passwords_in(url))


def _shown(database: str, directory: Path) -> str:
    return shown(server_url(database)) if database else str(database_file(directory))


def _usable_standing(connection: Connection, where: str) -> Standing:
    """Where the database stands. Raises OperatorError if it is of no use to us, whatever is done to it."""
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
