"""Answers requests on the control socket in the data directory; `Control` decides everything.

One JSON object per line in, one per line out: `{"method": …, "params": {…}}`, then `{"result": …}` or
`{"error": {"message": …}}`. Requests of one connection are answered one after the other; one that was begun is
finished, even if nobody waits for its answer any more.
"""

from __future__ import annotations

import json
import socket
import struct
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import structlog
import trio

from stompbroker.control import METHODS, ControlError
from stompbroker.transport import accept

if TYPE_CHECKING:
    from collections.abc import Callable

    from stompbroker.access import Audit
    from stompbroker.control import Control
    from stompbroker.log_throttle import LogThrottle

#: Longest request.
MAX_REQUEST_BYTES: Final = 64 * 1024
#: Connections that are answered at the same time.
MAX_CLIENTS: Final = 32
#: How long a client may take until its next request, or to read an answer, in seconds. The time the broker takes to
#: answer does not count: a deletion waits for the disk.
IDLE_S: Final = 60.0

#: Of SO_PEERCRED: process, user, group.
_CREDENTIALS: Final = struct.Struct("3i")

log = structlog.get_logger()


async def run(listener: trio.SocketListener, control: Control, audit: Audit, throttle: LogThrottle) -> None:
    """Answer until cancelled."""
    clients = trio.CapacityLimiter(MAX_CLIENTS)

    async def answer_one(stream: trio.SocketStream) -> None:
        async with stream, clients:
            try:
                await _answer(stream, control, partial(audit.acted, _user_of(stream), "", "control socket"))
            except trio.BrokenResourceError:
                pass  # the client has left
            except Exception:
                # The boundary for requests: a bug in one must not take the broker down.
                log.exception("a control request failed")

    async with trio.open_nursery() as nursery:
        while True:
            nursery.start_soon(answer_one, await accept(listener, "control", throttle))


def _user_of(stream: trio.SocketStream) -> str:
    """Who is at the other end, for the audit log."""
    _, uid, _ = _CREDENTIALS.unpack(stream.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return f"uid {uid}"


async def _answer(stream: trio.SocketStream, control: Control, note: Callable[[str], None]) -> None:
    pending = b""
    while True:
        chunk = b""
        with trio.move_on_after(IDLE_S):
            chunk = await stream.receive_some()
        if not chunk:
            return  # gone, or silent for too long
        *lines, pending = (pending + chunk).split(b"\n")
        for line in lines:
            answer = json.dumps(await _respond(line, control, note)).encode() + b"\n"
            with trio.move_on_after(IDLE_S) as sending:
                await stream.send_all(answer)
            if sending.cancelled_caught:
                return
        if len(pending) > MAX_REQUEST_BYTES:
            return


async def _respond(line: bytes, control: Control, note: Callable[[str], None]) -> dict[str, Any]:
    request = _read(line)
    if request is None:
        return {"error": {"message": 'a request is one line: {"method": NAME, "params": {}}'}}
    try:
        result = await control.call(*request)
    except ControlError as error:
        return {"error": {"message": str(error)}}
    method, params = request
    if method in METHODS and METHODS[method].changes:
        note(f"{method} {json.dumps(params)}")
    return {"result": result}


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
