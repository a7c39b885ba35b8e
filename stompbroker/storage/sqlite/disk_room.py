"""Room on the disk: ahead in SQLite's write-ahead log, and in a reserve for deletions. Knows only lengths of files.

Each file is looked at once with every commit; what is said of its length is as of that look.

The log is lengthened with zeros, which SQLite ignores and overwrites, by the holder of SQLite's own lock. A commit that
makes the file longer waits for the file system to write the new length: 1.5 ms, against 0.3 into existing room.

The reserve is a file beside the database. On a full disk it makes room for what consumers need to make more room: the
last batch, cursors, deletions and a checkpoint. It is made when much is free, and cut to nothing when the disk is full;
an empty file says that the room was used.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: Shorter logs get no room: a broker that stores a message now and then never needs it.
FIRST_BYTES: Final = 256 * 1024
#: Room ahead of the used part: for some 400 commits of one message each.
AHEAD_BYTES: Final = 8 * 1024 * 1024
#: The longest the log is made: a quarter more than `Checkpoints` lets be used.
LAST_BYTES: Final = 80 * 1024 * 1024
#: Added at a time. A commit that waits for it waits 0.3 ms, and would wait 10 for 4 MiB.
STEP_BYTES: Final = 128 * 1024
#: Must be left on the disk.
SPARE_BYTES: Final = 4 * LAST_BYTES
#: A batch of 4 MiB in the log and in the file, its indexes, and what deletions need beside it.
RESERVE_BYTES: Final = 16 * 1024 * 1024
#: The reserve is used when less than this is free, and made when this many times its size is free.
USED_BELOW_BYTES: Final = 4 * 1024 * 1024
PLENTY: Final = 2


@final
class LogFile:
    """The log of one database file."""

    def __init__(self, database: Path) -> None:
        #: Not paths, which would be slower: they are used with every commit.
        self.where = str(database.with_name(f"{database.name}-wal"))
        self._directory = str(database.parent)
        self.length_bytes = 0

    def look(self) -> tuple[int, int] | None:
        """What tells this file from another one of its name; None if there is none."""
        try:
            found = os.stat(self.where)
        except FileNotFoundError:
            self.length_bytes = 0
            return None
        self.length_bytes = found.st_size
        return found.st_dev, found.st_ino

    @property
    def is_in_use(self) -> bool:
        """Whether more than a few messages were stored."""
        return self.length_bytes > FIRST_BYTES

    def free_bytes(self) -> int:
        """Free space on the disk. Raises OSError."""
        system = os.statvfs(self._directory)
        return system.f_bavail * system.f_frsize

    def wants_room(self, used_bytes: int, free_bytes: int) -> bool:
        """Whether `lengthen` would be of use."""
        longest_bytes = min(LAST_BYTES, used_bytes + AHEAD_BYTES)
        return free_bytes >= SPARE_BYTES and FIRST_BYTES < self.length_bytes < longest_bytes

    def lengthen(self) -> int:
        """By a step; returns the bytes added. Raises OSError."""
        # Not `ftruncate` or `fallocate`: the file system would write down their room on first use, commit by commit.
        with _opened(self.where) as opened:
            length = os.fstat(opened).st_size
            return os.pwrite(opened, bytes(max(0, min(STEP_BYTES, LAST_BYTES - length))), length)

    def sync(self) -> None:
        """Sync the file, so that no commit has to. Raises OSError."""
        with _opened(self.where) as opened:
            os.fdatasync(opened)


@final
class Reserve:
    def __init__(self, database: Path) -> None:
        self._path = str(database.with_name("reserve"))
        #: None if there is none.
        self._length_bytes: int | None = None

    def look(self) -> None:
        try:
            self._length_bytes = os.stat(self._path).st_size
        except OSError:
            self._length_bytes = None

    @property
    def balance_bytes(self) -> int:
        """What the reserve adds to the free bytes: its size. Once it was used, it counts as negative, so that as much
        has to be free again before anything but deletions may use the disk."""
        return -RESERVE_BYTES if self._length_bytes == 0 else self._length_bytes or 0

    def is_wanted(self, free_bytes: int) -> bool:
        return free_bytes >= PLENTY * RESERVE_BYTES and not self._length_bytes

    def make(self) -> None:
        """Ignores errors: everything works without a reserve, as long as the disk is not full."""
        with suppress(OSError), _opened(self._path, os.O_CREAT) as opened:
            os.posix_fallocate(opened, 0, RESERVE_BYTES)

    def use(self, free_bytes: int) -> None:
        """Give up the reserve if otherwise nothing could be written."""
        self.look()
        if free_bytes < USED_BELOW_BYTES and self._length_bytes:
            with suppress(OSError):
                os.truncate(self._path, 0)


@contextmanager
def _opened(path: str, flags: int = 0) -> Iterator[int]:
    opened = os.open(path, os.O_WRONLY | os.O_CLOEXEC | flags, 0o600)
    try:
        yield opened
    finally:
        os.close(opened)
