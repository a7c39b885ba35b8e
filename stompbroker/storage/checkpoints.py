"""What an SQLite file needs besides being written: its write-ahead log copied back, and its free pages given back.

Law: nothing here is needed for correctness, only for the sizes of files. Checkpoints are PASSIVE and run on a
connection of their own, beside the writer, so that nobody waits for them; a second, short one with the writer held off
copies what came meanwhile, without which a writer that never rests would let the log grow for ever.
"""

from __future__ import annotations

import os
from threading import Lock
from typing import TYPE_CHECKING, Final, final

from stompbroker.message import tails_bytes
from stompbroker.storage.sqlite_engine import connect_file

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

    from stompbroker.storage.batch import Batch
    from stompbroker.storage.turns import Turns

__all__ = ["CHECKPOINT_BYTES", "FREE_PAGES_BYTES", "Checkpoints"]

#: Bytes in the log at which a checkpoint is due: half a second of the highest load we know.
CHECKPOINT_BYTES: Final = 16 * 1024 * 1024
OVERDUE_BYTES: Final = 8 * CHECKPOINT_BYTES
#: What a commit costs in the log beside the tails, in bytes: a page of each table and index it touches.
COMMIT_BYTES: Final = 24 * 1024
#: Free pages are reused before the file grows, so they are given back only when there are this many bytes of them, and
#: when they are half of the file.
FREE_PAGES_BYTES: Final = 64 * 1024 * 1024
#: Pages given back in one go: they are moved within the file with the writer held off, about 8 ms.
VACUUM_PAGES: Final = 512
#: How long a checkpoint waits for a reader, in milliseconds; it holds the writer off, and there will be another one.
BUSY_TIMEOUT_MS: Final = 100


@final
class Checkpoints:
    """The upkeep of one file.

    `writing` is held by whoever writes to the file; this class takes it for short stretches of its own.

    As long as this connection is open SQLite remembers which part of the log was committed. Otherwise the first one to
    open the file after a failed sync would take for committed what is in the log, also if it never reached the disk.
    """

    def __init__(self, file: Path, writing: Turns) -> None:
        self._file = file
        self._writing = writing
        self._running = Lock()
        self._connection: sqlite3.Connection = connect_file(file)
        self._connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}").fetchall()
        self._page_bytes = self._asked("page_size")
        self._log_bytes = 0
        self._free_pages = self._asked("freelist_count")
        self._has_many_free = self._finds_many_free()

    @property
    def is_due(self) -> bool:
        return self._log_bytes >= CHECKPOINT_BYTES or self._has_many_free

    @property
    def is_overdue(self) -> bool:
        """Nobody has seen to it for long; then the writer does, so that the log does not grow for ever."""
        return self._log_bytes >= OVERDUE_BYTES

    @property
    def free_pages_bytes(self) -> int:
        """As of the last commit."""
        return self._free_pages * self._page_bytes

    def note_commit(self, batch: Batch, free_pages: int) -> None:
        """A batch has been written, and the file has this many free pages now. The log's length is estimated: SQLite
        tells it only to who checkpoints."""
        self._log_bytes += COMMIT_BYTES + sum(tails_bytes(run.messages) for run in batch.messages)
        self._free_pages = free_pages

    def run(self, *, truncate: bool) -> None:
        """Returns at once while another call is at it."""
        if not self._running.acquire(blocking=False):
            return
        try:
            self._run(truncate=truncate)
        finally:
            self._running.release()

    def _run(self, *, truncate: bool) -> None:
        self._log_bytes = 0
        self._checkpoint("PASSIVE")
        with self._writing:
            if self._has_many_free:
                # As a script, because it frees a page a step, and `execute` ends at the first row, which has no
                # columns.
                self._connection.executescript(f"PRAGMA incremental_vacuum({VACUUM_PAGES})")
            self._checkpoint("TRUNCATE" if truncate else "PASSIVE")
            self._free_pages = self._asked("freelist_count")
            self._has_many_free = self._finds_many_free()

    def stored_bytes(self) -> int:
        log = self._file.with_name(f"{self._file.name}-wal")
        return os.stat(self._file).st_size + (log.stat().st_size if log.exists() else 0)

    def close(self) -> None:
        self._connection.close()

    def _checkpoint(self, mode: str) -> None:
        self._connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()

    def _finds_many_free(self) -> bool:
        return self.free_pages_bytes >= FREE_PAGES_BYTES and 2 * self._free_pages >= self._asked("page_count")

    def _asked(self, pragma: str) -> int:
        value: int = self._connection.execute(f"PRAGMA {pragma}").fetchone()[0]
        return value
