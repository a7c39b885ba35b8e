"""Answers requests on the control socket in the data directory; `Control` decides everything.

One JSON object per line in, one per line out: `{"method": …, "params": {…}}`, then `{"result": …}` or
`{"error": {"message": …}}`. Requests of one connection are answered one after the other; one that was begun is
finished, even if nobody waits for its answer any more.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import structlog
import trio

from stompbroker.control import ControlError
from stompbroker.transport import accept

if TYPE_CHECKING:
    from stompbroker.control import Control
    from stompbroker.log_throttle import LogThrottle

#: Longest request.
MAX_REQUEST_BYTES: Final = 64 * 1024
#: Connections that are answered at the same time.
MAX_CLIENTS: Final = 32
#: How long a client may take until its next request, or to read an answer, in seconds. The time the broker takes to
#: answer does not count: a deletion waits for the disk.
IDLE_S: Final = 60.0

log = structlog.get_logger()


async def run(listener: trio.SocketListener, control: Control, throttle: LogThrottle) -> None:
    """Answer until cancelled."""
    clients = trio.CapacityLimiter(MAX_CLIENTS)

    async def answer_one(stream: trio.SocketStream) -> None:
        async with stream, clients:
            try:
                await _answer(stream, control)
            except trio.BrokenResourceError:
                pass  # the client has left
            except Exception:
                # The boundary for requests: a bug in one must not take the broker down.
                log.exception("a control request failed")

    async with trio.open_nursery() as nursery:
        while True:
            nursery.start_soon(answer_one, await accept(listener, "control", throttle))


async def _answer(stream: trio.SocketStream, control: Control) -> None:
    pending = b""
    while True:
        chunk = b""
        with trio.move_on_after(IDLE_S):
            chunk = await stream.receive_some()
        if not chunk:
            return  # gone, or silent for too long
        *lines, pending = (pending + chunk).split(b"\n")
        for line in lines:
            answer = json.dumps(await _respond(line, control)).encode() + b"\n"
            with trio.move_on_after(IDLE_S) as sending:
                await stream.send_all(answer)
            if sending.cancelled_caught:
                return
        if len(pending) > MAX_REQUEST_BYTES:
            return


async def _respond(line: bytes, control: Control) -> dict[str, Any]:
    request = _read(line)
    if request is None:
        return {"error": {"message": 'a request is one line: {"method": NAME, "params": {}}'}}
    try:
        return {"result": await control.call(*request)}
    except ControlError as error:
        return {"error": {"message": str(error)}}


def _read(line: bytes) -> tuple[str, dict[str, Any]] | None:
    """Method and parameters; None if the line is no request."""
    try:
        request = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(request, dict):
        return None
    method, params = request.get("method"), request.get("params", {})
    return (method, params) if isinstance(method, str) and isinstance(params, dict) else None
