"""Bytes that are sent as one, in several buffers: a large body is never copied into a larger buffer.

Law: pure functions over buffers. Small neighbours are joined, since each buffer of a system call costs more than a copy
of a few hundred bytes; large ones stay as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

#: From this size on, a buffer is not copied in order to join it with others.
LARGE_BYTES: Final = 16 * 1024
#: Buffers for one system call. Linux takes 1,024 of them (IOV_MAX).
MAX_BUFFERS: Final = 1024

Buffer: TypeAlias = bytes | memoryview


def gathered(buffers: Sequence[Buffer]) -> list[Buffer]:
    """The same bytes in as few buffers as can be had without copying a large one."""
    if max(map(len, buffers)) < LARGE_BYTES:
        return [b"".join(buffers)]
    found: list[Buffer] = []
    small: list[Buffer] = []
    for buffer in buffers:
        if len(buffer) < LARGE_BYTES:
            small.append(buffer)
            continue
        if small:
            found.append(b"".join(small))
            small = []
        found.append(buffer)
    if small:
        found.append(b"".join(small))
    return found


def joined(buffers: Sequence[Buffer]) -> bytes:
    """One buffer, for whoever cannot send several."""
    return buffers[0] if len(buffers) == 1 and type(buffers[0]) is bytes else b"".join(buffers)


def rest_of(buffers: Sequence[Buffer], sent_bytes: int) -> list[Buffer]:
    """What is left when the first `sent_bytes` bytes are gone. No byte is copied."""
    for index, buffer in enumerate(buffers):
        if sent_bytes < len(buffer):
            return [memoryview(buffer)[sent_bytes:] if sent_bytes else buffer, *buffers[index + 1 :]]
        sent_bytes -= len(buffer)
    return []
