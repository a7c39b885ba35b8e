"""The file of users on disk: read, looked at, and replaced as a whole.

Law: a reader sees the old file or the new one, never a part. Two commands that change it take turns, by a lock on its
directory, which needs no file of its own.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from stompbroker.access.users import Users, UsersError, read_users, written
from stompbroker.file_replacing import replace_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import TypeAlias

    #: Time of change, size and inode; None without a file. Two equal ones mean the same content.
    Stamp: TypeAlias = tuple[int, int, int] | None


def stamp_of(path: Path) -> Stamp:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def load_users(path: Path, *, is_needed: bool) -> Users:
    """The users; none if there is no file, unless that is an error. Raises UsersError."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if not is_needed:
            return Users()
        raise UsersError(
            f"There is no file of users {path}. Make it with `stompbroker users add`, or change users_file."
        ) from None
    except OSError as error:
        raise UsersError(f"The file of users {path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError:
        raise UsersError(f"The file of users {path} is not UTF-8.") from None
    return read_users(text, f"The file of users {path}")


def change_users(path: Path, change: Callable[[Users], Users]) -> Users:
    """Replace the file by what `change` makes of it, and return that. Its mistakes are found as in a file by hand.

    Raises UsersError, also what `change` raises; then nothing is written.
    """
    path = path.resolve()  # of a link, the file that it leads to is replaced
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _alone_in(path.parent):
            text = written(change(load_users(path, is_needed=False)))
            users = read_users(text, "With this change the file of users")
            replace_file(path, text.encode())
            return users
    except OSError as error:
        raise UsersError(f"The file of users {path} cannot be written: {error.strerror}.") from error


@contextmanager
def _alone_in(directory: Path) -> Iterator[None]:
    lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
        os.fsync(lock)  # the new name
    finally:
        os.close(lock)
