"""The client's end of a WebSocket, as a stream of bytes.

Law: the library `websockets` keeps the protocol. Each piece that is sent is one binary message; what comes is handed on
without regard to messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import trio
from websockets.client import ClientProtocol
from websockets.exceptions import InvalidHandshake, InvalidMessage
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from stompbroker.client.errors import NoConnection, Problem

if TYPE_CHECKING:
    from stompbroker.transport import Endpoint

#: The largest message taken, in bytes: the largest body that a broker can allow, and its headers.
MAX_MESSAGE_BYTES: Final = 1024**3 + 16 * 1024**2
_SUBPROTOCOLS: Final = [Subprotocol("v12.stomp"), Subprotocol("v11.stomp")]
_CHUNK_BYTES: Final = 256 * 1024


async def open_websocket(stream: trio.abc.Stream, endpoint: Endpoint) -> trio.abc.Stream:
    """Raises NoConnection."""
    protocol = ClientProtocol(parse_uri(str(endpoint)), subprotocols=_SUBPROTOCOLS, max_size=MAX_MESSAGE_BYTES)
    protocol.send_request(protocol.connect())
    opened = WebSocketStream(stream, protocol)
    try:
        await opened.flush()
        while protocol.state is State.CONNECTING and protocol.handshake_exc is None:
            opened.take(bytes(await stream.receive_some(_CHUNK_BYTES)))
    except trio.BrokenResourceError as error:
        raise NoConnection(Problem.NO_WEBSOCKET, f"{endpoint} closed during the handshake of WebSocket.") from error
    if protocol.state is not State.OPEN:
        raise NoConnection(Problem.NO_WEBSOCKET, f"{endpoint} refuses WebSocket: {_reason(protocol)}.")
    return opened


def _reason(protocol: ClientProtocol) -> str:
    error = protocol.handshake_exc
    if isinstance(error, InvalidMessage):
        return "it does not speak HTTP"
    return str(error) if isinstance(error, InvalidHandshake) else "it closed the connection"


@final
class WebSocketStream(trio.abc.Stream):
    def __init__(self, stream: trio.abc.Stream, protocol: ClientProtocol) -> None:
        self._stream = stream
        self._protocol = protocol
        self._sending = trio.Lock()  # keeps the bytes of a message together: answers to pings are sent while receiving

    async def flush(self) -> None:
        """Send what the protocol has to say."""
        async with self._sending:
            await self._stream.send_all(b"".join(self._protocol.data_to_send()))

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        if self._protocol.state is not State.OPEN:
            raise trio.BrokenResourceError("the broker has closed the WebSocket")
        self._protocol.send_binary(bytes(data))
        await self.flush()

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """More than `max_bytes` if a message is larger."""
        await trio.lowlevel.checkpoint_if_cancelled()
        while not (payload := self._received()) and self._protocol.state is State.OPEN:
            self.take(bytes(await self._stream.receive_some(_CHUNK_BYTES)))
            if self._protocol.state is State.OPEN:
                await self.flush()
        return payload

    def take(self, chunk: bytes) -> None:
        """What the stream has received; empty at its end."""
        if chunk:
            self._protocol.receive_data(chunk)
        else:
            self._protocol.receive_eof()

    def _received(self) -> bytes:
        data = (Opcode.TEXT, Opcode.BINARY, Opcode.CONT)
        events = self._protocol.events_received()
        return b"".join(bytes(event.data) for event in events if isinstance(event, Frame) and event.opcode in data)

    async def aclose(self) -> None:
        await self._stream.aclose()
