"""What a client sends behind its request.

Law: takes it whether anybody wants it or not, and keeps no more than a body may have. The server hands over a few
pieces, and then waits until they are taken: if nobody did, the end of the answer would wait behind them, and the
connection with both for good.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final, final

import trio

if TYPE_CHECKING:
    from typing import TypeAlias

    from starlette.types import Message, Receive

    _Channel: TypeAlias = tuple[trio.MemorySendChannel[Message], trio.MemoryReceiveChannel[Message]]

__all__ = ["MAX_BODY_BYTES", "Incoming"]

#: Bodies are a few fields.
MAX_BODY_BYTES: Final = 16 * 1024


@final
class Incoming:
    __slots__ = ("_put", "_receive", "_take", "is_gone")

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        # Bounded by what `run` puts into it.
        channel: _Channel = trio.open_memory_channel(inf)
        self._put, self._take = channel
        #: Whether the client has left.
        self.is_gone = False

    async def run(self) -> None:
        """Take until the client leaves or the answer is done."""
        size_bytes = 0
        with self._put:
            while not self.is_gone:
                message = await self._receive()
                self.is_gone = message["type"] == "http.disconnect"
                # Whoever reads has had too much by the piece that is the first too many.
                if self.is_gone or size_bytes <= MAX_BODY_BYTES:
                    self._put.send_nowait(message)
                size_bytes += len(message.get("body", b""))

    async def receive(self) -> Message:
        """As the application calls it."""
        try:
            return await self._take.receive()
        except trio.EndOfChannel:
            return {"type": "http.disconnect"}

    def close(self) -> None:
        self._take.close()
