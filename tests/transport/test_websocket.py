"""The handshake of WebSocket, and messages over it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import memory_stream_pair
from websockets.exceptions import InvalidStatus
from websockets.frames import Frame, Opcode

from stompbroker.buffers import joined
from stompbroker.transport import Endpoint, StreamTransport
from stompbroker.transport.websocket import MAX_ANSWER_BYTES, MAX_REQUEST_BYTES, WebSocketTransport
from tests.support.carriers import WebSocketStream, both, over_websocket

if TYPE_CHECKING:
    from trio.testing import MockClock

    from stompbroker.buffers import Buffer

LOOPBACK = "ws://127.0.0.1:15674/ws"


def transport_at(endpoint: str) -> tuple[trio.abc.Stream, WebSocketTransport]:
    """The client's end, and ours, before the handshake."""
    client, theirs = memory_stream_pair()
    return client, WebSocketTransport(StreamTransport(theirs, "memory", Endpoint.parse(endpoint)))


async def is_let_in(endpoint: str = LOOPBACK, uri: str = "ws://127.0.0.1:15674/ws", **headers: str) -> bool:
    client, ours = transport_at(endpoint)
    let_in: list[bool] = []

    async def ask() -> None:
        stream = WebSocketStream(client, uri=uri)
        with suppress(InvalidStatus):
            await stream.shake_hands(**headers)
        refused = stream.protocol.handshake_exc
        assert refused is None or (isinstance(refused, InvalidStatus) and refused.response.status_code == 403)
        let_in.append(refused is None)
        await client.aclose()

    async def answer() -> None:
        with suppress(trio.BrokenResourceError):
            await ours.shake_hands()

    await both(ask, answer)
    return let_in[0]


# Who may ask ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("origin", "is_allowed"),
    [
        ("http://127.0.0.1:15674", True),
        ("http://127.0.0.1:3000", True),
        ("https://127.0.0.1", True),
        ("http://localhost:15674", False),
        ("http://evil.example", False),
        ("http://127.0.0.1.evil.example", False),
        ("http://evil.example/127.0.0.1", False),
        ("http://evil.example:15674@127.0.0.1:1", True),  # that is the host 127.0.0.1, as a browser would say
        ("null", False),
        ("file://", False),
        ("", False),
        ("http://[", False),
    ],
)
async def test_a_page_must_come_from_the_same_host(origin: str, is_allowed: bool, autojump_clock: MockClock) -> None:
    assert await is_let_in(Origin=origin) is is_allowed


async def test_a_name_that_was_rebound_to_loopback_is_not_the_same_host(autojump_clock: MockClock) -> None:
    rebound = {"uri": "ws://evil.example:15674/ws", "Origin": "http://evil.example"}

    assert not await is_let_in(**rebound)
    # Elsewhere nobody comes in without login, and a name may be anything.
    assert await is_let_in("ws://0.0.0.0:15674/ws", **rebound)


async def test_what_is_no_browser_says_no_origin(autojump_clock: MockClock) -> None:
    assert await is_let_in()


@pytest.mark.parametrize(
    ("allowed", "origin", "is_allowed"),
    [
        ("https://app.example", "https://app.example", True),
        ("https://app.example/", "https://app.example", True),
        ("https://app.example", "https://APP.example", True),
        ("https://app.example,https://other.example", "https://other.example", True),
        ("https://app.example", "http://app.example", False),
        ("https://app.example", "https://app.example.evil", False),
        ("*", "https://evil.example", True),
    ],
)
async def test_an_endpoint_may_allow_other_origins(
    allowed: str, origin: str, is_allowed: bool, autojump_clock: MockClock
) -> None:
    assert await is_let_in(f"{LOOPBACK}?origin={allowed}", Origin=origin) is is_allowed


# What is answered -----------------------------------------------------------------------------------------------------


def request_for(path: str = "/ws", **headers: str) -> bytes:
    lines = {
        "Host": "127.0.0.1:15674",
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version": "13",
    } | {name.replace("_", "-"): value for name, value in headers.items()}
    return f"GET {path} HTTP/1.1\r\n".encode() + b"".join(f"{k}: {v}\r\n".encode() for k, v in lines.items()) + b"\r\n"


async def answer_to(request: bytes) -> bytes:
    """What a client reads that sends exactly this, up to the end of the answer's head."""
    client, ours = transport_at(LOOPBACK)
    answer = b""

    async def ask() -> None:
        nonlocal answer
        await client.send_all(request)
        while b"\r\n\r\n" not in answer and (chunk := await client.receive_some()):
            answer += bytes(chunk)
        await client.aclose()

    async def serve() -> None:
        with suppress(trio.BrokenResourceError):
            await ours.shake_hands()

    with trio.fail_after(60):
        await both(ask, serve)
    return answer


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        ("v12.stomp", b"v12.stomp"),
        ("v10.stomp, v11.stomp", b"v10.stomp"),
        ("mqtt, v11.stomp", b"v11.stomp"),
        ("mqtt", None),
        (None, None),
    ],
)
async def test_a_sub_protocol_is_agreed_on_if_there_is_one(offered: str | None, chosen: bytes | None) -> None:
    answer = await answer_to(request_for(**({} if offered is None else {"Sec_WebSocket_Protocol": offered})))

    assert answer.startswith(b"HTTP/1.1 101 ")
    assert (b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in answer) is True
    assert (b"Sec-WebSocket-Protocol: " + (chosen or b"") in answer) is (chosen is not None)


async def test_no_compression_is_agreed_on() -> None:
    assert b"Extensions" not in await answer_to(request_for(Sec_WebSocket_Extensions="permessage-deflate"))


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (request_for("/elsewhere"), b"404"),
        (request_for("/"), b"404"),
        (request_for("/ws?token=1"), b"101"),
        (request_for(Upgrade="h2c"), b"426"),
        (request_for(Sec_WebSocket_Version="12"), b"400"),
        (request_for(Sec_WebSocket_Key="short"), b"400"),
        (b"POST /ws HTTP/1.1\r\nHost: x\r\n\r\n", b""),
        (b"CONNECT\naccept-version:1.2\n\n\0", b"400"),
        (b"GET /ws HTTP/1.1\r\n" + b"X: y\r\n" * MAX_REQUEST_BYTES, b"400"),
        (b"GET " + b"/" * MAX_REQUEST_BYTES, b"400"),
    ],
)
async def test_what_opens_no_websocket_is_refused(request_bytes: bytes, status: bytes) -> None:
    answer = await answer_to(request_bytes)

    assert answer.startswith(b"HTTP/1.1 " + status)


async def test_what_follows_the_request_at_once_is_not_lost() -> None:
    client, ours = transport_at(LOOPBACK)
    await client.send_all(request_for() + Frame(Opcode.BINARY, b"abc").serialize(mask=True))

    await ours.shake_hands()

    assert await ours.receive_some(100) == b"abc"


# Messages -------------------------------------------------------------------------------------------------------------


async def opened(*, prefers_text: bool = False) -> tuple[WebSocketStream, WebSocketTransport, trio.abc.Stream]:
    """The client's end, ours, and what the client's end stands on. The kernel between them takes 100 bytes."""
    client, theirs = memory_stream_pair()
    stream, ours = await over_websocket(prefers_text=prefers_text)(client, NarrowTransport(theirs))
    assert isinstance(stream, WebSocketStream)
    assert isinstance(ours, WebSocketTransport)
    return stream, ours, client


class NarrowTransport(StreamTransport):
    """Takes a few bytes at once, as a kernel does whose client is slow."""

    room_bytes = 1 << 20

    def __init__(self, stream: trio.abc.Stream) -> None:
        super().__init__(stream, "memory")

    def send_now(self, *parts: Buffer) -> int:
        if not self.room_bytes:
            raise BlockingIOError
        taken = joined(parts)[: self.room_bytes]
        self.room_bytes -= len(taken)
        stream: Any = self._stream
        stream.send_stream._outgoing.put(taken)
        stream.send_stream.close_hook()  # moves it to the other end; the hook for sending waits
        return len(taken)


async def test_who_has_sent_text_only_gets_text_where_it_is_text(autojump_clock: MockClock) -> None:
    stream, ours, _ = await opened(prefers_text=True)
    await stream.send_all(b"CONNECT")
    await ours.receive_some(100)

    for data in (b"one", "zwölf".encode(), b"\xff", b"four"):
        assert ours.send_now(data) == len(data)
        assert await stream.receive_some() == data
    await stream.send_all(b"\xff")
    await ours.receive_some(100)
    await ours.send_all(b"five")
    await stream.receive_some()

    kinds = [frame.opcode for frame in stream.frames]
    assert kinds == [Opcode.TEXT, Opcode.TEXT, Opcode.BINARY, Opcode.TEXT, Opcode.BINARY]


@pytest.mark.parametrize("room_bytes", [0, 1, 3, 4, 5, 100, 203, 204])
async def test_what_the_kernel_does_not_take_comes_later_in_the_same_message(
    room_bytes: int, autojump_clock: MockClock
) -> None:
    stream, ours, client = await opened()
    narrow = ours._under
    assert isinstance(narrow, NarrowTransport)
    narrow.room_bytes = room_bytes
    data, more = b"x" * 200, b"y" * 7

    try:
        taken = ours.send_now(data)
    except BlockingIOError:
        taken = 0
    # A ping in between must wait until the message is complete.
    await client.send_all(
        Frame(Opcode.PING, b"!").serialize(mask=True) + Frame(Opcode.BINARY, b"z").serialize(mask=True)
    )
    assert await ours.receive_some(100) == b"z"
    await ours.send_all(data[taken:] + more)
    received = b""
    while len(received) < 207:
        received += await stream.receive_some()

    assert received == data + more
    assert [bytes(frame.data) for frame in stream.frames][-1].endswith(more)
    narrow.room_bytes = 100
    assert ours.send_now(b"on") == 2
    assert await stream.receive_some() == b"on"


async def test_a_client_that_sends_pings_and_reads_no_answers_is_given_up(autojump_clock: MockClock) -> None:
    _, ours, client = await opened()
    narrow = ours._under
    assert isinstance(narrow, NarrowTransport)
    narrow.room_bytes = 0
    ping = Frame(Opcode.PING, b"!" * 125).serialize(mask=True)
    await client.send_all(ping * 1000)

    async def receive() -> None:
        while True:
            await ours.receive_some(16_384)

    with pytest.raises(trio.BrokenResourceError, match="more pings than it reads"):
        await receive()

    assert len(ours._answers) + len(ours._before) <= MAX_ANSWER_BYTES + 16_384


async def test_closing_is_answered_and_ends_the_stream(autojump_clock: MockClock) -> None:
    stream, ours, _ = await opened()
    await stream.send_all(b"last")
    await stream.send_eof()

    assert await ours.receive_some(100) == b"last"
    assert await ours.receive_some(100) == b""
    assert ours.has_left()
    with pytest.raises(trio.BrokenResourceError):
        await ours.send_all(b"too late")
    await ours.finish()
    assert await stream.receive_some() == b""
    assert stream.protocol.close_rcvd is not None


async def test_finishing_says_goodbye(autojump_clock: MockClock) -> None:
    stream, ours, _ = await opened()

    async def read() -> None:
        assert await stream.receive_some() == b"ERROR"
        assert await stream.receive_some() == b""
        await stream.aclose()

    async def end() -> None:
        await ours.send_all(b"ERROR")
        await ours.finish()

    await both(read, end)

    assert stream.protocol.close_rcvd is not None
    assert stream.protocol.close_rcvd.code == 1000
