"""What STOMP is carried over: both ends of a connection, put on top of a plain one.

Law: the broker's end is ours; the client's end is trio's TLS and the library websockets, which know nothing of ours.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, final

import trio
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.uri import parse_uri

from stompbroker.transport.tcp import TcpTransport
from stompbroker.transport.tls import Tls, TlsTransport
from stompbroker.transport.websocket import WebSocketTransport

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import ExitStack
    from typing import TypeAlias

    from stompbroker.transport import Transport
    from tests.support.certificates import Certificates

    #: The client's end, and ours.
    Ends: TypeAlias = tuple[trio.abc.Stream, Transport]
    Carrier: TypeAlias = Callable[[trio.abc.Stream, Transport], Awaitable[Ends]]


@final
class WebSocketStream(trio.abc.Stream):
    """A client's WebSocket as a stream: what is sent at once is a message, text if it may be and that is wanted."""

    def __init__(self, stream: trio.abc.Stream, *, prefers_text: bool = False, uri: str = "ws://localhost/") -> None:
        self.stream = stream
        self.protocol = ClientProtocol(parse_uri(uri), max_size=None)
        self._prefers_text = prefers_text
        #: Data frames received, control frames not among them.
        self.frames: list[Frame] = []
        self._payload = b""
        self.answers_pings = True

    async def shake_hands(self, **headers: str) -> None:
        request = self.protocol.connect()
        request.headers.update(headers)
        self.protocol.send_request(request)
        await self.flush()
        while not self.protocol.events_received():
            self.protocol.receive_data(bytes(await self.stream.receive_some()))
        if self.protocol.handshake_exc is not None:
            raise self.protocol.handshake_exc

    async def flush(self) -> None:
        for data in self.protocol.data_to_send():
            if data:
                await self.stream.send_all(data)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        # Not through the protocol, which would send nothing any more once the broker has closed.
        opcode = Opcode.TEXT if self._prefers_text and _is_text(bytes(data)) else Opcode.BINARY
        await self.stream.send_all(Frame(opcode, bytes(data)).serialize(mask=True))

    async def wait_send_all_might_not_block(self) -> None:
        await self.stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        while not self._payload:
            chunk = bytes(await self.stream.receive_some())
            if not chunk:
                return b""
            self.protocol.receive_data(chunk)
            for event in self.protocol.events_received():
                assert isinstance(event, Frame)
                if event.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
                    self.frames.append(event)
                    self._payload += bytes(event.data)
            if self.answers_pings:
                await self.flush()
        taken, self._payload = self._payload[:max_bytes], self._payload[max_bytes:] if max_bytes else b""
        return taken

    async def send_eof(self) -> None:
        self.protocol.send_close()
        await self.flush()

    async def aclose(self) -> None:
        await self.stream.aclose()


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


async def both(one: Callable[[], Awaitable[None]], other: Callable[[], Awaitable[None]]) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one)
        nursery.start_soon(other)


async def plain(client: trio.abc.Stream, ours: Transport) -> Ends:
    return client, ours


def over_unix_socket(resources: ExitStack) -> Carrier:
    """Through the kernel, with the transport that TCP has, too. The clients' ends are closed with `resources`."""

    async def carry(_: trio.abc.Stream, ours: Transport) -> Ends:
        pair = socket.socketpair()
        resources.enter_context(pair[0])
        client, server = (trio.SocketStream(trio.socket.from_stdlib_socket(each)) for each in pair)
        return client, TcpTransport(server, ours.peer, ours.endpoint)

    return carry


def over_tls(certificates: Certificates) -> Carrier:
    tls = Tls(certificates.files())

    async def carry(client: trio.abc.Stream, ours: Transport) -> Ends:
        encrypted = TlsTransport(ours, tls.for_clients)
        stream = trio.SSLStream(client, certificates.for_client(), server_hostname="localhost", https_compatible=True)
        await both(stream.do_handshake, encrypted.shake_hands)
        return stream, encrypted

    return carry


def over_websocket(*, prefers_text: bool) -> Carrier:
    async def carry(client: trio.abc.Stream, ours: Transport) -> Ends:
        ours.endpoint = None  # whichever it was, it has no WebSocket
        opened, stream = WebSocketTransport(ours), WebSocketStream(client, prefers_text=prefers_text)
        await both(stream.shake_hands, opened.shake_hands)
        return stream, opened

    return carry


def over_both(certificates: Certificates) -> Carrier:
    """WebSocket over TLS."""

    async def carry(client: trio.abc.Stream, ours: Transport) -> Ends:
        return await over_websocket(prefers_text=False)(*await over_tls(certificates)(client, ours))

    return carry
