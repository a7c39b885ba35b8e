"""One connection, as a worker sees it.

Law: bytes in and out, and how a connection ends. On a broken connection calls raise `trio.BrokenResourceError`, and
after our own `close` `trio.ClosedResourceError`. One task receives and one sends at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

import trio

#: How long we read and drop what a client sends after our last byte. Closing at once would make the kernel send a
#: reset, and the client might never read the ERROR frame.
LINGER_S: Final = 2.0
_LINGER_CHUNK_BYTES: Final = 64 * 1024


class Transport(ABC):
    """What every kind of connection can do; what only some can do has a harmless default."""

    __slots__ = ("peer",)

    def __init__(self, peer: str) -> None:
        #: The client's address, for people to read.
        self.peer = peer

    @abstractmethod
    async def receive_some(self, max_bytes: int) -> bytes:
        """At least one byte; none when the client has closed its side."""

    @abstractmethod
    async def send_all(self, data: bytes) -> None:
        """Wait until all of it is sent. If this is cancelled, an unknown part is."""

    @abstractmethod
    async def finish(self) -> None:
        """Close so that the client can still read what was sent last; takes LINGER_S at most. Never raises."""

    @abstractmethod
    async def close(self) -> None:
        """Close without waiting; harmless if it is closed already."""

    def send_now(self, data: bytes) -> int:
        """Send what the kernel takes now, and return how many bytes that was; 0 if it all needs `send_all`.

        Raises OSError when there is no room or the client is gone.
        """
        return 0

    def has_left(self) -> bool:
        """Whether the client is known to have closed, perhaps before all that it sent was received."""
        return False

    def is_reset(self) -> bool:
        """Whether the client is known to have reset the connection; for a worker that does not receive."""
        return False

    def note_unanswered(self, received_bytes: int, sent_bytes: int) -> None:  # noqa: B027 - most need not care
        """A chunk was received, and nothing was sent for it; `sent_bytes` is all that was sent before."""


class StreamTransport(Transport):
    """Over any stream of trio; tests use memory streams."""

    __slots__ = ("_stream",)

    def __init__(self, stream: trio.abc.Stream, peer: str) -> None:
        super().__init__(peer)
        self._stream = stream

    async def receive_some(self, max_bytes: int) -> bytes:
        chunk = await self._stream.receive_some(max_bytes)
        return chunk if type(chunk) is bytes else bytes(chunk)

    async def send_all(self, data: bytes) -> None:
        await self._stream.send_all(data)

    async def finish(self) -> None:
        try:
            if isinstance(self._stream, trio.abc.HalfCloseableStream):
                with trio.move_on_after(LINGER_S):
                    await self._stream.send_eof()
                    while await self._stream.receive_some(_LINGER_CHUNK_BYTES):
                        pass
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the client was quicker
        finally:
            await trio.aclose_forcefully(self._stream)

    async def close(self) -> None:
        await trio.aclose_forcefully(self._stream)
