"""Whatever a client sends over TLS or WebSocket is data, the end, or a broken connection; and little of it is kept."""

from __future__ import annotations

import ssl
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
import trio
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from trio.testing import memory_stream_pair
from websockets.frames import Frame, Opcode

from stompbroker.transport import Endpoint, StreamTransport, Tls
from stompbroker.transport.tls import MAX_UNSENT_BYTES, TlsTransport
from stompbroker.transport.websocket import MAX_ANSWER_BYTES, WebSocketTransport
from tests.support.certificates import Certificates

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stompbroker.transport import Transport

REQUEST = (
    b"GET /stomp HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Protocol: v12.stomp\r\nOrigin: http://localhost\r\n\r\n"
)
CHUNK_BYTES = 4096
QUICK = settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
#: Where to change what, and where to cut the stream.
CHANGES = st.lists(
    st.tuples(st.integers(0, 4000), st.sampled_from(["set", "drop", "add"]), st.binary(max_size=8)), max_size=4
)
CUTS = st.lists(st.integers(1, 700), max_size=12)

DATA = st.builds(
    Frame, st.sampled_from([Opcode.TEXT, Opcode.BINARY, Opcode.CONT]), st.binary(max_size=200), st.booleans()
)
CONTROLS = st.builds(Frame, st.sampled_from([Opcode.PING, Opcode.PONG, Opcode.CLOSE]), st.binary(max_size=125))
FRAMES = st.lists(st.one_of(DATA, CONTROLS), max_size=8)


def changed(data: bytes, changes: Sequence[tuple[int, str, bytes]]) -> bytes:
    for at, how, with_what in changes:
        at %= len(data) + 1
        kept = at if how == "add" else at + max(1, len(with_what))
        data = data[:at] + (b"" if how == "drop" else with_what) + data[kept:]
    return data


def cut(data: bytes, lengths: Sequence[int]) -> list[bytes]:
    pieces = []
    for length in lengths:
        pieces.append(data[:length])
        data = data[length:]
    return [piece for piece in (*pieces, data) if piece]


async def read_all(client: trio.abc.HalfCloseableStream, ours: Transport, pieces: Sequence[bytes]) -> bytes:
    """What comes out when these pieces, and then the end, go in after the handshake has been waited for. Anything else
    than an end or BrokenResourceError fails the test."""
    received = b""

    async def send() -> None:
        try:
            for piece in pieces:
                await client.send_all(piece)
            await client.send_eof()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            try:
                while chunk := await ours.receive_some(CHUNK_BYTES):
                    received += chunk
                await ours.finish()
            except trio.BrokenResourceError:
                pass
            await ours.close()
    return received


# WebSocket ------------------------------------------------------------------------------------------------------------


def open_websocket(data: bytes, lengths: Sequence[int]) -> bytes:
    async def run() -> bytes:
        client, theirs = memory_stream_pair()
        endpoint = Endpoint.parse("ws://127.0.0.1:1/stomp")
        ours = WebSocketTransport(StreamTransport(theirs, "127.0.0.1:2", endpoint))
        received = b""
        async with trio.open_nursery() as nursery:

            async def serve() -> None:
                nonlocal received
                try:
                    await ours.shake_hands()
                except trio.BrokenResourceError:
                    await ours.close()
                else:
                    received = await read_all(client, ours, [])
                    assert len(ours._answers) + len(ours._before) <= MAX_ANSWER_BYTES + CHUNK_BYTES

            nursery.start_soon(serve)
            try:
                for piece in cut(data, lengths):
                    await client.send_all(piece)
                await client.send_eof()
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass
        return received

    return trio.run(run)


@given(st.binary(max_size=600), CUTS)
@example(b"GET / HTTP/1.1\r\n\r\n", [])
@example(b"CONNECT\n\n\0", [])
@example(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", [])
@QUICK
def test_garbage_opens_no_websocket(data: bytes, lengths: list[int]) -> None:
    assert open_websocket(data, lengths) == b""


@given(CHANGES, CUTS)
@example([(4, "set", b"\xff\xfe")], [])
@example([(60, "add", b"\r\n\r\n")], [])
@QUICK
def test_an_altered_request_is_answered_or_refused(changes: list[tuple[int, str, bytes]], lengths: list[int]) -> None:
    open_websocket(changed(REQUEST, changes), lengths)


@given(FRAMES, CHANGES, CUTS)
@QUICK
def test_altered_frames_are_data_or_the_end(
    frames: list[Frame], changes: list[tuple[int, str, bytes]], lengths: list[int]
) -> None:
    data = b"".join(frame.serialize(mask=True) for frame in frames)

    received = open_websocket(REQUEST + changed(data, changes), lengths)

    assert len(received) <= len(data) + 8 * len(changes)


# TLS ------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.made_in(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def tls(certificates: Certificates) -> Tls:
    return Tls(certificates.files())


class TlsClient:
    """A client without a socket: what it would send can be altered on the way."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")

    def step(self, received: bytes = b"") -> bytes:
        """Go on with the handshake; what to send."""
        self._incoming.write(received)
        with suppress(ssl.SSLError):  # it wants more, or what it got was an alert
            self._tls.do_handshake()
        return self._outgoing.read()

    def records(self, *bodies: bytes) -> bytes:
        for body in bodies:
            self._tls.write(body)
        return self._outgoing.read()


async def hand_shaken(
    tls: Tls, context: ssl.SSLContext
) -> tuple[TlsClient, trio.abc.HalfCloseableStream, TlsTransport]:
    client, theirs = memory_stream_pair()
    speaker, ours = TlsClient(context), TlsTransport(StreamTransport(theirs, "127.0.0.1:2"), tls.for_clients)

    async def shake() -> None:
        await client.send_all(speaker.step())
        await client.send_all(speaker.step(bytes(await client.receive_some())))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ours.shake_hands)
        nursery.start_soon(shake)
    return speaker, client, ours


@given(CHANGES, CUTS, st.binary(max_size=200))
@example([], [1] * 12, b"")
@QUICK
def test_an_altered_handshake_is_done_or_refused(
    tls: Tls, certificates: Certificates, changes: list[tuple[int, str, bytes]], lengths: list[int], behind: bytes
) -> None:
    hello = TlsClient(certificates.for_client()).step()

    async def run() -> None:
        client, theirs = memory_stream_pair()
        ours = TlsTransport(StreamTransport(theirs, "127.0.0.1:2"), tls.for_clients)

        async def send() -> None:
            try:
                for piece in cut(changed(hello, changes) + behind, lengths):
                    await client.send_all(piece)
                await client.send_eof()
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            with pytest.raises(trio.BrokenResourceError):
                await ours.shake_hands()
            await ours.close()

    trio.run(run)


@given(st.lists(st.binary(min_size=1, max_size=300), max_size=6), CHANGES, CUTS)
@QUICK
def test_altered_records_are_a_beginning_of_what_was_sent(
    tls: Tls, certificates: Certificates, bodies: list[bytes], changes: list[tuple[int, str, bytes]], lengths: list[int]
) -> None:
    async def run() -> bytes:
        speaker, client, ours = await hand_shaken(tls, certificates.for_client())
        received = await read_all(client, ours, cut(changed(speaker.records(*bodies), changes), lengths))
        assert len(ours._unsent) + ours._outgoing.pending <= MAX_UNSENT_BYTES
        return received

    assert b"".join(bodies).startswith(trio.run(run))
