"""A connection that nobody can hold for ever by not reading.

Law: a stream as the HTTP server wants it. What is sent has to be taken within a time; and it can be cut, whatever
anybody waits for on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import trio

if TYPE_CHECKING:
    from trio.socket import SocketType

__all__ = ["BoundedStream"]

#: How long a client may take for what is sent at once, which is at most a few hundred kilobytes.
SEND_S: Final = 30.0


@final
class BoundedStream:
    __slots__ = ("_stream",)

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream

    @property
    def socket(self) -> SocketType:
        return self._stream.socket

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        return bytes(await self._stream.receive_some(max_bytes))

    async def send_all(self, data: bytes) -> None:
        """Raises BrokenResourceError if it is not taken in time."""
        with trio.move_on_after(SEND_S) as sending:
            await self._stream.send_all(data)
        if sending.cancelled_caught:
            self.cut()
            raise trio.BrokenResourceError("it was not read")

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def aclose(self) -> None:
        await self._stream.aclose()

    def cut(self) -> None:
        """Close it at once; whoever waits on it is told."""
        self._stream.socket.close()
