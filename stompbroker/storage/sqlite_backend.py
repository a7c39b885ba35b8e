"""A store in an SQLite file.

Law: one broker at a time opens the file; the caller's lock on the data directory sees to that, so there is none here.
One thread writes, in the broker or in the process that it has handed writing to; others read beside it.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from typing import TYPE_CHECKING, Final, final

from stompbroker.storage.batch_writing import BatchWriter, message_insertion
from stompbroker.storage.checkpoints import Checkpoints
from stompbroker.storage.failures import Failures
from stompbroker.storage.fair_lock import Turns
from stompbroker.storage.schema import gaps, ledger_batches, messages
from stompbroker.storage.sqlite_engine import BEGIN_WRITING, reading_engine, writing_engine
from stompbroker.storage.sqlite_paging import SqlitePageReader

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from sqlalchemy import Connection
    from sqlalchemy.engine.interfaces import DBAPICursor

    from stompbroker.storage.batch import Batch

__all__ = ["SqliteBackend"]


@final
class SqliteBackend:
    """Opens the file, which must exist and be migrated."""

    begin = BEGIN_WRITING
    checked_tables: Final = [messages.name, gaps.name, ledger_batches.name]

    def __init__(self, file: Path) -> None:
        self._directory = str(file.parent)
        opened = file.stat()
        self._file_id = opened.st_dev, opened.st_ino
        self.where = str(file)
        self.failures = Failures(sqlite3, self.where)
        self._writers = writing_engine(file)
        self._readers = reading_engine(file)
        self.dialect = self._writers.dialect
        self.batch_writer = BatchWriter(self.dialect, message_insertion(self.dialect))
        self.read_rows = SqlitePageReader(self.dialect)
        self._writing = Turns()
        self._checkpoints = Checkpoints(file, self._writing)

    def connect(self) -> Connection:
        # A new connection would begin a new log where there is none, beside those that still use the old one.
        self._checkpoints.check_log()
        return self._writers.connect()

    def reading(self) -> AbstractContextManager[Connection]:
        return self._readers.begin()

    def writing(self) -> AbstractContextManager[object]:
        return self._writing

    def lock(self) -> bool:
        return True

    def lock_holder(self) -> str:
        return "nobody"

    def note_written(self, cursor: DBAPICursor, batch: Batch) -> None:
        cursor.execute("PRAGMA freelist_count")
        (free_pages,) = cursor.fetchone() or (0,)
        self._checkpoints.note_commit(batch, free_pages)

    def free_bytes(self) -> int:
        """What the file system has left for us, what is free inside the file, and what is kept for deletions; negative
        if deletions have to make room first.

        SQLite goes on writing to a file that was deleted or replaced: what is written there is lost. That holds for its
        log as well. Raises OSError or StoreFailing.
        """
        self._checkpoints.check_log()
        found = os.stat(self.where)
        if (found.st_dev, found.st_ino) != self._file_id:
            raise OSError(errno.ESTALE, "another file has taken its place", self.where)
        system = os.statvfs(self._directory)
        free_bytes = system.f_bavail * system.f_frsize + self._checkpoints.free_pages_bytes
        return free_bytes + self._checkpoints.reserved_bytes

    def stored_bytes(self) -> int:
        return self._checkpoints.stored_bytes()

    @property
    def is_checkpoint_due(self) -> bool:
        return self._checkpoints.is_due

    @property
    def is_checkpoint_overdue(self) -> bool:
        return self._checkpoints.is_overdue

    def checkpoint(self, *, truncate: bool) -> None:
        self._checkpoints.run(truncate=truncate)

    def close(self) -> None:
        self._readers.dispose()
        self._writers.dispose()
        self._checkpoints.close()
