"""The live view: server-sent events.

Law: once a second something is sent to everybody who watches. It is made once for all who want the same; whoever does
not read in time misses some, and nobody waits for him.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final
from urllib.parse import parse_qsl, urlsplit

import trio

from stompbroker.management.api import read_query
from stompbroker.management.endpoints import ENDPOINTS
from stompbroker.management.responses import Problem, as_json_in_steps

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from stompbroker.control import Control
    from stompbroker.management.api import Asked
    from stompbroker.management.endpoints import Endpoint

__all__ = ["Events"]

#: Streams at the same time.
MAX_STREAMS: Final = 256
INTERVAL_S: Final = 1.0
#: How old what was made for others may be. Less than the interval, so that nobody is sent the same twice.
FRESH_S: Final = 0.8 * INTERVAL_S
#: By which part of the interval each stream comes behind the one that came before it. Whatever their number, they so
#: are spread over it.
SPREAD: Final = (5**0.5 - 1) / 2
_OVERVIEW: Final = ENDPOINTS[0]
_LISTS: Final = {endpoint.path: endpoint for endpoint in ENDPOINTS if endpoint.method == "GET" and not endpoint.in_path}
_HEADERS: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


@dataclass(slots=True)
class _Made:
    """What was last made of one resource; while somebody makes it anew the others wait for that."""

    turn: trio.Lock = field(default_factory=trio.Lock)
    made_at_s: float = float("-inf")
    event: bytes = b""


@final
class Events:
    """
    Invariants:
        sampler.watchers is the number of streams
        something is kept of every resource that a stream wants, and of no other
    """

    __slots__ = ("_asked", "_control", "_made", "_streams", "_wanted")

    def __init__(self, control: Control, asked: Asked) -> None:
        self._control = control
        self._asked = asked
        #: By what is asked for; None is the overview.
        self._made: dict[str | None, _Made] = {}
        #: How many there were since the start.
        self._streams = 0
        #: How many streams want it.
        self._wanted: Counter[str | None] = Counter()

    async def respond(self, request: Request) -> _Stream:
        """Raises Problem."""
        if unknown := sorted(request.query_params.keys() - {"resource"}):
            raise Problem(400, f"unknown in the query: {', '.join(unknown)}; it takes resource")
        resource = request.query_params.get("resource")
        if resource is not None:
            _read_resource(resource)
        return _Stream(self, resource)

    def join(self, resource: str | None) -> float:
        """Somebody watches from now on; returns how long he waits after his first event. Raises Problem."""
        if self._control.sampler.watchers >= MAX_STREAMS:
            raise Problem(503, f"{MAX_STREAMS} watch already, which is all there may be")
        self._control.sampler.watchers += 1
        for each in {None, resource}:
            self._wanted[each] += 1
            self._made.setdefault(each, _Made())
        self._streams += 1
        return FRESH_S + INTERVAL_S * (self._streams * SPREAD % 1)

    def leave(self, resource: str | None) -> None:
        self._control.sampler.watchers -= 1
        for each in {None, resource}:
            self._wanted[each] -= 1
            if not self._wanted[each]:
                del self._wanted[each], self._made[each]

    async def event(self, resource: str | None) -> bytes:
        """The overview, and behind it what else is wanted, as of now or of a moment ago. One object for all."""
        made = self._made[resource]
        async with made.turn:
            now_s = trio.current_time()
            if now_s - made.made_at_s >= FRESH_S:
                made.event = await self._make(resource)
                if resource is not None:
                    made.event = await self.event(None) + made.event
                made.made_at_s = now_s
            return made.event

    async def _make(self, resource: str | None) -> bytes:
        try:
            endpoint, params = (_OVERVIEW, {}) if resource is None else _read_resource(resource)
            value = await self._asked.call(endpoint, params)
            name = "overview" if resource is None else "page"
        except Problem as problem:
            name, value = "problem", {"status": problem.status, "detail": problem.detail}
        return f"event: {name}\ndata: {await as_json_in_steps(value, self._control.looking)}\n\n".encode()


@final
class _Stream:
    """An answer that goes on until its client has left."""

    __slots__ = ("_events", "_resource")

    def __init__(self, events: Events, resource: str | None) -> None:
        self._events = events
        self._resource = resource

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": _HEADERS}
        if scope["method"] == "HEAD":
            await send(start)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        wait_s = self._events.join(self._resource)
        try:
            await send(start)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_cancel_when_left, receive, nursery.cancel_scope)
                await self._send_events(send, wait_s)
        finally:
            self._events.leave(self._resource)

    async def _send_events(self, send: Send, wait_s: float) -> None:
        while True:
            event = await self._events.event(self._resource)
            await send({"type": "http.response.body", "body": event, "more_body": True})
            await trio.sleep(wait_s)
            wait_s = INTERVAL_S


async def _cancel_when_left(receive: Receive, scope: trio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


def _read_resource(resource: str) -> tuple[Endpoint, dict[str, Any]]:
    """A list with its query, as in `/topics?sort=-rate`. Raises Problem."""
    try:
        parts = urlsplit(resource)
        query = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        raise Problem(400, f"resource is an address such as /topics?sort=-rate, not {resource[:100]!r}") from None
    endpoint = _LISTS.get(parts.path)
    if endpoint is None:
        raise Problem(400, f"resource is one of {', '.join(_LISTS)}, with a query")
    return endpoint, read_query(query, endpoint)
