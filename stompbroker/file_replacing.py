"""A file replaced as a whole: a reader sees the old one or the new one, never a part.

Law: knows bytes and modes. Whoever replaces a file in two steps, or together with another, brings the lock.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def replace_file(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Raises OSError; then the old file is still there. Only the name is not synced: that is its directory's."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)  # of a command that was killed
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(file, "wb") as writer:
            if os.geteuid() == 0:
                # The broker is often another user than who runs a command.
                owner = (path if path.exists() else path.parent).stat()
                os.fchown(file, owner.st_uid, owner.st_gid)
            os.fchmod(file, mode)  # whatever the umask is
            writer.write(content)
            writer.flush()
            os.fsync(file)
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
