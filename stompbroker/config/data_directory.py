"""The directory a broker has to itself.

Law: only the process that holds the `flock` on `broker.lock` creates, changes or removes anything in the directory. The
kernel frees the lock when the process ends. The file is never removed: two processes could then lock two different
files of that name. Clients of the control socket use `control_address`, and nothing else.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import stat
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, final

from stompbroker.errors import OperatorError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOCK_NAME = "broker.lock"
CONTROL_SOCKET_NAME = "control.sock"
#: Longest path, in bytes, that fits sun_path: 104 on BSD and macOS, 108 on Linux, each with a closing NUL.
MAX_SOCKET_PATH_BYTES = 103
#: Connections to the control socket that wait to be accepted: a few people and scripts.
CONTROL_BACKLOG = 16
#: More than any lock file has; the file could be anything.
MAX_LOCK_BYTES = 4096


#: Who holds a directory, as the one who is refused is told.
BROKER = "another broker"
EXPORT = "an export of its ledger, which ends by itself"


class DataDirectoryError(OperatorError):
    """The data directory cannot be used; the text says why and what to do."""


class DirectoryHeld(DataDirectoryError):
    """Another process has it."""


@final
@dataclass(frozen=True, slots=True)
class DataDirectory:
    """A directory that this process holds, from `hold`."""

    path: Path

    @property
    def control_socket_path(self) -> Path:
        return control_socket_path(self.path)

    def listen_for_control(self) -> socket.socket:
        """A listening Unix socket, for its owner only. It replaces that of a killed broker, which needs the lock."""
        self.remove_control_socket()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with control_address(self.path) as address:
                listener.bind(address)
                # Before listen() nobody can connect, so there is no moment with wider permissions.
                os.chmod(address, 0o600)
                listener.listen(CONTROL_BACKLOG)
        except OSError as error:
            listener.close()
            raise DataDirectoryError(f"Cannot listen on {self.control_socket_path}: {error.strerror}.") from error
        except BaseException:
            listener.close()
            raise
        return listener

    def remove_control_socket(self) -> None:
        try:
            if not stat.S_ISSOCK(self.control_socket_path.lstat().st_mode):
                raise DataDirectoryError(
                    f"{self.control_socket_path} is in the way: it is not a socket, so no broker made it. Move it away."
                )
            self.control_socket_path.unlink()
        except FileNotFoundError:
            pass
        except OSError as error:
            raise DataDirectoryError(f"Cannot replace {self.control_socket_path}: {error.strerror}.") from error


def control_socket_path(data: Path) -> Path:
    """Where the broker with this data directory listens for `stompbroker stats` and the like."""
    return data / CONTROL_SOCKET_NAME


@contextmanager
def hold(path: Path, holder: str = BROKER) -> Iterator[DataDirectory]:
    """Create the directory if need be, and hold it until the block ends, as BROKER or EXPORT.

    Raises DirectoryHeld at once, without waiting, when another process holds it, or another DataDirectoryError.
    """
    _create(path)
    lock = _open_lock(path)
    try:
        _take_lock(lock, path, holder)
        directory = DataDirectory(path)
        try:
            yield directory
        finally:
            with suppress(DataDirectoryError):  # it would hide why the block ended
                directory.remove_control_socket()
    finally:
        os.close(lock)


def _create(path: Path) -> None:
    try:
        # The mode is for the last directory only; its parents are ordinary.
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
    except FileExistsError as error:
        raise DataDirectoryError(
            f"{error.filename} is not a directory, so the data directory cannot be {path}. Choose another with --data."
        ) from error
    except OSError as error:
        raise DataDirectoryError(
            f"Cannot create the data directory {path}: {error.strerror}. Choose another with --data."
        ) from error


def _open_lock(path: Path) -> int:
    try:
        return os.open(path / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise DataDirectoryError(
            f"Cannot write to the data directory {path} ({LOCK_NAME}: {error.strerror}). "
            "Give this user the right to, or choose another with --data."
        ) from error


def _take_lock(lock: int, path: Path, holder: str) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise DirectoryHeld(
            f"The data directory {path} is held by {_holder(lock)}. "
            "Stop that one first, or give this one a directory of its own with --data."
        ) from error
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        raise DataDirectoryError(
            f"The file system of the data directory {path} has no locks ({error.strerror}), "
            "so two brokers could not be kept apart. Choose a local directory with --data."
        ) from error
    details = {
        "holder": holder,
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    os.ftruncate(lock, 0)
    os.pwrite(lock, (json.dumps(details) + "\n").encode(), 0)


def _holder(lock: int) -> str:
    """The holder as the file says; it is written just after locking."""
    try:
        found = json.loads(os.pread(lock, MAX_LOCK_BYTES, 0))
        process = f"process {found['pid']} on {found['host']}, since {found['started_at']}"
        return f"{found.get('holder', BROKER)}: {process}"
    except (ValueError, KeyError, TypeError):
        return f"{BROKER}: one that is just starting"


@contextmanager
def control_address(data: Path) -> Iterator[str]:
    """The path of the control socket, short enough for bind() and connect(), valid within the block.

    On Linux a path that is too long goes through a file descriptor of its directory.
    """
    path = control_socket_path(data)
    if len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES:
        yield str(path)
        return
    if sys.platform != "linux":
        raise DataDirectoryError(
            f"The path {path} is longer than the {MAX_SOCKET_PATH_BYTES} bytes a socket may have. "
            "Choose a shorter one with --data."
        )
    directory = os.open(data, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{CONTROL_SOCKET_NAME}"
    finally:
        os.close(directory)
