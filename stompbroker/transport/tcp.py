"""TCP: listeners, connections, and what sockets are set to.

Law: endpoints in, transports out. Settings of sockets are written here with their reasons.
"""

from __future__ import annotations

import errno
import os
import resource
import select
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Final, final

import trio

from stompbroker.errors import OperatorError
from stompbroker.transport.accepting import accept
from stompbroker.transport.endpoint import Endpoint, Scheme
from stompbroker.transport.transport import Transport, close_gently

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stompbroker.log_throttle import LogThrottle

__all__ = ["TcpListener", "TcpTransport", "bound_endpoint", "open_listeners", "open_sockets", "raise_descriptor_limit"]

#: Connections that may wait to be accepted; a burst of reconnecting clients after a restart fits.
BACKLOG: Final = 4096
#: A peer that vanished without a word is noticed after about KEEP_ALIVE_IDLE_S + 3 * KEEP_ALIVE_INTERVAL_S...
KEEP_ALIVE_IDLE_S: Final = 60
KEEP_ALIVE_INTERVAL_S: Final = 10
KEEP_ALIVE_PROBES: Final = 3
#: ... and one that stops acknowledging what we send, after this long, in milliseconds.
USER_TIMEOUT_MS: Final = 60_000
#: A client that sends more at once is not waiting to send the rest of it.
SMALL_CHUNK_BYTES: Final = 1024
#: Linux has it.
_QUICK_ACK: Final = getattr(socket, "TCP_QUICKACK", None)
#: That the other side has closed, before all that it had sent was read. Elsewhere than on Linux only the end of both
#: directions is told.
_CLOSED_BY_PEER: Final = getattr(select, "POLLRDHUP", 0)


@final
class TcpTransport(Transport):
    """One accepted connection."""

    __slots__ = ("_sent_bytes_when_told", "_socket", "_stream")

    def __init__(self, stream: trio.SocketStream, peer: str) -> None:
        super().__init__(peer)
        self._stream = stream
        self._socket = stream.socket
        #: How much we had sent when the kernel was last told to acknowledge at once.
        self._sent_bytes_when_told = -1

    async def receive_some(self, max_bytes: int) -> bytes:
        return await self._stream.receive_some(max_bytes)

    async def send_all(self, data: bytes) -> None:
        await self._stream.send_all(data)

    async def finish(self) -> None:
        await close_gently(self._stream)

    async def close(self) -> None:
        await trio.aclose_forcefully(self._stream)

    def send_now(self, data: bytes) -> int:
        # The number is asked for each time: that of a closed descriptor soon is somebody else's.
        return os.write(self._socket.fileno(), data)

    def has_left(self) -> bool:
        if self._socket.fileno() == -1:
            return True
        looked_at = select.poll()
        looked_at.register(self._socket.fileno(), _CLOSED_BY_PEER)
        return bool(looked_at.poll(0))

    def is_reset(self) -> bool:
        return bool(self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))

    def note_unanswered(self, received_bytes: int, sent_bytes: int) -> None:
        """Have the kernel acknowledge what was received without waiting for data to travel with.

        A client that leaves Nagle's algorithm on holds its second small write back until the first is acknowledged.
        Once we have sent something, Linux delays acknowledgements by 40 ms and hopes for an answer. Where there is none
        (a SUBSCRIBE or SEND without a receipt), the kernel is told not to wait. That costs about 3 µs, so it is done
        for small chunks only, and once until we send again: then Linux waits again.
        """
        if received_bytes >= SMALL_CHUNK_BYTES or sent_bytes == self._sent_bytes_when_told or _QUICK_ACK is None:
            return
        self._sent_bytes_when_told = sent_bytes
        # If the client is gone, the next receive says so.
        with suppress(OSError):
            self._socket.setsockopt(socket.IPPROTO_TCP, _QUICK_ACK, 1)


@final
class TcpListener:
    """Accepts the connections of one address."""

    def __init__(self, sockets: trio.SocketListener) -> None:
        self._sockets = sockets
        self.endpoint = bound_endpoint(sockets, Scheme.STOMP)

    async def accept(self, throttle: LogThrottle) -> TcpTransport:
        """The next connection, set up."""
        while True:
            stream = await accept(self._sockets, "stomp", throttle)
            try:
                _set_up(stream)
                host, port, *_ = stream.socket.getpeername()
            except OSError:
                # The client was gone before we came to look at it.
                await trio.aclose_forcefully(stream)
            else:
                return TcpTransport(stream, Endpoint(Scheme.STOMP, host, port).address)

    async def aclose(self) -> None:
        await self._sockets.aclose()


async def open_listeners(endpoints: Iterable[Endpoint]) -> list[TcpListener]:
    """Listen on every address of every endpoint. Raises OperatorError, and then nothing is open."""
    listeners: list[TcpListener] = []
    try:
        for endpoint in endpoints:
            listeners += [TcpListener(each) for each in await open_sockets(endpoint)]
    except OperatorError:
        for each in listeners:
            await each.aclose()
        raise
    return listeners


async def open_sockets(endpoint: Endpoint) -> list[trio.SocketListener]:
    """Listen on every address that its host stands for. Raises OperatorError with a sentence that says what to do."""
    try:
        return await trio.open_tcp_listeners(endpoint.port, host=endpoint.host, backlog=BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            remedy = "Is another broker running there? Choose another port with --port (0 takes any free one)"
        else:
            remedy = "Choose another address with --host or --port"
        raise OperatorError(f"Cannot listen on {endpoint.address}: {error.strerror or error}. {remedy}.") from error


def bound_endpoint(sockets: trio.SocketListener, scheme: Scheme) -> Endpoint:
    """Where it really listens."""
    host, port, *_ = sockets.socket.getsockname()
    return Endpoint(scheme, host, port)


def _set_up(stream: trio.SocketStream) -> None:
    # Deliveries are written in batches already; waiting for more only adds latency.
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", KEEP_ALIVE_IDLE_S),
        ("TCP_KEEPINTVL", KEEP_ALIVE_INTERVAL_S),
        ("TCP_KEEPCNT", KEEP_ALIVE_PROBES),
        ("TCP_USER_TIMEOUT", USER_TIMEOUT_MS),
    ):
        if hasattr(socket, option):  # they differ between systems
            stream.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def raise_descriptor_limit() -> int:
    """Allow as many open files as the system lets us: a connection is one. Returns how many that are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
