"""Places where a broker's files cannot grow for ever, and how to make room there.

Law: the broker notices nothing but that writing fails. `FileSizeLimit` needs no rights and gives EFBIG, which SQLite
calls an I/O error; a small tmpfs needs the right to mount and gives ENOSPC, which it calls full.
"""

from __future__ import annotations

import os
import resource
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol, final

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.broker_process import BrokerProcess

_MOUNT_TIMEOUT_S: Final = 10.0


class Room(Protocol):
    def take(self, left_bytes: int) -> None:
        """From now on the files may grow by about so much. While the broker writes, nobody can say how much that is."""

    def make(self) -> None:
        """As much as there was before."""


@final
class FileSizeLimit:
    """RLIMIT_FSIZE of the running processes: no file may grow beyond it, the others are not affected."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker

    def take(self, left_bytes: int) -> None:
        largest = max(path.stat().st_size for path in self._broker.data.iterdir())
        self._limit(largest + left_bytes)

    def make(self) -> None:
        self._limit(None)

    def _limit(self, size_bytes: int | None) -> None:
        for process in self._broker.family():
            _soft, hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (hard if size_bytes is None else size_bytes, hard))


@final
class Ballast:
    """A file beside the data that fills a file system of our own."""

    def __init__(self, place: Path) -> None:
        self._path = place / "ballast"

    def take(self, left_bytes: int) -> None:
        free = os.statvfs(self._path.parent)
        with self._path.open("wb") as ballast:
            os.posix_fallocate(ballast.fileno(), 0, free.f_bavail * free.f_frsize - left_bytes)

    def make(self) -> None:
        self._path.unlink()


@contextmanager
def mounted_tmpfs(place: Path, size_bytes: int) -> Iterator[None]:
    """A file system of this size at `place`, which is made. Skips the test where we may not mount."""
    place.mkdir(mode=0o700)
    options = f"size={size_bytes},mode=0700"
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=_MOUNT_TIMEOUT_S)
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        pytest.skip(f"a small file system needs the right to mount: {error}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True, capture_output=True, timeout=_MOUNT_TIMEOUT_S)
