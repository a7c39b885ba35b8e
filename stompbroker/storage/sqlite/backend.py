"""A store in an SQLite file.

Law: one broker at a time opens the file: the caller holds the lock on the data directory, so there is none here. One
thread writes, in the broker or in the process that it has handed writing to; others read at the same time.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Final, final

from stompbroker.storage.batch_writing import BatchWriter, message_insertion
from stompbroker.storage.failures import Failures
from stompbroker.storage.schema import gaps, ledger_batches, messages
from stompbroker.storage.sqlite.checkpoints import Checkpoints, FairLock
from stompbroker.storage.sqlite.engine import BEGIN_WRITING, reading_engine, writing_engine
from stompbroker.storage.sqlite.paging import SqlitePageReader

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from sqlalchemy import Connection

__all__ = ["SqliteBackend"]


@final
class SqliteBackend:
    """Opens the file, which must exist and be migrated."""

    begin = BEGIN_WRITING
    checked_tables: Final = [messages.name, gaps.name, ledger_batches.name]

    def __init__(self, file: Path) -> None:
        self.where = str(file)
        self.failures = Failures(sqlite3, self.where)
        self._writers = writing_engine(file)
        self._readers = reading_engine(file)
        self.dialect = self._writers.dialect
        self.batch_writer = BatchWriter(self.dialect, message_insertion(self.dialect))
        self.read_rows = SqlitePageReader(self.dialect)
        self._writing = FairLock()
        self.upkeep = Checkpoints(file, self._writing)

    def connect(self) -> Connection:
        # A new connection would begin a new log where there is none, beside those that still use the old one.
        self.upkeep.check_log()
        return self._writers.connect()

    def reading(self) -> AbstractContextManager[Connection]:
        return self._readers.begin()

    def writing(self) -> AbstractContextManager[object]:
        return self._writing

    def lock(self) -> bool:
        return True

    def lock_holder(self) -> str:
        return "nobody"

    def close(self) -> None:
        self._readers.dispose()
        self._writers.dispose()
        self.upkeep.close()
