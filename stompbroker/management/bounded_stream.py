"""A connection that nobody can hold for ever by not reading.

Law: a stream as the HTTP server wants it. What is sent has to be taken within a time; and it can be cut, whatever
anybody waits for on it. It knows what it is doing, so that others can decide whether it is worth keeping.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, final

import trio

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trio.socket import SocketType

__all__ = ["BoundedStream"]

#: How long a client may take for what is sent at once, which is at most a few hundred kilobytes.
SEND_S: Final = 30.0


@final
class BoundedStream:
    __slots__ = ("_is_ended", "_stream", "everything", "requests", "sending_since_s")

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        #: Whether the client sends nothing more.
        self._is_ended = False
        #: All that is done for this connection.
        self.everything = trio.CancelScope()
        #: Requests that are being answered.
        self.requests = 0
        #: Since when the client has not taken what is being sent; None while nothing is.
        self.sending_since_s: float | None = None

    @property
    def socket(self) -> SocketType:
        return self._stream.socket

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        data = bytes(await self._stream.receive_some(max_bytes))
        self._is_ended = not data
        self._end_if_idle()
        return data

    async def send_all(self, data: bytes) -> None:
        """Raises BrokenResourceError if it is not taken in time."""
        self.sending_since_s = trio.current_time()
        with trio.move_on_after(SEND_S) as sending:
            await self._stream.send_all(data)
        if sending.cancelled_caught:
            self.cut()
            raise trio.BrokenResourceError("it was not read")
        self.sending_since_s = None

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def aclose(self) -> None:
        await self._stream.aclose()

    @contextmanager
    def answering(self) -> Iterator[None]:
        """While a request is being answered."""
        self.requests += 1
        try:
            yield
        finally:
            self.requests -= 1
            self._end_if_idle()

    def _end_if_idle(self) -> None:
        """The HTTP server would keep its tasks for a client that has left until its next request is overdue."""
        if self._is_ended and not self.requests:
            self.everything.cancel()

    def cut(self) -> None:
        """Close it at once; whoever waits on it is told."""
        self._stream.socket.close()
        self.everything.cancel()
