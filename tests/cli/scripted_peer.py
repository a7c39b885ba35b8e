"""A STOMP server that says exactly what a test tells it to, for what no real broker would do on demand."""

from __future__ import annotations

import select

import trio

CONNECTED = b"CONNECTED\nversion:1.2\nheart-beat:100,1000\n\n\0"


class Peer:
    """A server for one client, moved by the test step by step."""

    def __init__(self, listener: trio.SocketListener) -> None:
        self._listener = listener
        self.port: int = listener.socket.getsockname()[1]
        self._received = bytearray()
        self._saying = trio.Lock()
        self._accepted: trio.SocketStream | None = None

    @property
    def stream(self) -> trio.SocketStream:
        assert self._accepted is not None, "nobody has connected yet"
        return self._accepted

    async def aclose(self) -> None:
        if self._accepted is not None:
            await trio.aclose_forcefully(self._accepted)

    async def greet(self, connected: bytes = CONNECTED) -> bytes:
        """Accept, read CONNECT and answer; returns what the client said."""
        self._accepted = await self._listener.accept()
        said = await self.read_frame()
        await self.say(connected)
        return said

    async def say(self, content: bytes) -> None:
        async with self._saying:
            await self.stream.send_all(content)

    def has_more(self) -> bool:
        """Whether anything has come after the last frame that was read; on loopback what was sent is there at once."""
        readable, _, _ = select.select([self.stream.socket.fileno()], [], [], 0)
        return bool(self._received or readable)

    async def read_frame(self) -> bytes:
        searched = 0
        while (end := self._received.find(b"\0", searched)) < 0:
            searched = len(self._received)
            chunk = await self.stream.receive_some()
            assert chunk, "the client went away"
            self._received += chunk
        frame = bytes(self._received[:end])
        del self._received[: end + 1]
        return frame.lstrip(b"\n")
