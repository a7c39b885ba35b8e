"""Serves the management endpoint beside the broker.

Law: owns the HTTP server and its sockets. Whatever goes wrong on a connection is logged and ends that connection; the
broker goes on, and stops when it is told to, whoever is connected here and does not read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

import structlog
import trio

from stompbroker.management.bounded_stream import BoundedStream

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from stompbroker.control import Control
    from stompbroker.management.access import Access

__all__ = ["Management"]

#: Connections at the same time: event streams, and as many others.
MAX_CONNECTIONS: Final = 512
#: How long a connection may stay open without a request, or with a part of one.
IDLE_S: Final = 10.0

#: How long before it is tried again to make an endpoint that could not be.
RETRY_S: Final = 5.0

log = structlog.get_logger()


@final
class Management:
    """Sockets that listen, for an application that is imported when it is first run: a broker starts without it."""

    def __init__(self, control: Control, access: Access, listeners: list[trio.SocketListener]) -> None:
        self._control = control
        self._access = access
        self._listeners = listeners
        self._open: set[BoundedStream] = set()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled."""
        while True:
            try:
                # In a thread: it takes a good part of a second, and clients may be there already.
                serve = await trio.to_thread.run_sync(self._make_server)
                break
            except OSError as error:
                # Clients may have taken all descriptors, too, and will give some back.
                log.warning("the management endpoint cannot be made yet", reason=str(error))
                await trio.sleep(RETRY_S)
            except Exception:
                # The boundary for the whole endpoint: it is not worth the broker.
                log.exception("there is no management endpoint, because it could not be made")
                return

        async def serve_one(stream: trio.SocketStream) -> None:
            await self._serve_one(stream, serve)

        async with trio.open_nursery() as connections:
            connections.start_soon(self._cut_when_cancelled)
            task_status.started()
            await trio.serve_listeners(serve_one, self._listeners, handler_nursery=connections)

    def _make_server(self) -> Callable[[BoundedStream], Awaitable[None]]:
        from hypercorn.config import Config
        from hypercorn.trio.tcp_server import TCPServer
        from hypercorn.trio.worker_context import WorkerContext
        from hypercorn.typing import ConnectionState, LifespanState
        from hypercorn.utils import wrap_app

        from stompbroker.management.application import make_application

        config = Config()
        config.accesslog = config.errorlog = None
        config.include_server_header = False
        config.keep_alive_timeout = IDLE_S
        application: Any = make_application(self._control, self._access)
        wrapped = wrap_app(application, config.wsgi_max_body_size, "asgi")

        async def serve(stream: Any) -> None:
            state = ConnectionState(LifespanState({}))
            server = TCPServer(wrapped, config, WorkerContext(None), state, stream)
            try:
                await server.run()
            finally:
                vars(server).clear()  # it and its protocol refer to each other: 3 KiB for the cycle collector

        return serve

    async def _serve_one(self, stream: trio.SocketStream, serve: Callable[[BoundedStream], Awaitable[None]]) -> None:
        if len(self._open) >= MAX_CONNECTIONS:
            await trio.aclose_forcefully(stream)
            return
        bounded = BoundedStream(stream)
        self._open.add(bounded)
        try:
            await serve(bounded)
        except Exception:
            # The boundary for connections: what is wrong with one is nobody else's concern.
            log.exception("a connection to the management endpoint failed")
        finally:
            self._open.discard(bounded)
            bounded.cut()

    async def _cut_when_cancelled(self) -> None:
        """The server shields what it sends, and would wait for whoever does not read."""
        try:
            await trio.sleep_forever()
        finally:
            for stream in list(self._open):
                stream.cut()
