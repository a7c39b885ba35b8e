"""URLs, and the client's end of a WebSocket against the library's server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import memory_stream_pair
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.server import ServerProtocol

from stompbroker.client import Address, InvalidAddress, NoConnection, Problem, TlsOptions, connect
from stompbroker.client.websocket import open_websocket
from stompbroker.transport import Endpoint

if TYPE_CHECKING:
    from trio.testing import MockClock

URL = "ws://broker:80/ws"


@pytest.mark.parametrize(
    ("url", "endpoint", "user"),
    [
        ("stomp://h", "stomp://h:61613", None),
        ("stomp+tls://alice@[::1]", "stomp+tls://[::1]:61612", "alice"),
        ("ws://h/a/b", "ws://h:80/a/b", None),
        ("wss://h", "wss://h:443/", None),
        ("unix:///run/s", "unix:///run/s", None),
    ],
)
def test_a_url_names_the_broker_and_the_user(url: str, endpoint: str, user: str | None) -> None:
    address = Address.parse(url)

    assert (str(address.endpoint), address.user) == (endpoint, user)


@pytest.mark.parametrize("url", ["", "h:61613", "stomp://h?users=a", "http://h", "stomp://@h"])
def test_what_is_no_url_of_a_broker_is_refused_with_those_that_are(url: str) -> None:
    with pytest.raises(InvalidAddress, match=r"not the URL of a broker\. Possible are stomp://"):
        connect("stomp://h", url)


@pytest.mark.parametrize("url", ["stomp://u:swordfish@h", "wss://u:a@swordfish@h"])
def test_a_password_in_a_url_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(InvalidAddress, match="give it apart") as caught:
        connect(url)

    assert "swordfish" not in str(caught.value)


@pytest.mark.parametrize("host", [".local", "a..b", 64 * "a"])
async def test_a_host_that_cannot_be_a_name_is_an_unknown_one(host: str) -> None:
    with pytest.raises(NoConnection) as caught:
        async with connect(f"stomp://{host}", give_up_after=0):
            pytest.fail("not connected")

    assert caught.value.problem is Problem.NO_HOST


def test_options_for_tls_need_a_url_with_tls() -> None:
    with pytest.raises(InvalidAddress, match=r"use stomp\+tls:// or wss://"):
        connect("stomp://h", tls=TlsOptions(ca=Path("ca.pem")))


class Server:
    """The library's, moved by the test."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.protocol = ServerProtocol()
        self._stream = stream

    async def shake_hands(self, *, accepts: bool = True) -> Request:
        while not (events := self.protocol.events_received()):
            self.protocol.receive_data(bytes(await self._stream.receive_some()))
        (request,) = events
        assert isinstance(request, Request)
        response = self.protocol.accept(request) if accepts else self.protocol.reject(403, "no")
        self.protocol.send_response(response)
        await self.flush()
        return request

    async def flush(self) -> None:
        await self._stream.send_all(b"".join(self.protocol.data_to_send()))

    async def next_frame(self) -> tuple[Opcode, bytes]:
        while not (events := self.protocol.events_received()):
            self.protocol.receive_data(bytes(await self._stream.receive_some()))
        (frame,) = events
        assert isinstance(frame, Frame)
        return frame.opcode, bytes(frame.data)


async def test_messages_are_a_stream_of_bytes_and_pings_are_answered(autojump_clock: MockClock) -> None:
    ours, theirs = memory_stream_pair()
    server = Server(theirs)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.shake_hands)
        stream = await open_websocket(ours, Endpoint.parse(URL))

    await stream.send_all(b"CONNECT")
    assert await server.next_frame() == (Opcode.BINARY, b"CONNECT")

    server.protocol.send_text(b"MES", fin=False)
    server.protocol.send_ping(b"there?")
    server.protocol.send_continuation(b"SAGE", fin=True)
    server.protocol.send_binary(b"\0")
    await server.flush()
    assert await stream.receive_some() == b"MESSAGE\0"
    assert await server.next_frame() == (Opcode.PONG, b"there?")

    server.protocol.send_binary(b"ERROR")
    server.protocol.send_close(1000)
    await server.flush()
    assert await stream.receive_some() == b"ERROR"
    assert await stream.receive_some() == b""
    with pytest.raises(trio.BrokenResourceError):
        await stream.send_all(b"more")


async def test_a_refused_websocket_says_so(autojump_clock: MockClock) -> None:
    ours, theirs = memory_stream_pair()
    server = Server(theirs)
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def refuse() -> None:
            request = await server.shake_hands(accepts=False)
            assert (request.path, request.headers["Sec-WebSocket-Protocol"]) == ("/ws", "v12.stomp, v11.stomp")

        with pytest.raises(NoConnection, match=r"ws://broker:80/ws refuses WebSocket: .*403") as caught:
            await open_websocket(ours, Endpoint.parse(URL))
    assert caught.value.problem is Problem.NO_WEBSOCKET
