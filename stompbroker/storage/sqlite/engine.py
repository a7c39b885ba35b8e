"""Connections to the embedded SQLite file.

Law: every connection is given the same settings, and those that durability rests on are read back from the connection
that was given them. Transactions begin where we say: Python's own way of beginning them is off.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Final

from sqlalchemy import NullPool, Pool, QueuePool, create_engine, event

from stompbroker.errors import OperatorError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sqlalchemy import Connection, Engine

__all__ = ["BEGIN_WRITING", "connect_file", "database_file", "reading_engine", "writing_engine"]

#: The embedded database, in the data directory.
FILE_NAME: Final = "stompbroker.db"

#: Milliseconds to wait for a lock. We are the only process, and our own threads keep out of each other's way; somebody
#: with a command-line tool is worth this much patience, then the journal tries again by itself.
BUSY_TIMEOUT_MS: Final = 2_000

#: The write-ahead log is cut back to this when it begins anew: a little above what `Checkpoints` lets it reach.
JOURNAL_SIZE_LIMIT_BYTES: Final = 96 * 1024 * 1024

PRAGMAS: Final = (
    ("journal_mode", "WAL"),
    ("synchronous", "FULL"),
    ("wal_autocheckpoint", "0"),
    ("journal_size_limit", str(JOURNAL_SIZE_LIMIT_BYTES)),
    ("foreign_keys", "OFF"),
    ("temp_store", "MEMORY"),
    # Some builds overwrite what is deleted, for which every page it was in goes through the log once more.
    ("secure_delete", "OFF"),
)
#: Takes the lock of the file at once: two who want to write do not find out only when they do.
BEGIN_WRITING: Final = "BEGIN IMMEDIATE"
#: What must be found when asked afterwards. FULL is 2.
READ_BACK: Final = {"journal_mode": "wal", "synchronous": 2}


def database_file(directory: Path) -> Path:
    # Absolute: SQLite opens its other files by name later on, wherever the process then stands.
    return directory.absolute() / FILE_NAME


def writing_engine(file: Path, *, may_create: bool = False) -> Engine:
    """Each connection is a new one, and each transaction on it may write from its first statement on."""
    return _engine(lambda: connect_file(file, may_create=may_create), begin=BEGIN_WRITING, pool=NullPool)


def reading_engine(file: Path) -> Engine:
    """Connections are kept for the next reader."""

    def connect() -> sqlite3.Connection:
        connection = connect_file(file)
        connection.execute("PRAGMA query_only = ON")
        return connection

    return _engine(connect, begin="BEGIN", pool=QueuePool)


def connect_file(file: Path, *, may_create: bool = False) -> sqlite3.Connection:
    # Only who migrates may create the file. One that vanishes under a running broker is a failing store, not an empty
    # one.
    uri = f"{file.as_uri()}?mode={'rwc' if may_create else 'rw'}"
    # One thread at a time uses a connection, but not always the same one.
    connection = sqlite3.connect(
        uri, uri=True, isolation_level=None, check_same_thread=False, timeout=BUSY_TIMEOUT_MS / 1000
    )
    try:
        _set_up(connection, file)
    except BaseException:
        connection.close()
        raise
    return connection


def _engine(connect: Callable[[], sqlite3.Connection], *, begin: str, pool: type[Pool]) -> Engine:
    engine = create_engine("sqlite+pysqlite://", creator=connect, poolclass=pool)

    @event.listens_for(engine, "begin")
    def begin_transaction(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    return engine


def _set_up(connection: sqlite3.Connection, file: Path) -> None:
    # Before there is anything in the file, also before the change to WAL. Later it would be a write, and a connection
    # must be had also when nothing can be written.
    if connection.execute("PRAGMA page_count").fetchone()[0] == 0:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    for name, value in PRAGMAS:
        connection.execute(f"PRAGMA {name} = {value}").fetchall()
    for name, expected in READ_BACK.items():
        found = connection.execute(f"PRAGMA {name}").fetchone()[0]
        if found != expected:
            raise OperatorError(
                f"{file} cannot be used: SQLite answers {name} = {found!r} where durability needs {expected!r}. "
                "Put the data directory on a local file system."
            )
