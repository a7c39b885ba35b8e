"""The file of SQLite's write-ahead log, and room in it ahead of what is written.

Law: only its length is known here, and only zeros are written, behind its end, by who holds the writing turn. SQLite
takes what does not continue its log for no part of it, and overwrites it.

A commit that makes a file longer has to wait until the file system has written down its new length: 1.5 ms where one
into room that is there takes 0.3. SQLite lets its log grow by one commit at a time, until it begins anew.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["LogFile"]

#: A log that has become so long is given room: many a broker stores a message now and then and never needs it.
FIRST_BYTES: Final = 256 * 1024
#: It is made twice as long, by no more than so much at a time, for which one commit waits some milliseconds longer; and
#: never longer than this, which is a quarter more than `Checkpoints` lets be used.
STEP_BYTES: Final = 4 * 1024 * 1024
LAST_BYTES: Final = 80 * 1024 * 1024
#: What must be left on the disk.
SPARE_BYTES: Final = 4 * LAST_BYTES


@final
class LogFile:
    """The log of one database file."""

    __slots__ = ("_file", "_room_up_to")

    def __init__(self, database: Path) -> None:
        self._file = database.with_name(f"{database.name}-wal")
        #: Up to where it was made longer here.
        self._room_up_to = FIRST_BYTES

    def length_bytes(self) -> int:
        try:
            return os.stat(self._file).st_size
        except FileNotFoundError:
            return 0

    def free_bytes(self) -> int:
        """What is left on the disk. Raises OSError."""
        system = os.statvfs(self._file.parent)
        return system.f_bavail * system.f_frsize

    def make_room(self) -> int:
        """Lengthen the file if what there was of it is used up; says by how much."""
        length = self.length_bytes()
        if length < self._room_up_to:
            self._room_up_to = FIRST_BYTES  # it was truncated, or never longer
        if not self._room_up_to < length < LAST_BYTES:
            return 0
        # Without it everything works, and the next commit tells what is wrong with the disk.
        with suppress(OSError):
            self._lengthen(length, min(length, STEP_BYTES, LAST_BYTES - length))
        self._room_up_to = self.length_bytes()
        return self._room_up_to - length

    def _lengthen(self, length: int, added: int) -> None:
        if self.free_bytes() < SPARE_BYTES:
            return
        # Not `ftruncate` or `fallocate`: what they add is written down when it is first used, one commit at a time.
        opened = os.open(self._file, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.pwrite(opened, bytes(added), length)
            os.fdatasync(opened)
        finally:
            os.close(opened)
