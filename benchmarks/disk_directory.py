"""A directory on a disk, for a broker that is to be measured with its fsyncs.

Never on a file system in memory, where a commit costs nothing. The directory is removed after the block.
"""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.broken import Broken

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Candidates, in order. Files in `/var/tmp` survive a restart of the machine.
_PARENTS: Final = (Path("/var/tmp"), Path(tempfile.gettempdir()), Path.cwd())
_IN_MEMORY: Final = frozenset({"ramfs", "tmpfs"})
_MOUNTS: Final = Path("/proc/self/mounts")


@contextmanager
def disk_directory(prefix: str) -> Iterator[Path]:
    parents = [parent for parent in _PARENTS if parent.is_dir() and not is_in_memory(parent)]
    if not parents:
        raise Broken(f"no directory on a disk: all of {', '.join(map(str, _PARENTS))} are in memory")
    with tempfile.TemporaryDirectory(prefix=prefix, dir=parents[0]) as directory:
        yield Path(directory)


def is_in_memory(directory: Path, mounts: Path = _MOUNTS) -> bool:
    """Whether it is in memory; False if the system does not say."""
    if not mounts.exists():
        return False
    # A later line overrides an earlier one for the same path; a blank in a path is written as \040.
    types = {
        Path(where.encode().decode("unicode_escape")): kind
        for _device, where, kind, *_ in map(str.split, mounts.read_text().splitlines())
    }
    resolved = directory.resolve()
    holders = [place for place in (resolved, *resolved.parents) if place in types]
    return bool(holders) and types[holders[0]] in _IN_MEMORY
