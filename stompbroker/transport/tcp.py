"""TCP: listeners, and what accepted sockets are set to.

Law: sockets in, `trio.SocketStream`s out. Settings of sockets are written here with their reasons.
"""

from __future__ import annotations

import errno
import os
import resource
import select
import socket
from typing import TYPE_CHECKING, Final

import trio

from stompbroker.errors import OperatorError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["close_gently", "is_reset", "leaving_of", "open_listeners", "raise_descriptor_limit", "sender_of", "tune"]

#: Connections that may wait to be accepted; a burst of reconnecting clients after a restart fits.
BACKLOG: Final = 4096
#: A peer that vanished without a word is noticed after about KEEP_ALIVE_IDLE_S + 3 * KEEP_ALIVE_INTERVAL_S...
KEEP_ALIVE_IDLE_S: Final = 60
KEEP_ALIVE_INTERVAL_S: Final = 10
KEEP_ALIVE_PROBES: Final = 3
#: ... and one that stops acknowledging what we send, after this long, in milliseconds.
USER_TIMEOUT_MS: Final = 60_000
#: How long we go on reading, and forgetting, what a client sends after we have said our last word. Closing at once
#: would make the kernel answer with a reset, which can eat the ERROR frame before the client has read it.
LINGER_S: Final = 2.0
_LINGER_CHUNK_BYTES: Final = 64 * 1024
#: That the other side has closed, before all that it had sent was read. Elsewhere than on Linux only the end of both
#: directions is told.
_CLOSED_BY_PEER: Final = getattr(select, "POLLRDHUP", 0)


async def open_listeners(host: str, port: int) -> list[trio.SocketListener]:
    """Listen on every address `host` stands for. Raises OperatorError with a sentence that says what to do."""
    try:
        return await trio.open_tcp_listeners(port, host=host, backlog=BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            remedy = "Is another broker running there? Choose another port with --port (0 takes any free one)"
        else:
            remedy = "Choose another address with --host or --port"
        raise OperatorError(f"Cannot listen on {host}:{port}: {error.strerror or error}. {remedy}.") from error


def tune(stream: trio.SocketStream) -> None:
    """Set an accepted connection up."""
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


def sender_of(stream: trio.abc.Stream) -> Callable[[bytes], int] | None:
    """What hands bytes to the kernel without waiting, and says how many it took; None if this stream has no such way.

    It raises OSError where it cannot: there is no room, or nobody at the other end.
    """
    if not isinstance(stream, trio.SocketStream):
        return None
    connected = stream.socket

    def send(data: bytes) -> int:
        # Asked for each time: the number of a closed descriptor soon is somebody else's.
        return os.write(connected.fileno(), data)

    return send


def leaving_of(stream: trio.abc.Stream) -> Callable[[], bool] | None:
    """What says whether the other side has closed, also where we have not read so far; None if this stream does not."""
    if not isinstance(stream, trio.SocketStream):
        return None
    connected = stream.socket

    def has_left() -> bool:
        if connected.fileno() == -1:
            return True
        looked_at = select.poll()
        looked_at.register(connected.fileno(), _CLOSED_BY_PEER)
        return bool(looked_at.poll(0))

    return has_left


async def close_gently(stream: trio.abc.Stream) -> None:
    """Close so that what was sent last can still be read by the other side."""
    try:
        if isinstance(stream, trio.abc.HalfCloseableStream):
            with trio.move_on_after(LINGER_S):
                await stream.send_eof()
                while await stream.receive_some(_LINGER_CHUNK_BYTES):
                    pass
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass  # the client was quicker
    finally:
        await trio.aclose_forcefully(stream)


def is_reset(stream: trio.abc.Stream) -> bool:
    """Whether the other side has torn the connection down; for who does not read, and would not notice."""
    if not isinstance(stream, trio.SocketStream):
        return False
    return bool(stream.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))


def raise_descriptor_limit() -> int:
    """Allow as many open files as the system lets us: a connection is one. Returns how many that are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
