"""Connections of the driver to the embedded SQLite file.

Every connection gets the same settings, and those that durability rests on are read back from it. Transactions begin
where we say: Python's automatic ones are off.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Final

from stompbroker.errors import OperatorError

if TYPE_CHECKING:
    from pathlib import Path

#: The embedded database, in the data directory.
FILE_NAME: Final = "stompbroker.db"

#: Milliseconds to wait for a lock. Our own threads and processes keep out of each other's way, so it is somebody with a
#: command-line tool. After that the journal tries again by itself.
BUSY_TIMEOUT_MS: Final = 2_000

#: The write-ahead log is cut to this when it starts over: a little above what `Checkpoints` lets it reach.
JOURNAL_SIZE_LIMIT_BYTES: Final = 96 * 1024 * 1024

PRAGMAS: Final = (
    ("journal_mode", "WAL"),
    ("synchronous", "FULL"),
    ("wal_autocheckpoint", "0"),
    ("journal_size_limit", str(JOURNAL_SIZE_LIMIT_BYTES)),
    ("foreign_keys", "OFF"),
    ("temp_store", "MEMORY"),
    # Some builds overwrite deleted data, so that each of its pages goes through the log once more.
    ("secure_delete", "OFF"),
)
#: Takes the file's lock at once, so that a second writer does not first fail in the middle of its transaction.
BEGIN_WRITING: Final = "BEGIN IMMEDIATE"
#: Read back and compared. FULL is 2.
READ_BACK: Final = {"journal_mode": "wal", "synchronous": 2}


def database_file(directory: Path) -> Path:
    # Absolute: SQLite opens its other files by name later, whatever the working directory is then.
    return directory.absolute() / FILE_NAME


def connect_file(file: Path, *, may_create: bool = False) -> sqlite3.Connection:
    # Only migrating may create the file. If it vanishes under a running broker, the store fails, and is not empty.
    uri = f"{file.as_uri()}?mode={'rwc' if may_create else 'rw'}"
    # One thread at a time uses a connection, but not always the same thread.
    connection = sqlite3.connect(
        uri, uri=True, isolation_level=None, check_same_thread=False, timeout=BUSY_TIMEOUT_MS / 1000
    )
    try:
        _set_up(connection, file)
    except BaseException:
        connection.close()
        raise
    return connection


def _set_up(connection: sqlite3.Connection, file: Path) -> None:
    # In an empty file, before the change to WAL. Later it would write, and connecting must work also on a full disk.
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
