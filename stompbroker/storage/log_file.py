"""The file of SQLite's write-ahead log, and room in it ahead of what is written.

Law: only its length is known here, and only zeros are written, behind its end, by who holds SQLite's own lock: nobody
else writes to the log then, of whatever process. SQLite takes what does not continue its log for no part of it, and
overwrites it.

A commit that makes a file longer has to wait until the file system has written down its new length: 1.5 ms where one
into room that is there takes 0.3. SQLite lets its log grow by one commit at a time, until it begins anew.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["LogFile"]

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
