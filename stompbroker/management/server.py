"""Serves the management endpoint beside the broker.

Law: owns the HTTP server and its sockets. Whatever goes wrong in it is logged and begun anew; the broker goes on.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, final

import structlog
import trio

if TYPE_CHECKING:
    from stompbroker.control import Control
    from stompbroker.management.access import Access

__all__ = ["Management"]

#: How long before a server that has failed is begun anew.
RETRY_S: Final = 1.0

log = structlog.get_logger()


@final
class Management:
    """Sockets that listen, for an application that is imported when it is first run: a broker starts without it."""

    def __init__(self, control: Control, access: Access, listeners: list[trio.SocketListener]) -> None:
        self._control = control
        self._access = access
        self._listeners = listeners

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled."""
        from hypercorn.config import Config
        from hypercorn.trio import serve

        from stompbroker.management.application import make_application

        application = make_application(self._control, self._access)
        task_status.started()
        while True:
            config = Config()
            # The server closes what it is given; ours stay open for the next one.
            config.bind = [f"fd://{os.dup(listener.socket.fileno())}" for listener in self._listeners]
            config.accesslog = config.errorlog = None
            config.include_server_header = False
            config.keep_alive_timeout = 10
            config.read_timeout = 30
            config.graceful_timeout = 1.0
            try:
                await serve(application, config, mode="asgi")  # type: ignore[arg-type]
            except Exception:
                # The boundary for the whole endpoint: it is not worth the broker.
                log.exception("the management endpoint failed; it is started again")
            await trio.sleep(RETRY_S)
