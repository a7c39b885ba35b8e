"""One connection, as a worker sees it.

Law: bytes in and out, and how a connection ends. Everything that no longer works raises `trio.BrokenResourceError`, or
`trio.ClosedResourceError` after our own `close`. One task receives and one sends at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final, final

import trio

__all__ = ["StreamTransport", "Transport", "close_gently"]

#: How long we go on reading, and forgetting, what a client sends after we have said our last word. Closing at once
#: would make the kernel answer with a reset, which can eat the ERROR frame before the client has read it.
LINGER_S: Final = 2.0
_LINGER_CHUNK_BYTES: Final = 64 * 1024


class Transport(ABC):
    """What every kind of connection can do, and with a harmless default what only some can."""

    __slots__ = ("peer",)

    def __init__(self, peer: str) -> None:
        #: The client's address, for people to read.
        self.peer = peer

    @abstractmethod
    async def receive_some(self, max_bytes: int) -> bytes:
        """At least one byte; none when the client has closed its side."""

    @abstractmethod
    async def send_all(self, data: bytes) -> None:
        """Wait until all of it is on its way. If this is cancelled, an unknown part of it is."""

    @abstractmethod
    async def finish(self) -> None:
        """Close so that the client can still read what was sent last; takes LINGER_S at most. Never raises."""

    @abstractmethod
    async def close(self) -> None:
        """Close at once, without waiting; harmless when it is closed already."""

    def send_now(self, data: bytes) -> int:
        """Send what goes without waiting, and say how many bytes that was; 0, if all of it needs `send_all`.

        Raises OSError when there is no room or the client is gone.
        """
        return 0

    def has_left(self) -> bool:
        """Whether the client is known to have closed, even before all that it sent was received."""
        return False

    def is_reset(self) -> bool:
        """Whether the client is known to have torn the connection down; a worker that does not receive asks this."""
        return False

    def note_unanswered(self, received_bytes: int, sent_bytes: int) -> None:  # noqa: B027 - most need not care
        """A chunk was received, and nothing was sent for it; `sent_bytes` is all that was sent before it."""


@final
class StreamTransport(Transport):
    """Over any stream of trio; the memory streams of tests are served by it."""

    __slots__ = ("_stream",)

    def __init__(self, stream: trio.abc.Stream, peer: str) -> None:
        super().__init__(peer)
        self._stream = stream

    async def receive_some(self, max_bytes: int) -> bytes:
        return bytes(await self._stream.receive_some(max_bytes))

    async def send_all(self, data: bytes) -> None:
        await self._stream.send_all(data)

    async def finish(self) -> None:
        await close_gently(self._stream)

    async def close(self) -> None:
        await trio.aclose_forcefully(self._stream)


async def close_gently(stream: trio.abc.Stream) -> None:
    """What `Transport.finish` promises, for a stream."""
    try:
        if isinstance(stream, trio.abc.HalfCloseableStream):
            with trio.move_on_after(LINGER_S):
                await stream.send_eof()
                while await stream.receive_some(_LINGER_CHUNK_BYTES):
                    pass
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass  # the client was quicker
    finally:
        await trio.aclose_forcefully(stream)
