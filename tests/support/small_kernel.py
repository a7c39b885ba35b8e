"""A kernel that takes as many bytes of a connection as a test lets it.

Law: what `Outbox.send_now` meets behind a socket, without one: all, a part, nothing (EAGAIN), or an error.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from stompbroker.buffers import Buffer


@final
class SmallKernel:
    def __init__(self, room_bytes: int = 1 << 30) -> None:
        #: How many bytes it still takes.
        self.room_bytes = room_bytes
        #: Whether there is nobody at the other end.
        self.is_broken = False
        #: Everything it took, in that order, and how often it was asked to.
        self.taken = b""
        self.calls = 0

    def send(self, *parts: Buffer) -> int:
        self.calls += 1
        if self.is_broken:
            raise BrokenPipeError(errno.EPIPE, "nobody reads")
        if not self.room_bytes:
            raise BlockingIOError(errno.EAGAIN, "no room")
        found = b"".join(parts)[: self.room_bytes]
        self.room_bytes -= len(found)
        self.taken += found
        return len(found)
