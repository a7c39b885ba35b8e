"""Upkeep of an SQLite file: checkpoints, room ahead in its write-ahead log, and the release of free pages.

Only file sizes and waiting times depend on it, never correctness. Checkpoints are PASSIVE and run on a connection of
their own, so that nobody waits for them. A last, short one holds the writer off; otherwise a writer that never rests
would let the log grow for ever.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from contextlib import contextmanager, suppress
from threading import Lock
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Final, final

from stompbroker.message import tails_bytes
from stompbroker.storage.failures import StoreFailing
from stompbroker.storage.sqlite.disk_room import LogFile, Reserve
from stompbroker.storage.sqlite.file import BEGIN_WRITING, connect_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sqlalchemy.engine.interfaces import DBAPICursor

    from stompbroker.storage.batch import Batch

#: Bytes in the log at which a checkpoint is due: a second of the highest load we know. A commit beside a checkpoint
#: takes several times as long; with 16 MiB, at 1,000 commits a second, that was more than one in a hundred.
CHECKPOINT_BYTES: Final = 64 * 1024 * 1024
#: Sooner on a full disk: the log may need as much again in the file, and the disk must not fill up before publishers
#: are held back (`min_free_bytes`). This share of the free bytes, but at least the second value.
SHARE_OF_FREE: Final = 4
LEAST_CHECKPOINT_BYTES: Final = 1024 * 1024
#: A checkpoint is overdue at this many times the bytes at which it is due.
OVERDUE: Final = 4
#: Bytes that a commit adds to the log besides tails: a page of each table and index it touches.
COMMIT_BYTES: Final = 24 * 1024
#: Bytes that a deleted message adds: its share of a page of each.
DELETION_BYTES: Final = 320
#: Free pages are reused before the file grows, so they are released only from this many bytes on, and only if they are
#: half of the file.
FREE_PAGES_BYTES: Final = 64 * 1024 * 1024
#: How long pages are released in one go, in seconds, with the writer held off; and how many between two looks at the
#: clock. One takes 10 µs, or 200 where a hundred thousand others are free.
RELEASING_S: Final = 0.002
VACUUM_PAGES: Final = 4
#: Pages in the log for a released one: the one it is moved to, and its share of those that point to it.
PAGES_MOVED: Final = 2
#: How long the log is lengthened in one go, and the pause after each step, in seconds, in which commits have the disk
#: to themselves. That makes 30 MiB a second, more than a thousand commits need.
MAKING_ROOM_S: Final = 0.1
ROOM_PAUSE_S: Final = 0.002
#: How long a checkpoint, which holds the writer off, waits for a reader, in milliseconds. There will be another one.
BUSY_TIMEOUT_MS: Final = 100


@final
class FairLock:
    """A lock that waiting threads get in turn, for the length of a `with` block.

    A plain lock goes to the first who asks, and a writer that never rests is always first.

    Invariants:
        a thread that waits for `_held` holds `_next`, so no other thread asks for `_held`
    """

    __slots__ = ("_held", "_next")

    def __init__(self) -> None:
        self._next = Lock()
        self._held = Lock()

    def __enter__(self) -> None:
        with self._next:
            self._held.acquire()

    def __exit__(self, *_: object) -> None:
        self._held.release()


@final
class Checkpoints:
    """The upkeep of one file.

    `writing` is held during every write; this class takes it for short moments.

    While our connection is open, SQLite remembers which part of the log was committed. Otherwise the next connection
    after a failed sync would take the whole log for committed, even if it never reached the disk.
    """

    def __init__(self, file: Path, writing: FairLock) -> None:
        #: Not a path, which would be slower: it is used with every commit.
        self._file = str(file)
        opened = os.stat(self._file)
        self._file_id = opened.st_dev, opened.st_ino
        self._log_file = LogFile(file)
        self._writing = writing
        self._running = Lock()
        self._connection: sqlite3.Connection = connect_file(file)
        self._connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}").fetchall()
        # Releasing pages need not be durable. Checkpoints sync all the same.
        self._connection.execute("PRAGMA synchronous = NORMAL").fetchall()
        self._page_bytes = self._asked("page_size")
        self._estimated_bytes = 0
        self._due_bytes = CHECKPOINT_BYTES
        self._lacks_room = False
        self._reserve = Reserve(file)
        self._lacks_reserve = False
        self._free_pages = 0
        self._note_free_pages()
        # SQLite has opened its log by now, and keeps this very file while our connection is open.
        self._log_identity = self._log_file.look()
        self._file_bytes_before = self._log_file.length_bytes
        #: What may be used, as of the last look: free space of the file system, free pages inside the file, and the
        #: reserve; negative if deletions have to make room first.
        self.free_bytes = 0

    def check_log(self) -> None:
        """Raises StoreFailing if the log was deleted or replaced. SQLite would go on writing to the file it has open,
        which ends with our process, so the log is copied to the database file while we can still read it."""
        if self._log_file.look() == self._log_identity:
            return
        with self._running, self._writing:
            self._checkpoint("PASSIVE")
        raise StoreFailing(
            f"The write-ahead log {self._log_file.where} was deleted or replaced while the broker ran. What was "
            "confirmed has been copied to the database file, and nothing is confirmed any more. Restart the broker."
        )

    @property
    def is_due(self) -> bool:
        """Whether `run` has something to do, as of the last look."""
        return self._has_many_free or self._lacks_room or self._lacks_reserve or self._is_long

    @property
    def _is_long(self) -> bool:
        return self._log_bytes() >= self._due_bytes

    @property
    def is_overdue(self) -> bool:
        """Whether the writer should call `run` itself, so that the log does not grow for ever."""
        return self._log_bytes() >= OVERDUE * self._due_bytes

    def look(self) -> None:
        """See what is used and what is free. Costs four system calls, so that it can be done with every commit.

        Raises OSError or StoreFailing if the file or its log was deleted or replaced: SQLite would go on writing to the
        old one.
        """
        self.check_log()
        found = os.stat(self._file)
        if (found.st_dev, found.st_ino) != self._file_id:
            raise OSError(errno.ESTALE, "another file has taken its place", self._file)
        self._reserve.look()
        free_bytes = self._log_file.free_bytes()
        self._lacks_room = self._wants_room(free_bytes)
        self._lacks_reserve = self._log_file.is_in_use and self._reserve.is_wanted(free_bytes)
        self._due_bytes = min(CHECKPOINT_BYTES, max(free_bytes // SHARE_OF_FREE, LEAST_CHECKPOINT_BYTES))
        self.free_bytes = free_bytes + self._free_pages * self._page_bytes + self._reserve.balance_bytes

    def note_written(self, cursor: DBAPICursor, batch: Batch) -> None:
        """The batch is in the transaction, about to be committed."""
        cursor.execute("PRAGMA freelist_count")
        (self._free_pages,) = cursor.fetchone() or (0,)
        self._estimated_bytes += (
            COMMIT_BYTES
            + sum(tails_bytes(run.messages) for run in batch.messages)
            + sum(len(row.payload()) for row in batch.ledger)
            + sum(DELETION_BYTES * (deletion.stop - deletion.start) for deletion in batch.deletions)
        )

    def run(self, *, truncate: bool) -> None:
        """Returns at once while another call is running."""
        if not self._running.acquire(blocking=False):
            return
        try:
            self._run(truncate=truncate)
        finally:
            self._running.release()

    def _run(self, *, truncate: bool) -> None:
        if self._lacks_reserve:
            self._lacks_reserve = False
            self._reserve.make()
        if truncate:
            self._reserve.use(self._log_file.free_bytes())
        releases, makes_room = self._has_many_free, self._lacks_room
        # Releasing pages and making room happen often, and should not sync the disk each time.
        if truncate or self._is_long or not (releases or makes_room):
            self._shorten(truncate=truncate)
        elif makes_room:
            self._make_room()
        if releases:
            self._release_pages()
            if not self._has_many_free:
                self._shorten(truncate=truncate)  # only now does the file become shorter

    def _shorten(self, *, truncate: bool) -> None:
        # First, so that after a failure it is due again when more was written, and not at once.
        self._estimated_bytes = 0
        self._note_log_length()
        self._lacks_room = False
        # Little was written during the first one, and next to nothing during the second.
        self._checkpoint("PASSIVE")
        self._checkpoint("PASSIVE")
        with self._writing:
            self._checkpoint("TRUNCATE" if truncate else "PASSIVE")
            self._note_log_length()
            self._note_free_pages()

    def _note_log_length(self) -> None:
        self._log_file.look()
        self._file_bytes_before = self._log_file.length_bytes

    def _release_pages(self) -> None:
        self._has_many_free = False
        with self._writing:
            before = self._free_pages
            ends_at_s = perf_counter() + RELEASING_S
            while True:
                # As a script: it frees a page a step, and `execute` would end at the first row, which has no columns.
                self._connection.executescript(f"PRAGMA incremental_vacuum({VACUUM_PAGES})")
                if perf_counter() >= ends_at_s:
                    break
            self._note_free_pages()
        self._estimated_bytes += PAGES_MOVED * max(0, before - self._free_pages) * self._page_bytes

    def _make_room(self) -> None:
        self._lacks_room = False
        ends_at_s = perf_counter() + MAKING_ROOM_S
        # Everything works without room, and the next commit tells what is wrong with the disk.
        with suppress(OSError, sqlite3.OperationalError):
            while perf_counter() < ends_at_s and self._wants_room(self._log_file.free_bytes()) and not self._is_long:
                with self._writing, self._locked():
                    self._file_bytes_before += self._log_file.lengthen()
                self._log_file.sync()
                self._log_file.look()
                sleep(ROOM_PAUSE_S)

    def _wants_room(self, free_bytes: int) -> bool:
        return self._log_file.wants_room(self._estimated_bytes, free_bytes)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """No other process writes to the file either. Raises OperationalError if one does."""
        self._connection.execute(BEGIN_WRITING)
        try:
            yield
        finally:
            self._connection.execute("ROLLBACK")

    def _note_free_pages(self) -> None:
        self._free_pages = self._asked("freelist_count")
        self._has_many_free = (
            self._free_pages * self._page_bytes >= FREE_PAGES_BYTES
            and 2 * self._free_pages >= self._asked("page_count")
        )

    def stored_bytes(self) -> int:
        self._log_file.look()
        return os.stat(self._file).st_size + self._log_file.length_bytes

    def close(self) -> None:
        """Wait for a run under way, and run a last time, if the disk allows it."""
        with self._running:
            with suppress(sqlite3.Error, OSError):
                self._run(truncate=True)
            self._connection.close()

    def _log_bytes(self) -> int:
        """Bytes written to the log since the last checkpoint: an estimate, or the growth of the file if that is more.
        SQLite tells it only during a checkpoint, and the file keeps its length when the log starts over."""
        return max(self._estimated_bytes, self._log_file.length_bytes - self._file_bytes_before)

    def _checkpoint(self, mode: str) -> None:
        self._connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()

    def _asked(self, pragma: str) -> int:
        value: int = self._connection.execute(f"PRAGMA {pragma}").fetchone()[0]
        return value
