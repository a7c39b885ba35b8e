"""One connection, as a worker sees it.

Law: bytes in and out, and how a connection ends. On a broken connection calls raise `trio.BrokenResourceError`, and
after our own `close` `trio.ClosedResourceError`. One task receives and one sends at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

import trio

from stompbroker.buffers import joined

if TYPE_CHECKING:
    from collections.abc import Callable

    from stompbroker.buffers import Buffer
    from stompbroker.transport.endpoint import Endpoint

#: How long we read and drop what a client sends after our last byte. Closing at once would make the kernel send a
#: reset, and the client might never read the ERROR frame.
LINGER_S: Final = 2.0
_LINGER_CHUNK_BYTES: Final = 64 * 1024


class Transport(ABC):
    """What every kind of connection can do; what only some can do has a harmless default.

    A transport may stand on another one: WebSocket on TLS on TCP.
    """

    __slots__ = ("certificate", "endpoint", "on_sign_of_life", "peer")

    def __init__(self, peer: str, endpoint: Endpoint | None = None) -> None:
        #: The client's address, for people to read.
        self.peer = peer
        #: Where it came in; None in tests.
        self.endpoint = endpoint
        #: The subject of the client's verified certificate, as RFC 4514 writes it; None if it showed none.
        self.certificate: str | None = None
        #: Called when the client has answered a probe.
        self.on_sign_of_life: Callable[[], None] = _do_nothing

    def forget_owner(self) -> None:
        """Tell nobody any more."""
        self.on_sign_of_life = _do_nothing

    @abstractmethod
    async def receive_some(self, max_bytes: int) -> bytes:
        """At least one byte, and about `max_bytes` at most; none when the client has closed its side."""

    @abstractmethod
    async def send_all(self, *parts: Buffer) -> None:
        """Wait until all of it is sent. If this is cancelled, an unknown part is."""

    @abstractmethod
    async def finish(self) -> None:
        """Close so that the client can still read what was sent last; takes LINGER_S at most. Never raises."""

    @abstractmethod
    async def close(self) -> None:
        """Close without waiting; harmless if it is closed already."""

    def send_now(self, *parts: Buffer) -> int:
        """Send what the kernel takes now, and return how many bytes that was; 0 if it all needs `send_all`.

        What is not taken must be the beginning of what is sent next. So a transport that has encoded bytes which the
        kernel does not take may keep those, and return one byte less than it was given: the next `send_all` begins
        with that byte, sends what was kept instead, and so the caller learns when it has left.

        Raises OSError when there is no room or the client is gone.
        """
        return 0

    def has_left(self) -> bool:
        """Whether the client is known to have closed, perhaps before all that it sent was received."""
        return False

    def is_reset(self) -> bool:
        """Whether the client is known to have reset the connection; for a worker that does not receive."""
        return False

    def probe(self) -> bool:
        """Ask for a sign of life that a client gives although its program sleeps. False if there is no such thing."""
        return False

    def note_unanswered(self, received_bytes: int, sent_bytes: int) -> None:  # noqa: B027 - most need not care
        """A chunk was received, and nothing was sent for it; `sent_bytes` is all that was sent before."""


def _do_nothing() -> None:
    pass


class StreamTransport(Transport):
    """Over any stream of trio; tests use memory streams."""

    __slots__ = ("_stream",)

    def __init__(self, stream: trio.abc.Stream, peer: str, endpoint: Endpoint | None = None) -> None:
        super().__init__(peer, endpoint)
        self._stream = stream

    async def receive_some(self, max_bytes: int) -> bytes:
        chunk = await self._stream.receive_some(max_bytes)
        return chunk if type(chunk) is bytes else bytes(chunk)

    async def send_all(self, *parts: Buffer) -> None:
        await self._stream.send_all(joined(parts))

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
