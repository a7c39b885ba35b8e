"""The live view: server-sent events, one a second for every stream.

Law: an event is made once for all who want and see the same. A client that does not read in time misses some events;
nobody waits. A stream ends when its user's login does, or its permissions change; the client may open another.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final
from urllib.parse import parse_qsl, urlsplit

import trio

from stompbroker.control import METHODS, OPERATOR, ControlError
from stompbroker.management.endpoints import ENDPOINTS, read_query, visitor_of
from stompbroker.management.responses import Problem, as_json_in_steps

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

    from stompbroker.control import Caller, Control
    from stompbroker.management.access import Access

#: Streams at the same time.
MAX_STREAMS: Final = 256
INTERVAL_S: Final = 1.0
#: How long an event serves others. Less than the interval, so that nobody is sent the same twice.
FRESH_S: Final = 0.8 * INTERVAL_S
#: Each stream comes this part of the interval behind the one before: the golden ratio spreads any number of them.
SPREAD: Final = (5**0.5 - 1) / 2
#: Without `/me`, which is not the same for all who see the same, and `/history`, which the overviews go on from.
_LISTS: Final = {
    endpoint.path: endpoint
    for endpoint in ENDPOINTS
    if endpoint.method == "GET" and not endpoint.in_path and endpoint.call not in ("me", "history")
}
_HEADERS: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


@dataclass(slots=True)
class _Made:
    """The last event of one wish; while one stream makes it anew, the others wait for that."""

    turn: trio.Lock = field(default_factory=trio.Lock)
    made_at_s: float = float("-inf")
    event: bytes = b""
    #: How many streams want it.
    streams: int = 0


class Wish(NamedTuple):
    #: None is the overview.
    resource: str | None
    #: None: somebody who sees the whole broker.
    restricted: Caller | None


@final
@dataclass(slots=True, eq=False)
class Events:
    """
    Invariants:
        sampler.watchers is the number of streams
        an event is kept of every wish of a stream, and of no other
    """

    _control: Control
    _access: Access
    _made: dict[Wish, _Made] = field(default_factory=dict)
    #: How many streams there were since the start.
    _streams: int = 0

    async def respond(self, request: Request) -> ASGIApp:
        """Raises Problem, ControlError."""
        if unknown := sorted(request.query_params.keys() - {"resource"}):
            raise Problem(400, f"unknown in the query: {', '.join(unknown)}; it takes resource")
        resource = request.query_params.get("resource")
        caller = visitor_of(request).caller
        if resource is not None:
            method, _ = _read_resource(resource)
            if not METHODS[method].keeps_to_caller:
                caller.check_whole()
        return partial(self._stream, resource, caller)

    async def _stream(self, resource: str | None, caller: Caller, scope: Scope, receive: Receive, send: Send) -> None:
        """An answer that goes on until its client leaves, or its login ends."""
        start = {"type": "http.response.start", "status": 200, "headers": _HEADERS}
        if scope["method"] == "HEAD":
            await send(start)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        wish = Wish(resource, caller if caller.is_restricted else None)
        wait_s = self._join(wish)
        try:
            await send(start)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_cancel_when_left, receive, nursery.cancel_scope)
                while (renewed := self._access.renewed(caller)) is not None:
                    caller = renewed
                    event = await self._event(wish)
                    await send({"type": "http.response.body", "body": event, "more_body": True})
                    await trio.sleep(wait_s)
                    wait_s = INTERVAL_S
                nursery.cancel_scope.cancel()
        finally:
            self._leave(wish)
        # Not above, where the end of the answer counts as the client's leaving, and cancels what the server does next.
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _join(self, wish: Wish) -> float:
        """Add a stream; returns how long it waits after its first event. Raises Problem."""
        if self._control.sampler.watchers >= MAX_STREAMS:
            raise Problem(503, f"{MAX_STREAMS} watch already, which is all there may be")
        self._control.sampler.watchers += 1
        for each in _parts(wish):
            self._made.setdefault(each, _Made()).streams += 1
        self._streams += 1
        return FRESH_S + INTERVAL_S * (self._streams * SPREAD % 1)

    def _leave(self, wish: Wish) -> None:
        self._control.sampler.watchers -= 1
        for each in _parts(wish):
            self._made[each].streams -= 1
            if not self._made[each].streams:
                del self._made[each]

    async def _event(self, wish: Wish) -> bytes:
        """The overview, then the resource, as of now or of a moment ago. One object for all streams."""
        made = self._made[wish]
        async with made.turn:
            now_s = trio.current_time()
            if now_s - made.made_at_s >= FRESH_S:
                made.event = await self._make(wish)
                if wish.resource is not None:
                    made.event = await self._event(wish._replace(resource=None)) + made.event
                made.made_at_s = now_s
            return made.event

    async def _make(self, wish: Wish) -> bytes:
        resource = wish.resource
        name = "overview" if resource is None else "page"
        try:
            method, params = ("overview", {}) if resource is None else _read_resource(resource)
            value = await self._control.call(method, params, wish.restricted or OPERATOR)
        except ControlError as error:
            name, value = "problem", {"status": Problem.of(error).status, "detail": str(error)}
        return f"event: {name}\ndata: {await as_json_in_steps(value, self._control.looking)}\n\n".encode()


def _parts(wish: Wish) -> set[Wish]:
    """What is made for it: each on its own."""
    return {wish, wish._replace(resource=None)}


async def _cancel_when_left(receive: Receive, scope: trio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


def _read_resource(resource: str) -> tuple[str, dict[str, Any]]:
    """Method and parameters of a list with its query, such as `/topics?sort=-rate`. Raises Problem, ControlError."""
    try:
        parts = urlsplit(resource)
        query = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        raise Problem(400, f"resource is an address such as /topics?sort=-rate, not {resource[:100]!r}") from None
    endpoint = _LISTS.get(parts.path)
    if endpoint is None:
        raise Problem(400, f"resource is one of {', '.join(_LISTS)}, with a query")
    params = read_query(query, endpoint)
    METHODS[endpoint.call].check(params)
    return endpoint.call, params
