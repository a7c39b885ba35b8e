"""TCP acknowledgements that do not wait for data to travel with.

Law: one connection; the caller says what was read and sent. A client that leaves Nagle's algorithm on holds its second
small write back until the first is acknowledged. Once we have sent something, Linux delays acknowledgements by 40 ms
and hopes for an answer. Where there is none (a SUBSCRIBE or SEND without a receipt), the kernel is told not to wait.
That costs about 3 µs, so it is done for small chunks only, and once until we send again: then Linux waits again.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Final, final

import trio

__all__ = ["QuickAcks"]

#: Whoever sends more at once is not waiting to send the rest of it.
SMALL_CHUNK_BYTES: Final = 1024
#: Linux has it.
_QUICK_ACK: Final = getattr(socket, "TCP_QUICKACK", None)


@final
class QuickAcks:
    __slots__ = ("_sent_bytes_when_told", "_socket")

    def __init__(self, stream: trio.abc.Stream) -> None:
        ours = stream.socket if isinstance(stream, trio.SocketStream) else None
        #: None if it is not TCP.
        self._socket = ours if ours is not None and ours.family in (socket.AF_INET, socket.AF_INET6) else None
        #: How much we had sent when the kernel was last told.
        self._sent_bytes_when_told = -1

    def note_unanswered(self, received_bytes: int, sent_bytes: int) -> None:
        """A chunk was read, and nothing was sent for it; `sent_bytes` is all that was sent before it."""
        if received_bytes >= SMALL_CHUNK_BYTES or sent_bytes == self._sent_bytes_when_told:
            return
        if self._socket is None or _QUICK_ACK is None:
            return
        self._sent_bytes_when_told = sent_bytes
        # If the client is gone, the next read says so.
        with suppress(OSError):
            self._socket.setsockopt(socket.IPPROTO_TCP, _QUICK_ACK, 1)
