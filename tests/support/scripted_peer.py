"""A STOMP server that says exactly what a test tells it to, for what no real broker would do on demand."""

from __future__ import annotations

import select
from typing import TYPE_CHECKING

import trio

from stompbroker.client import Address
from stompbroker.transport import Endpoint, Scheme

if TYPE_CHECKING:
    import ssl

CONNECTED = b"CONNECTED\nversion:1.2\nheart-beat:100,1000\n\n\0"


def address_at(port: int, host: str = "127.0.0.1") -> Address:
    return Address(Endpoint(Scheme.STOMP, host, port))


class ClientLeft(Exception):
    """Before the frame was complete."""


class Peer:
    """A server for one client, moved by the test step by step."""

    def __init__(self, listener: trio.SocketListener) -> None:
        self._listener = listener
        self.port: int = listener.socket.getsockname()[1]
        self.address = address_at(self.port)
        self._received = bytearray()
        self._saying = trio.Lock()
        self._accepted: trio.SocketStream | None = None
        self._secured: trio.SSLStream[trio.SocketStream] | None = None

    @property
    def stream(self) -> trio.SocketStream:
        assert self._accepted is not None, "nobody has connected yet"
        return self._accepted

    async def aclose(self) -> None:
        if self._accepted is not None:
            await trio.aclose_forcefully(self._accepted)

    async def accept(self, context: ssl.SSLContext | None = None) -> None:
        """With a context, over TLS."""
        self._accepted = await self._listener.accept()
        if context is not None:
            self._secured = trio.SSLStream(self._accepted, context, server_side=True, https_compatible=True)

    def certificate(self) -> object:
        """The subject of the certificate that the client has shown."""
        assert self._secured is not None
        shown = self._secured.getpeercert()
        return shown["subject"]

    async def greet(self, connected: bytes = CONNECTED, *, context: ssl.SSLContext | None = None) -> bytes:
        """Accept, read CONNECT and answer; returns what the client said."""
        await self.accept(context)
        said = await self.read_frame()
        await self.say(connected)
        return said

    async def say(self, content: bytes) -> None:
        async with self._saying:
            await (self._secured or self.stream).send_all(content)

    async def part(self) -> None:
        """Let the client say goodbye."""
        frame = await self.read_frame()
        assert frame.startswith(b"DISCONNECT\n"), frame
        await self.confirm(frame)

    async def confirm(self, frame: bytes) -> None:
        """The RECEIPT that this frame asks for."""
        (receipt,) = (line for line in frame.split(b"\n") if line.startswith(b"receipt:"))
        await self.say(b"RECEIPT\nreceipt-id:%b\n\n\0" % receipt.removeprefix(b"receipt:"))

    def has_more(self) -> bool:
        """Whether anything has come after the last frame that was read; on loopback what was sent is there at once."""
        readable, _, _ = select.select([self.stream.socket.fileno()], [], [], 0)
        return bool(self._received or readable)

    async def read_frame(self) -> bytes:
        searched = 0
        while (end := self._received.find(b"\0", searched)) < 0:
            searched = len(self._received)
            chunk = await (self._secured or self.stream).receive_some()
            if not chunk:
                raise ClientLeft
            self._received += chunk
        frame = bytes(self._received[:end])
        del self._received[: end + 1]
        return frame.lstrip(b"\n")
