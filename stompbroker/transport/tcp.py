"""Connections over TCP or a Unix socket, and the options of their sockets."""

from __future__ import annotations

import errno
import os
import resource
import select
import socket
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Final, final

import trio

from stompbroker.buffers import MAX_BUFFERS, rest_of
from stompbroker.errors import OperatorError
from stompbroker.transport.endpoint import Endpoint, Scheme
from stompbroker.transport.transport import StreamTransport

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stompbroker.buffers import Buffer
    from stompbroker.log_throttle import LogThrottle

#: Connections that may wait to be accepted; a burst of reconnecting clients after a restart fits.
BACKLOG: Final = 4096
#: A peer that vanished without a word is noticed after about KEEP_ALIVE_IDLE_S + 3 * KEEP_ALIVE_INTERVAL_S...
KEEP_ALIVE_IDLE_S: Final = 60
KEEP_ALIVE_INTERVAL_S: Final = 10
KEEP_ALIVE_PROBES: Final = 3
#: ... and one that stops acknowledging what we send, after this long, in milliseconds.
USER_TIMEOUT_MS: Final = 60_000
#: A client that sends more at once does not wait to send the rest, and there is mostly more.
SMALL_CHUNK_BYTES: Final = 1024
#: Linux only.
_QUICK_ACK: Final = getattr(socket, "TCP_QUICKACK", None)
#: The other side has closed, though not all that it sent was read. Other systems than Linux report only the end of both
#: directions.
_CLOSED_BY_PEER: Final = getattr(select, "POLLRDHUP", 0)
#: What accept fails with when the process or the system has no room for another connection.
NO_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
#: The wait before the next try: long enough not to burn a core, short enough not to be noticed.
RETRY_S: Final = 0.1


#: Those that this system has.
_KEEP_ALIVE: Final = [
    (getattr(socket, option), value)
    for option, value in (
        ("TCP_KEEPIDLE", KEEP_ALIVE_IDLE_S),
        ("TCP_KEEPINTVL", KEEP_ALIVE_INTERVAL_S),
        ("TCP_KEEPCNT", KEEP_ALIVE_PROBES),
        ("TCP_USER_TIMEOUT", USER_TIMEOUT_MS),
    )
    if hasattr(socket, option)
]


@final
class TcpTransport(StreamTransport):
    """One accepted connection."""

    __slots__ = ("_is_drained", "_sent_bytes_when_told", "_socket", "_unread")

    def __init__(self, stream: trio.SocketStream, peer: str, endpoint: Endpoint | None = None) -> None:
        super().__init__(stream, peer, endpoint)
        self._socket = stream.socket
        #: How much we had sent when the kernel was last told to acknowledge at once.
        self._sent_bytes_when_told = -1
        self._unread = b""
        #: Whether the last chunk was small: then it was all that there was, and there is hardly anything now.
        self._is_drained = False

    def set_up(self) -> None:
        """Raises BrokenResourceError if the client has left already."""
        try:
            # Deliveries are already written in batches; waiting for more only adds latency.
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in _KEEP_ALIVE:
                self._socket.setsockopt(socket.IPPROTO_TCP, option, value)
        except OSError as error:
            raise trio.BrokenResourceError(f"the client left: {error.strerror}") from error

    def unread(self, data: bytes) -> None:
        """Have it received once more: somebody who looked for a header has read too far."""
        self._unread = data

    async def receive_some(self, max_bytes: int) -> bytes:
        if self._unread:
            await trio.lowlevel.checkpoint()
            chunk, self._unread = self._unread[:max_bytes], self._unread[max_bytes:]
            return chunk
        if not self._is_drained:
            chunk = await super().receive_some(max_bytes)
            self._is_drained = len(chunk) < SMALL_CHUNK_BYTES
            return chunk
        # Not by trio's stream, which would first try in vain, through six coroutines.
        while (descriptor := self._socket.fileno()) != -1:
            await trio.lowlevel.wait_readable(descriptor)
            try:
                # Asked again: it may have been closed since it became readable.
                chunk = os.read(self._socket.fileno(), max_bytes)
            except BlockingIOError:
                pass
            except OSError as error:
                raise self._why_broken(error) from error
            else:
                self._is_drained = len(chunk) < SMALL_CHUNK_BYTES
                return chunk
        raise trio.ClosedResourceError("this connection was closed")

    def send_now(self, *parts: Buffer) -> int:
        # fileno() is called each time: the number of a closed descriptor may soon be another connection's.
        if len(parts) == 1:
            return os.write(self._socket.fileno(), parts[0])
        return os.writev(self._socket.fileno(), parts[:MAX_BUFFERS])

    async def send_all(self, *parts: Buffer) -> None:
        rest: Sequence[Buffer] = parts
        try:
            while len(rest) > 1:
                rest = rest_of(rest, await self._socket.sendmsg(rest[:MAX_BUFFERS]))
        except OSError as error:
            raise self._why_broken(error) from error
        if rest:
            await self._stream.send_all(rest[0])

    def _why_broken(self, error: OSError) -> trio.ClosedResourceError | trio.BrokenResourceError:
        if self._socket.fileno() == -1:
            return trio.ClosedResourceError("this connection was closed")
        return trio.BrokenResourceError(f"the client left: {error.strerror}")

    def has_left(self) -> bool:
        if self._socket.fileno() == -1:
            return True
        looked_at = select.poll()
        looked_at.register(self._socket.fileno(), _CLOSED_BY_PEER)
        return bool(looked_at.poll(0))

    def is_reset(self) -> bool:
        return bool(self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))

    def note_unanswered(self, received_bytes: int, sent_bytes: int) -> None:
        """Have the kernel acknowledge what was received at once.

        A client with Nagle's algorithm holds its second small write back until the first is acknowledged. Once we have
        sent something, Linux delays acknowledgements by 40 ms, so as to send them with an answer. If there is none (a
        SUBSCRIBE or SEND without a receipt), the kernel is told not to wait. That costs about 3 µs, so it is done for
        small chunks only, and only once until we send again, when Linux starts to delay again.
        """
        if received_bytes >= SMALL_CHUNK_BYTES or sent_bytes == self._sent_bytes_when_told or _QUICK_ACK is None:
            return
        self._sent_bytes_when_told = sent_bytes
        # If the client is gone, the next receive says so.
        with suppress(OSError):
            self._socket.setsockopt(socket.IPPROTO_TCP, _QUICK_ACK, 1)


async def accept(listener: trio.SocketListener, name: str, throttle: LogThrottle) -> trio.SocketStream:
    """The next connection. While there are no descriptors, try again every RETRY_S, and log that once; `name` is the
    listener's name in the log."""
    is_out_of_room = False
    while True:
        try:
            stream = await listener.accept()
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            if not is_out_of_room:
                is_out_of_room = True
                throttle.log("error", "cannot accept connections", (name,), listener=name, reason=error.strerror)
            await trio.sleep(RETRY_S)
        else:
            if is_out_of_room:
                throttle.log("info", "accepting connections again", (name,), listener=name)
            return stream


async def open_sockets(endpoint: Endpoint) -> list[trio.SocketListener]:
    """Listen on every address of its host. Raises OperatorError."""
    try:
        return await trio.open_tcp_listeners(endpoint.port, host=endpoint.host, backlog=BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            remedy = "Is another broker running there? Choose another port with --port (0 takes any free one)"
        else:
            remedy = "Choose another address with --host or --port"
        raise OperatorError(f"Cannot listen on {endpoint.address}: {error.strerror or error}. {remedy}.") from error


def bound_endpoint(sockets: trio.SocketListener, scheme: Scheme) -> Endpoint:
    """The actual address, with the port that was chosen."""
    host, port, *_ = sockets.socket.getsockname()
    return Endpoint(scheme, host, port)


def peer_of(stream: trio.SocketStream) -> str:
    """Who is at the other end: an address, or the number of a process. Raises OSError if the client has left."""
    if stream.socket.family == socket.AF_UNIX:
        credentials = stream.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return f"unix:{struct.unpack('3i', credentials)[0]}"
    host, port, *_ = stream.socket.getpeername()
    return Endpoint(Scheme.STOMP, host, port).address


def raise_descriptor_limit() -> int:
    """Raise the limit on open files, of which each connection is one, as far as allowed, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
