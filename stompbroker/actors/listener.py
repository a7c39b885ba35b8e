"""Accepts connections and has each served by a worker of its own.

Law: accepts, counts, refuses what is too many with an ERROR frame. Cancelling it stops accepting and touches no
connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from stompbroker.errors import PeerViolation
from stompbroker.stomp import Version, render_error
from stompbroker.transport import accept, close_gently, tune

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from stompbroker.log_throttle import LogThrottle

__all__ = ["run"]

#: How long we take over telling a client that there is no room.
REFUSAL_S: Final = 1.0
#: How many are told at the same time; in a larger crowd the others are just closed.
MAX_REFUSALS: Final = 256


async def run(
    listener: trio.SocketListener,
    connections: trio.Nursery,
    serve: Callable[[trio.SocketStream], Awaitable[None]],
    throttle: LogThrottle,
    *,
    max_connections: int,
    after_frame: bytes,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Accept until cancelled; connections live in the nursery given. `after_frame` is sent behind an ERROR."""
    reason = PeerViolation("too many connections", f"the broker serves {max_connections} at a time; try again later")
    refusal = render_error(reason, Version.V1_0) + after_frame
    task_status.started()
    async with trio.open_nursery() as refusals:
        await _accept(listener, connections, refusals, serve, throttle, max_connections, refusal)


async def _accept(
    listener: trio.SocketListener,
    connections: trio.Nursery,
    refusals: trio.Nursery,
    serve: Callable[[trio.SocketStream], Awaitable[None]],
    throttle: LogThrottle,
    max_connections: int,
    refusal: bytes,
) -> None:
    while True:
        stream = await accept(listener, "stomp", throttle)
        if len(connections.child_tasks) < max_connections:
            connections.start_soon(_serve_tuned, serve, stream)
        elif len(refusals.child_tasks) < MAX_REFUSALS:
            refusals.start_soon(_refuse, stream, refusal)
        else:
            await trio.aclose_forcefully(stream)


async def _serve_tuned(serve: Callable[[trio.SocketStream], Awaitable[None]], stream: trio.SocketStream) -> None:
    try:
        tune(stream)
    except OSError:
        # The client was gone before we came to look at it.
        await trio.aclose_forcefully(stream)
        return
    await serve(stream)


async def _refuse(stream: trio.SocketStream, refusal: bytes) -> None:
    try:
        with trio.move_on_after(REFUSAL_S):
            await stream.send_all(refusal)
            await close_gently(stream)
    except trio.BrokenResourceError:
        pass
    finally:
        await trio.aclose_forcefully(stream)
