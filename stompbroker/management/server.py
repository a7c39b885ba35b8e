"""Serves the management endpoint beside the broker.

Law: owns the HTTP server and its sockets, with or without TLS. An error on a connection is logged and ends that
connection alone. No client keeps the broker from stopping by not reading, or others from asking by being idle.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import structlog
import trio

from stompbroker.config import MIN_TOKEN
from stompbroker.errors import OperatorError
from stompbroker.log_throttle import LogThrottle
from stompbroker.transport import Endpoint, Scheme, Tls, accept, bound_endpoint, open_sockets

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from starlette.types import ASGIApp
    from trio.socket import SocketType

    from stompbroker.access import Audit, Authenticator
    from stompbroker.config import Settings
    from stompbroker.control import Control

#: Connections at the same time: event streams, and as many others.
MAX_CONNECTIONS: Final = 512
#: How long a client may take for what is sent at once, which is at most a few hundred kilobytes.
SEND_S: Final = 30.0
#: A client that has not read its answer for this long may be dropped for a newcomer. Events are sent every second.
STALLED_S: Final = 2.0
#: How long a connection may stay open without a request, or with a part of one.
IDLE_S: Final = 10.0
#: How long a client may take for the handshake of TLS.
HANDSHAKE_S: Final = 10.0
#: Time between two attempts to make the endpoint.
RETRY_S: Final = 5.0
log = structlog.get_logger()


@final
@dataclass(slots=True, eq=False)
class BoundedStream:
    """A connection as the HTTP server wants it, which no client can hold for ever by not reading. TLS, if there is any,
    stays below it."""

    _socket: trio.SocketStream
    _tls: trio.SSLStream[trio.SocketStream] | None = None
    #: Whether the client will send nothing more.
    _is_ended: bool = False
    #: Around everything that is done for this connection.
    everything: trio.CancelScope = field(default_factory=trio.CancelScope)
    #: Requests that are being answered.
    requests: int = 0
    #: Since when the client has not taken what is being sent; None while nothing is.
    sending_since_s: float | None = None

    @property
    def socket(self) -> SocketType:
        return self._socket.socket

    @property
    def _stream(self) -> trio.SocketStream | trio.SSLStream[trio.SocketStream]:
        return self._socket if self._tls is None else self._tls

    async def shake_hands(self) -> bool:
        """Whether the client agrees on TLS, in time."""
        if self._tls is None:
            return True
        try:
            with trio.move_on_after(HANDSHAKE_S) as shaking:
                await self._tls.do_handshake()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return False
        return not shaking.cancelled_caught

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        data = bytes(await self._stream.receive_some(max_bytes))
        self._is_ended = not data
        self.end_if_idle()
        return data

    async def send_all(self, data: bytes) -> None:
        """Raises BrokenResourceError if it is not taken in time."""
        self.sending_since_s = trio.current_time()
        with trio.move_on_after(SEND_S) as sending:
            await self._stream.send_all(data)
        if sending.cancelled_caught:
            self.cut()
            raise trio.BrokenResourceError("the client does not read")
        self.sending_since_s = None

    async def send_eof(self) -> None:
        if self._tls is None:  # TLS has none, and closing tells the same
            await self._socket.send_eof()

    async def aclose(self) -> None:
        await self._stream.aclose()

    def end_if_idle(self) -> None:
        """Without this, the HTTP server would wait for the next request of a client that has left."""
        if self._is_ended and not self.requests:
            self.everything.cancel()

    def cut(self) -> None:
        """Close it at once, whatever waits on it."""
        self._socket.socket.close()
        self.everything.cancel()


@final
@dataclass(slots=True, eq=False)
class Management:
    """The listening sockets. The application is imported for the first client: that takes 0.1 s and 8 MiB, which a
    broker that nobody watches need not have.

    Invariants:
        there are at most MAX_CONNECTIONS connections
        of those without a request that is being answered, the longest idle comes first
    """

    url: str
    #: Imports what it needs, which takes a while.
    _make_application: Callable[[], ASGIApp]
    _listeners: list[trio.SocketListener]
    _throttle: LogThrottle
    #: None: without TLS.
    _tls: Tls | None = None
    _connections: dict[BoundedStream, None] = field(default_factory=dict)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Started once clients may come: the kernel lets them wait until the application is there."""
        task_status.started()
        await self._wait_for_client()
        while True:
            try:
                # In a thread: other clients are served meanwhile.
                serve = await trio.to_thread.run_sync(self._make_server)
                break
            except (OSError, ImportError) as error:
                # Clients may have taken all descriptors, and will give some back. A library says that as ImportError.
                log.warning("the management endpoint cannot be made yet", reason=str(error))
                await trio.sleep(RETRY_S)
            except Exception:
                # The boundary for the whole endpoint: the broker goes on without it.
                log.exception("there is no management endpoint, because it could not be made")
                return

        async with trio.open_nursery() as connections:
            connections.start_soon(self._cut_when_cancelled)
            for listener in self._listeners:
                connections.start_soon(self._accept, listener, connections, serve)

    async def _wait_for_client(self) -> None:
        async def wait_at(listener: trio.SocketListener) -> None:
            await trio.lowlevel.wait_readable(listener.socket)
            waiting.cancel_scope.cancel()

        async with trio.open_nursery() as waiting:
            for listener in self._listeners:
                waiting.start_soon(wait_at, listener)

    async def aclose(self) -> None:
        for listener in self._listeners:
            await listener.aclose()

    async def _accept(
        self,
        listener: trio.SocketListener,
        connections: trio.Nursery,
        serve: Callable[[BoundedStream], Awaitable[None]],
    ) -> None:
        while True:
            stream = await accept(listener, "http", self._throttle)
            if self._make_room():
                bounded = BoundedStream(stream, self._encrypted(stream))
                self._connections[bounded] = None
                connections.start_soon(self._serve_one, bounded, serve)
            else:
                await trio.aclose_forcefully(stream)

    def _encrypted(self, stream: trio.SocketStream) -> trio.SSLStream[trio.SocketStream] | None:
        """With the certificate that is in use now."""
        if self._tls is None:
            return None
        return trio.SSLStream(stream, self._tls.for_http, server_side=True, https_compatible=True)

    def _make_room(self) -> bool:
        """Whether one more fits in, after dropping an idle connection or one that does not read, if need be."""
        if len(self._connections) < MAX_CONNECTIONS:
            return True
        stalled_s = trio.current_time() - STALLED_S
        idle = (each for each in self._connections if not each.requests)
        stalled = (each for each in self._connections if (each.sending_since_s or math.inf) <= stalled_s)
        victim = next(idle, None) or next(stalled, None)
        if victim is None:
            return False
        self._leave(victim)
        return True

    def _leave(self, connection: BoundedStream) -> None:
        self._connections.pop(connection, None)
        connection.cut()

    def _make_server(self) -> Callable[[BoundedStream], Awaitable[None]]:
        from hypercorn.config import Config
        from hypercorn.trio.tcp_server import TCPServer
        from hypercorn.trio.worker_context import WorkerContext
        from hypercorn.typing import ConnectionState, LifespanState
        from hypercorn.utils import wrap_app

        config = Config()
        config.accesslog = config.errorlog = None
        config.include_server_header = False
        config.keep_alive_timeout = IDLE_S
        application: Any = self._make_application()

        async def serve(stream: Any) -> None:
            async def answer(scope: Any, receive: Any, send: Any) -> None:
                with self._answering(stream):
                    await application(scope, receive, send)

            wrapped = wrap_app(answer, config.wsgi_max_body_size, "asgi")
            state = ConnectionState(LifespanState({}))
            server = TCPServer(wrapped, config, WorkerContext(None), state, stream)
            try:
                await server.run()
            finally:
                vars(server).clear()  # it and its protocol refer to each other: 3 KiB of garbage

        return serve

    @contextmanager
    def _answering(self, connection: BoundedStream) -> Iterator[None]:
        """With HTTP/2, a connection may have several requests."""
        connection.requests += 1
        try:
            yield
        finally:
            connection.requests -= 1
            connection.end_if_idle()
            if not connection.requests and connection in self._connections:
                del self._connections[connection]
                self._connections[connection] = None

    async def _serve_one(self, connection: BoundedStream, serve: Callable[[BoundedStream], Awaitable[None]]) -> None:
        try:
            with connection.everything:
                if await connection.shake_hands():
                    await serve(connection)
        except Exception as error:
            # The boundary for connections: an error in one ends no other.
            kind = (type(error).__name__,)
            self._throttle.log("error", "a connection to the management endpoint failed", kind, exc_info=True)
        finally:
            self._leave(connection)

    async def _cut_when_cancelled(self) -> None:
        """The server shields what it sends, and would wait for clients that do not read."""
        try:
            await trio.sleep_forever()
        finally:
            for connection in list(self._connections):
                connection.cut()


async def open_management(
    settings: Settings,
    control: Control,
    authenticator: Authenticator,
    audit: Audit,
    throttle: LogThrottle,
    tls: Tls | None,
) -> Management | None:
    """Listen for HTTP, if that is wanted. Raises OperatorError."""
    if not settings.http_enabled:
        return None
    token = settings.http_token or _token_in(settings.http_token_file)
    endpoint, sockets = await _listen(settings)
    if not endpoint.scheme.is_encrypted and not endpoint.is_loopback:
        log.warning(
            "passwords and tokens for the management endpoint cross the network as plain text; set http_tls",
            endpoint=str(endpoint),
        )
    url = str(bound_endpoint(sockets[0], endpoint.scheme))

    def make() -> ASGIApp:
        from stompbroker.management.access import Access
        from stompbroker.management.application import make_application

        access = Access(
            host=settings.http_host,
            token=token,
            authenticator=authenticator,
            audit=audit,
            clock=control.clock,
            endpoint=url,
        )
        return make_application(control, access)

    return Management(url, make, sockets, throttle, tls if endpoint.scheme.is_encrypted else None)


async def answer_on_standby(settings: Settings) -> None:
    """Until cancelled: the same for a broker on stand-by, which answers for nothing but its health. Raises
    OperatorError."""
    if not settings.http_enabled:
        return

    def make() -> ASGIApp:
        from stompbroker.management.application import make_standby_application

        return make_standby_application()

    endpoint, sockets = await _listen(settings)
    files = settings.tls_files()
    tls = Tls(files) if files is not None and endpoint.scheme.is_encrypted else None
    throttle = LogThrottle()
    management = Management(str(bound_endpoint(sockets[0], endpoint.scheme)), make, sockets, throttle, tls)
    log.info("answering for health alone", management=management.url)
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(throttle.run)
            await management.run()
    finally:
        with trio.CancelScope(shield=True):
            await management.aclose()


async def _listen(settings: Settings) -> tuple[Endpoint, list[trio.SocketListener]]:
    endpoint = Endpoint(Scheme.HTTPS if settings.http_tls else Scheme.HTTP, settings.http_host, settings.http_port)
    try:
        return endpoint, await open_sockets(endpoint)
    except OperatorError as error:
        raise OperatorError(
            f"{error} That is the management endpoint: give it another port with --http-port (0 takes any free one), "
            "or go without it with --set http_enabled=false."
        ) from error


def _token_in(file: str) -> str | None:
    """Raises OperatorError."""
    if not file:
        return None
    try:
        token = Path(file).expanduser().read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise OperatorError(f"The file {file} (http_token_file) cannot be read: {error}.") from error
    if len(token) < MIN_TOKEN:
        raise OperatorError(f"The token in {file} (http_token_file) must have at least {MIN_TOKEN} characters.")
    return token
