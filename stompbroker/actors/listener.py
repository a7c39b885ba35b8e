"""Accepts connections and starts a worker for each; refuses too many with an ERROR frame.

Cancelling it stops accepting and touches no connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from stompbroker.errors import PeerViolation
from stompbroker.stomp import Version, render_error

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from stompbroker.log_throttle import LogThrottle
    from stompbroker.transport import TcpListener, Transport

#: How long telling a client that there is no room may take, in seconds.
REFUSAL_S: Final = 1.0
#: How many are told at the same time. The connections of all others are just closed.
MAX_REFUSALS: Final = 256


async def run(
    listener: TcpListener,
    connections: trio.Nursery,
    serve: Callable[[Transport], Awaitable[None]],
    throttle: LogThrottle,
    *,
    max_connections: int,
    after_frame: bytes,
) -> None:
    """Accept until cancelled; connections live in the nursery given. `after_frame` is sent behind an ERROR."""
    reason = PeerViolation("too many connections", f"the broker serves {max_connections} at a time; try again later")
    refusal = render_error(reason, Version.V1_0) + after_frame
    async with trio.open_nursery() as refusals:
        while True:
            transport = await listener.accept(throttle)
            if len(connections.child_tasks) < max_connections:
                connections.start_soon(serve, transport)
            elif len(refusals.child_tasks) < MAX_REFUSALS:
                refusals.start_soon(_refuse, transport, refusal)
            else:
                await transport.close()


async def _refuse(transport: Transport, refusal: bytes) -> None:
    try:
        with trio.move_on_after(REFUSAL_S):
            await transport.send_all(refusal)
            await transport.finish()
    except trio.BrokenResourceError:
        pass
    finally:
        await transport.close()
