"""Room on the disk that is kept for deletions.

Law: a file beside the database, as large as what a full disk must still take so that consumers can make room: the last
batch, cursors, deletions, and the write-ahead log copied back. It is made when the disk has plenty, and cut to nothing
when it has not; a file of no length says that the room was used.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["RESERVE_BYTES", "Reserve"]

#: A batch of 4 MiB in the log and in the file, its indexes, and what deletions need beside it.
RESERVE_BYTES: Final = 16 * 1024 * 1024
#: It is used when less than this is free, and made (again) when there is that many times as much as it takes.
USED_BELOW_BYTES: Final = 4 * 1024 * 1024
PLENTY: Final = 2


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
