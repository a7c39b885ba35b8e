"""A minimal STOMP 1.2 client on trio for crash tests.

The caller judges `ConnectionLost`, which crash tests expect. An ERROR is always a fault: whatever dies, clients that
keep to the protocol get none; except for the one with which a broker that may have lost its store sends them away.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, final

import trio

from stompbroker.stomp import FrameReader, Limits, Version, render_frame

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from stompbroker.stomp import Frame
    from tests.support.broker_process import Address

_CHUNK_BYTES: Final = 256 * 1024
#: SO_LINGER value that makes closing reset the connection.
_RESET: Final = b"\1\0\0\0\0\0\0\0"

#: How its ERROR begins.
_LOST_STORE: Final = "broker may have lost its store"


class ConnectionLost(Exception):
    """Refused, reset or closed."""


class Misbehaved(Exception):
    """The broker broke a rule, or died by itself."""


def encoded(command: str, headers: dict[str, str], body: bytes = b"") -> bytes:
    return render_frame(command, list(headers.items()), body, Version.V1_2)


@final
class StompClient:
    """Frames in, frames out, in batches."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._reader = FrameReader(Limits())
        self._reader.version = Version.V1_2
        self._unread: list[Frame] = []

    async def send(self, data: bytes) -> None:
        try:
            await self._stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise ConnectionLost from error

    async def wait_frames(self) -> list[Frame]:
        """All frames that have arrived, at least one."""
        frames, self._unread = self._unread, []
        while not frames:
            try:
                chunk = await self._stream.receive_some(_CHUNK_BYTES)
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                raise ConnectionLost from error
            if not chunk:
                raise ConnectionLost
            frames = self._reader.receive(bytes(chunk))
            while self._reader.has_more:
                frames += self._reader.receive(b"")
        for frame in frames:
            if frame.command == "ERROR" and frame.headers.get("message", "").startswith(_LOST_STORE):
                raise ConnectionLost
            if frame.command == "ERROR":
                raise Misbehaved(f"ERROR {frame.headers} {frame.body.decode(errors='replace')}")
        return frames

    async def request(self, command: str, headers: dict[str, str], *, answer: str) -> None:
        """Send a frame whose answer comes next; later frames are kept."""
        await self.send(encoded(command, headers))
        first, *rest = await self.wait_frames()
        if first.command != answer:
            raise Misbehaved(f"{first.command} {first.headers} instead of {answer} for {command} {headers}")
        self._unread = rest

    async def vanish(self) -> None:
        """Close without DISCONNECT."""
        await trio.aclose_forcefully(self._stream)

    async def reset(self) -> None:
        self._stream.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_LINGER, _RESET)
        await self.vanish()


@asynccontextmanager
async def connected(address: Address, *, client_id: str | None = None) -> AsyncIterator[StompClient]:
    """A connected client, closed without DISCONNECT after the block. May raise `ConnectionLost`."""
    try:
        stream = await trio.open_tcp_stream(address.host, address.port)
    except OSError as error:
        raise ConnectionLost from error
    client = StompClient(stream)
    headers = {"accept-version": "1.2", "host": "soak", "heart-beat": "0,0"}
    if client_id is not None:
        headers["client-id"] = client_id
    try:
        await client.request("CONNECT", headers, answer="CONNECTED")
        yield client
    finally:
        await client.vanish()


async def round_trip(address: Address) -> None:
    """Publish to a transient topic and receive the message."""
    async with connected(address) as client:
        headers = {"id": "0", "destination": "/topic/transient", "receipt": "subscribed"}
        await client.request("SUBSCRIBE", headers, answer="RECEIPT")
        await client.request("SEND", {"destination": "/topic/transient"}, answer="MESSAGE")
