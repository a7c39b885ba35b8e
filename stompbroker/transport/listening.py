"""Listeners: from endpoints to transports.

Law: accepting is cheap, and one task does it for all. What a client can delay (the PROXY header, the handshakes of TLS
and WebSocket) happens in `establish`, in a task of that connection.
"""

from __future__ import annotations

import os
import socket
import stat
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, final

import trio

from stompbroker.errors import OperatorError
from stompbroker.transport.endpoint import Endpoint, Scheme
from stompbroker.transport.proxy import identify
from stompbroker.transport.tcp import BACKLOG, TcpTransport, accept, bound_endpoint, open_sockets, peer_of
from stompbroker.transport.tls import TlsTransport

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stompbroker.log_throttle import LogThrottle
    from stompbroker.transport.tls import Tls
    from stompbroker.transport.transport import Transport
    from stompbroker.transport.websocket import WebSocketTransport


@final
class Listener:
    """Accepts the connections of one address."""

    def __init__(self, sockets: trio.SocketListener, endpoint: Endpoint, tls: Tls | None = None) -> None:
        assert tls is not None or not endpoint.scheme.is_encrypted
        self._sockets = sockets
        self._tls = tls
        self._make_websocket: type[WebSocketTransport] | None = None
        if endpoint.scheme.is_websocket:
            # Most brokers have none, and the library takes a tenth of a second to import.
            from stompbroker.transport.websocket import WebSocketTransport

            self._make_websocket = WebSocketTransport
        #: With the port that was chosen.
        self.endpoint = endpoint
        if endpoint.scheme is not Scheme.UNIX:
            bound = bound_endpoint(sockets, endpoint.scheme)
            self.endpoint = replace(endpoint, host=bound.host, port=bound.port)

    async def accept(self, throttle: LogThrottle) -> TcpTransport:
        """The next connection, of which nothing is known yet but its address."""
        while True:
            stream = await accept(self._sockets, self.endpoint.scheme, throttle)
            try:
                return TcpTransport(stream, peer_of(stream), self.endpoint)
            except OSError:
                # The client has left already.
                await trio.aclose_forcefully(stream)

    async def establish(self, accepted: TcpTransport) -> Transport:
        """What the connection carries STOMP over. Raises BrokenResourceError if that is not agreed on."""
        if self.endpoint.scheme is not Scheme.UNIX:
            accepted.set_up()
        transport: Transport = accepted
        if self.endpoint.restrictions.proxies:
            await identify(accepted, self.endpoint.restrictions.proxies)
        if self.endpoint.scheme.is_encrypted:
            assert self._tls is not None
            transport = encrypted = TlsTransport(transport, self._tls.for_clients)
            await encrypted.shake_hands()
        if self._make_websocket is not None:
            transport = opened = self._make_websocket(transport)
            await opened.shake_hands()
        return transport

    async def aclose(self) -> None:
        """Harmless if it is closed already: somebody else may listen on the path by then."""
        is_open = self._sockets.socket.fileno() >= 0
        await self._sockets.aclose()
        if is_open and self.endpoint.scheme is Scheme.UNIX:
            with suppress(OSError):
                os.unlink(self.endpoint.path)


async def open_listeners(endpoints: Iterable[Endpoint], tls: Tls | None = None) -> list[Listener]:
    """Listen on every address of every endpoint; `tls` is needed if one is encrypted.

    Raises OperatorError, and then nothing is open.
    """
    listeners: list[Listener] = []
    try:
        for endpoint in endpoints:
            opened = [_open_unix(endpoint)] if endpoint.scheme is Scheme.UNIX else await open_sockets(endpoint)
            listeners += [Listener(each, endpoint, tls) for each in opened]
    except OperatorError:
        for each in listeners:
            await each.aclose()
        raise
    return listeners


def _open_unix(endpoint: Endpoint) -> trio.SocketListener:
    """Listen on a path, in place of the socket of a killed broker. Raises OperatorError."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_left_socket(endpoint.path)
        listening.bind(endpoint.path)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise OperatorError(
            f"Cannot listen on {endpoint}: {error.strerror or error}. Choose another path with --listen."
        ) from error
    listening.setblocking(False)
    return trio.SocketListener(trio.socket.from_stdlib_socket(listening))


def _remove_left_socket(path: str) -> None:
    """Remove a socket on which nobody listens. Raises OSError if somebody does, or the path is something else."""
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            raise FileExistsError(f"{path} exists and is no socket")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
            try:
                asking.connect(path)
            except ConnectionRefusedError:
                os.unlink(path)
