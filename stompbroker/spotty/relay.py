"""Where clients connect, while the broker behind it comes and goes.

Law: bytes, and nothing of what they mean. A client is treated as the broker treats us: its end of a connection is
passed on, its reset is a reset. A connection has two chunks of 64 KiB on their way at most.
"""

from __future__ import annotations

import errno
import socket
import struct
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple, final

import trio

from stompbroker.errors import OperatorError
from stompbroker.signals import Signal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stompbroker.transport import Endpoint

#: Connections that wait to be accepted, as in the broker.
BACKLOG: Final = 1024
#: Pause before accepting again when that failed, in seconds, as in the broker.
RETRY_S: Final = 0.1
#: SO_LINGER that makes a close a reset.
_RESETS: Final = struct.pack("ii", 1, 0)


class Address(NamedTuple):
    host: str
    port: int


@final
class Front:
    """One endpoint of clients. On Linux its port stays ours while nobody listens there: a socket that is only bound
    refuses, and lets another one with SO_REUSEADDR listen."""

    def __init__(self, endpoint: Endpoint) -> None:
        """Raises OperatorError."""
        self._kept: list[socket.socket] = []
        self._addresses: list[tuple[socket.AddressFamily, Address]] = []
        port = endpoint.port
        try:
            found = socket.getaddrinfo(endpoint.host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            for family, _, _, _, (host, *_) in found:
                bound = _bound_to(family, Address(str(host), port))
                self._kept.append(bound)
                port = bound.getsockname()[1]
                self._addresses.append((family, Address(str(host), port)))
        except OSError as error:
            self.close()
            raise self._refused(endpoint, error) from error
        if sys.platform != "linux":
            self.close()
        #: With the port that was chosen.
        self.endpoint = replace(endpoint, port=port)

    def listen(self) -> list[trio.SocketListener]:
        """Raises OperatorError."""
        listening: list[socket.socket] = []
        try:
            for family, address in self._addresses:
                listening.append(_bound_to(family, address))
                listening[-1].listen(BACKLOG)
        except OSError as error:
            for each in listening:
                each.close()
            raise self._refused(self.endpoint, error) from error
        return [trio.SocketListener(trio.socket.from_stdlib_socket(each)) for each in listening]

    def close(self) -> None:
        for each in self._kept:
            each.close()

    def _refused(self, endpoint: Endpoint, error: OSError) -> OperatorError:
        remedy = " Is a broker running there?" if error.errno == errno.EADDRINUSE else ""
        return OperatorError(f"Cannot listen on {endpoint.address}: {error.strerror or error}.{remedy}")


def _bound_to(family: socket.AddressFamily, address: Address) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind(address)
    except BaseException:
        bound.close()
        raise
    return bound


@final
class Relay:
    """
    Invariants:
        it listens at all fronts or at none
        `_clients` are the connections whose end has not been passed on
    """

    def __init__(self, fronts: Sequence[Front], nursery: trio.Nursery) -> None:
        """Connections live in the nursery."""
        self._fronts = fronts
        self._nursery = nursery
        self._listeners: list[trio.SocketListener] = []
        self._clients: set[trio.SocketStream] = set()
        self._left = Signal()

    def listen(self, brokers: Sequence[Address]) -> None:
        """Accept clients; those of each front go to one address of the broker. Raises OperatorError."""
        for front, broker in zip(self._fronts, brokers, strict=True):
            for listener in front.listen():
                self._listeners.append(listener)
                self._nursery.start_soon(self._accept, listener, broker)

    def refuse(self) -> None:
        """Listen no more: who connects is refused. Connections go on."""
        for listener in self._listeners:
            listener.socket.close()
        self._listeners.clear()

    async def wait_left(self) -> None:
        """Until no client is connected."""
        while self._clients:
            await self._left.wait()

    def reset_all(self) -> None:
        for client in self._clients:
            _reset(client)

    async def _accept(self, listener: trio.SocketListener, broker: Address) -> None:
        async with listener:
            while True:
                try:
                    client = await listener.accept()
                except trio.ClosedResourceError:
                    return
                except OSError:  # no descriptors are left, for instance
                    await trio.sleep(RETRY_S)
                    continue
                if listener.socket.fileno() == -1:  # closed while this one was on its way to us
                    _reset(client)
                    return
                self._clients.add(client)
                self._nursery.start_soon(self._relay, client, broker)

    async def _relay(self, client: trio.SocketStream, address: Address) -> None:
        try:
            async with client:
                try:
                    broker = await trio.open_tcp_stream(*address)
                except OSError:
                    _reset(client)
                    return
                async with broker, trio.open_nursery() as directions:
                    directions.start_soon(_pass_on, client, broker)
                    directions.start_soon(_pass_on, broker, client)
        finally:
            self._clients.discard(client)
            self._left.wake()


async def _pass_on(source: trio.SocketStream, target: trio.SocketStream) -> None:
    try:
        async for chunk in source:
            await target.send_all(chunk)
        await target.send_eof()
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        _reset(source)
        _reset(target)


def _reset(stream: trio.SocketStream) -> None:
    if stream.socket.fileno() != -1:
        stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESETS)
        stream.socket.close()
