"""Connections over WebSocket (RFC 6455): the handshake, and STOMP in messages.

Law: the library `websockets` judges the handshake, this module who may ask for one. On the way out a message carries
whole STOMP frames; on the way in, frames may cross messages. No payload is kept here, in either direction.

Any web page can open a WebSocket to any address that its visitor reaches, loopback included, and the browser asks
nobody. So a page must come from the same host, or from an origin that the endpoint allows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final
from urllib.parse import urlsplit

import trio
from websockets.frames import CloseCode, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol

from stompbroker.buffers import joined
from stompbroker.transport.endpoint import host_in, is_loopback
from stompbroker.transport.transport import LINGER_S, Transport
from stompbroker.transport.websocket_frames import MessageReader, close_frame, control_frame, data_header

if TYPE_CHECKING:
    from collections.abc import Sequence

    from websockets.http11 import Response
    from websockets.typing import Subprotocol

    from stompbroker.buffers import Buffer
    from stompbroker.transport.endpoint import Endpoint

#: Of the request that opens a WebSocket. Browsers send 1 KiB, and perhaps long cookies.
MAX_REQUEST_BYTES: Final = 16 * 1024
#: Control frames that wait to be sent, before a client that does not read them is given up.
MAX_ANSWER_BYTES: Final = 64 * 1024
_SUBPROTOCOLS: Final = ("v12.stomp", "v11.stomp", "v10.stomp")
_END_OF_REQUEST: Final = b"\r\n\r\n"
_BAD_REQUEST: Final = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\nThis is a WebSocket: open it by HTTP.\n"


@final
class WebSocketTransport(Transport):
    """
    Invariants:
        `_before` is sent before anything else: control frames, or the header of the open frame, not taken as a whole
        `_left_bytes` of the open frame are still to be sent; while there are any, control frames wait in `_answers`
        only `send_all` sends while `_is_sending`; if it was cancelled, it stays set, and nothing can be sent any more
    """

    __slots__ = ("_answers", "_before", "_early", "_is_sending", "_left_bytes", "_reader", "_under")

    def __init__(self, under: Transport) -> None:
        super().__init__(under.peer, under.endpoint)
        self.certificate = under.certificate
        self._under = under
        self._reader = MessageReader()
        #: What came behind the request.
        self._early = b""
        self._before = b""
        self._left_bytes = 0
        self._answers = b""
        self._is_sending = False

    async def shake_hands(self) -> None:
        """Must come first. Raises BrokenResourceError if there is no WebSocket; the client was told why."""
        protocol = ServerProtocol(select_subprotocol=_choose_subprotocol)
        protocol.receive_data(await self._receive_request())
        events = protocol.events_received()
        if events and isinstance(request := events[0], Request):
            protocol.send_response(_answer(protocol, request, self.endpoint))
        await self._under.send_all(b"".join(protocol.data_to_send()))
        if protocol.state is not State.OPEN:
            await self._under.finish()
            raise trio.BrokenResourceError(f"no WebSocket: {protocol.handshake_exc or 'refused'}")

    async def _receive_request(self) -> bytes:
        received = b""
        while _END_OF_REQUEST not in received:
            # STOMP itself has a NUL soon.
            if len(received) > MAX_REQUEST_BYTES or b"\0" in received:
                await self._under.send_all(_BAD_REQUEST)
                await self._under.finish()
                raise trio.BrokenResourceError(
                    f"no WebSocket: no request of HTTP with at most {MAX_REQUEST_BYTES} bytes"
                )
            chunk = await self._under.receive_some(MAX_REQUEST_BYTES)
            if not chunk:
                raise trio.BrokenResourceError("the client left during the handshake of WebSocket")
            received += chunk
        end = received.index(_END_OF_REQUEST) + len(_END_OF_REQUEST)
        self._early = received[end:]
        return received[:end]

    # Receiving

    async def receive_some(self, max_bytes: int) -> bytes:
        reader = self._reader
        while not reader.is_over:
            if self._early or reader.has_more:
                await trio.lowlevel.checkpoint()
                chunk, self._early = self._early, b""
            else:
                chunk = await self._under.receive_some(max_bytes)
                if not chunk:
                    break
            pongs = reader.pongs
            data = reader.receive(chunk)
            if reader.answers:
                self._answer(reader)
            if reader.pongs != pongs:
                self.on_sign_of_life()
            if data:
                return data
        reader.is_over = True
        return b""

    def _answer(self, reader: MessageReader) -> None:
        answers, reader.answers = reader.answers, b""
        self._send_control(answers)
        if len(self._answers) + len(self._before) > MAX_ANSWER_BYTES:
            raise trio.BrokenResourceError("the client sends more pings than it reads answers")

    # Sending

    def send_now(self, *parts: Buffer) -> int:
        data = joined(parts)
        if self._is_sending or self._left_bytes or self._reader.is_over:
            return 0
        before = self._before + self._header(data)
        sent_bytes = self._under.send_now(before + data)
        self._before = before[sent_bytes:]
        taken_bytes = max(0, sent_bytes - len(before))
        self._left_bytes = len(data) - taken_bytes
        return taken_bytes

    async def send_all(self, *parts: Buffer) -> None:
        data = joined(parts)
        if self._is_sending or self._reader.is_over:
            raise trio.BrokenResourceError("the client has closed, or a part of what was sent before is missing")
        self._is_sending = True
        pieces = [self._before, data[: self._left_bytes]]
        if rest := data[self._left_bytes :]:
            pieces += [self._answers, self._header(rest), rest]
            self._answers = b""
        self._before = b""
        self._left_bytes -= min(self._left_bytes, len(data))
        await self._under.send_all(b"".join(pieces))
        self._is_sending = False
        if self._answers:
            self._send_control(b"")

    def _header(self, data: bytes) -> bytes:
        """Of a message with this payload: binary, unless the client has sent text only and this is text."""
        is_text = self._reader.has_text and not self._reader.has_binary and _is_utf8(data)
        return data_header(Opcode.TEXT if is_text else Opcode.BINARY, len(data))

    def _send_control(self, frames: bytes) -> None:
        """Send control frames as soon as no other frame is open; at the latest with the next message."""
        self._answers += frames
        if self._is_sending or self._left_bytes:
            return
        self._before, self._answers = self._before + self._answers, b""
        try:
            self._before = self._before[self._under.send_now(self._before) :]
        except OSError:
            return  # the kernel has no room, or the next receive will say what is wrong

    def probe(self) -> bool:
        self._send_control(control_frame(Opcode.PING))
        return True

    # Ending

    async def finish(self) -> None:
        try:
            with trio.move_on_after(LINGER_S):
                if not self._is_sending and not self._left_bytes:
                    farewell = b"" if self._reader.is_over else close_frame(CloseCode.NORMAL_CLOSURE)
                    await self._under.send_all(self._before + self._answers + farewell)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the client was quicker
        await self._under.finish()

    async def close(self) -> None:
        await self._under.close()

    def has_left(self) -> bool:
        return self._reader.is_over or self._under.has_left()

    def is_reset(self) -> bool:
        return self._under.is_reset()

    def note_unanswered(self, received_bytes: int, sent_bytes: int) -> None:
        self._under.note_unanswered(received_bytes, sent_bytes)


def _is_utf8(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _choose_subprotocol(_: ServerProtocol, offered: Sequence[Subprotocol]) -> Subprotocol | None:
    """None if the client offers none of ours: CONNECT negotiates the version in any case."""
    return next((name for name in offered if name in _SUBPROTOCOLS), None)


def _answer(protocol: ServerProtocol, request: Request, endpoint: Endpoint | None) -> Response:
    if endpoint is not None:
        if request.path.partition("?")[0] != endpoint.path:
            return protocol.reject(404, f"There is no WebSocket at this path. It is at {endpoint.path}\n")
        problem = _origin_problem(request, endpoint)
        if problem is not None:
            return protocol.reject(403, problem)
    return protocol.accept(request)


def _origin_problem(request: Request, endpoint: Endpoint) -> str | None:
    """Why the page that asks must not; None if it may, or if no page asks."""
    origins, hosts = request.headers.get_all("Origin"), request.headers.get_all("Host")
    if not origins:
        return None
    allowed = endpoint.restrictions.origins
    if len(origins) == 1 and ("*" in allowed or origins[0].lower() in allowed):
        return None
    host = host_in(hosts[0]) if len(hosts) == 1 else None
    # A name that was rebound to loopback is the same host for the browser, but not for us.
    is_ours = host is not None and (not endpoint.is_loopback or is_loopback(host) or host == endpoint.host)
    if is_ours and len(origins) == 1 and _host_of(origins[0]) == host:
        return None
    return (
        f"Pages of {origins[0][:100]!r} must not connect here. An operator can allow it: --listen "
        f"{str(endpoint)!r}, with ?origin=ORIGIN behind it.\n"
    )


def _host_of(origin: str) -> str | None:
    try:
        return urlsplit(origin).hostname
    except ValueError:
        return None
