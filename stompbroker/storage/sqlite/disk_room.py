"""Room on the disk: in SQLite's write-ahead log ahead of what is written, and in a reserve for deletions.

Law: knows lengths of files and nothing of what is in them. The log is lengthened with zeros behind its end, by the
holder of SQLite's own lock, so that no process writes to it meanwhile. SQLite ignores what does not continue its log,
and overwrites it.

Room in the log: a commit that makes a file longer waits until the file system has written down the new length, 1.5 ms
where a commit into existing room takes 0.3. SQLite lets its log grow by one commit at a time, until it begins anew.

The reserve: a file beside the database, as large as what a full disk must still take so that consumers can make room:
the last batch, cursors, deletions, and the write-ahead log copied back. It is made when the disk has plenty, and cut to
nothing when it has not; a file of no length says that the room was used.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["LogFile", "Reserve"]

#: A log that has become so long is given room: many a broker stores a message now and then and never needs it.
FIRST_BYTES: Final = 256 * 1024
#: How much room there is ahead of what is used: for some 400 commits of one message each.
AHEAD_BYTES: Final = 8 * 1024 * 1024
#: And the longest it becomes, which is a quarter more than `Checkpoints` lets be used.
LAST_BYTES: Final = 80 * 1024 * 1024
#: How much comes at a time. A commit that has to wait for it waits 0.3 ms, and would wait 10 for 4 MiB.
STEP_BYTES: Final = 128 * 1024
#: What must be left on the disk.
SPARE_BYTES: Final = 4 * LAST_BYTES
#: A batch of 4 MiB in the log and in the file, its indexes, and what deletions need beside it.
RESERVE_BYTES: Final = 16 * 1024 * 1024
#: It is used when less than this is free, and made (again) when there is that many times as much as it takes.
USED_BELOW_BYTES: Final = 4 * 1024 * 1024
PLENTY: Final = 2


@final
class LogFile:
    """The log of one database file."""

    __slots__ = ("_directory", "_file")

    def __init__(self, database: Path) -> None:
        #: Not paths: they are asked for with every commit.
        self._file = str(database.with_name(f"{database.name}-wal"))
        self._directory = str(database.parent)

    @property
    def where(self) -> str:
        return self._file

    def identity(self) -> tuple[int, int] | None:
        """Tells this file from any other that has its name; None if there is none."""
        try:
            found = os.stat(self._file)
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino

    def length_bytes(self) -> int:
        try:
            return os.stat(self._file).st_size
        except FileNotFoundError:
            return 0

    @property
    def is_in_use(self) -> bool:
        """Whether more than a few messages were stored: many a broker stores one now and then."""
        return self.length_bytes() > FIRST_BYTES

    def free_bytes(self) -> int:
        """What is left on the disk. Raises OSError."""
        system = os.statvfs(self._directory)
        return system.f_bavail * system.f_frsize

    def wants_room(self, used_bytes: int, free_bytes: int) -> bool:
        """Whether `lengthen` would be of use, with so much of it used and so much left on the disk. Raises OSError."""
        longest_bytes = min(LAST_BYTES, used_bytes + AHEAD_BYTES)
        return free_bytes >= SPARE_BYTES and FIRST_BYTES < self.length_bytes() < longest_bytes

    def lengthen(self) -> int:
        """By a step; says how much that was. Raises OSError."""
        # Not `ftruncate` or `fallocate`: what they add is written down when it is first used, one commit at a time.
        with self._opened() as opened:
            length = self.length_bytes()
            return os.pwrite(opened, bytes(max(0, min(STEP_BYTES, LAST_BYTES - length))), length)

    def sync(self) -> None:
        """So that no commit has to. Raises OSError."""
        with self._opened() as opened:
            os.fdatasync(opened)

    @contextmanager
    def _opened(self) -> Iterator[int]:
        opened = os.open(self._file, os.O_WRONLY | os.O_CLOEXEC)
        try:
            yield opened
        finally:
            os.close(opened)


@final
class Reserve:
    __slots__ = ("_path",)

    def __init__(self, database: Path) -> None:
        self._path = str(database.with_name("reserve"))

    def _length_bytes(self) -> int | None:
        try:
            return os.stat(self._path).st_size
        except OSError:
            return None

    @property
    def balance_bytes(self) -> int:
        """What it adds to the room that is left: as much as it keeps. Once that is used, as much has to be free again
        before anything but deletions may use the disk."""
        length_bytes = self._length_bytes()
        return -RESERVE_BYTES if length_bytes == 0 else length_bytes or 0

    def is_wanted(self, free_bytes: int) -> bool:
        return free_bytes >= PLENTY * RESERVE_BYTES and not self._length_bytes()

    def make(self) -> None:
        """Without it everything works, as long as the disk is not full."""
        with suppress(OSError):
            opened = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(opened, 0, RESERVE_BYTES)
            finally:
                os.close(opened)

    def use(self, free_bytes: int) -> None:
        """Give the room away if so little is left that nothing could be written."""
        if free_bytes < USED_BELOW_BYTES and self._length_bytes():
            with suppress(OSError):
                os.truncate(self._path, 0)
