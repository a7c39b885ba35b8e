"""How much freed memory the process keeps for the next large body.

By default glibc gives memory back to the kernel as soon as 2 MiB at the end of the heap are free, and gets it again,
page by page, for the next body: 240 page faults for 1 MiB, which cost more than all copies of it together.
"""

from __future__ import annotations

import ctypes
from typing import Final

#: Larger blocks are mapped by themselves, and unmapped when they are freed.
MAPPED_FROM_BYTES: Final = 4 * 1024 * 1024
#: Of free memory at the end of the heap, this much is kept.
KEPT_BYTES: Final = 16 * 1024 * 1024

#: Of glibc's malloc.h.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3


def keep_freed_memory() -> bool:
    """Returns whether this system's allocator can be told."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, MAPPED_FROM_BYTES) and mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES))
