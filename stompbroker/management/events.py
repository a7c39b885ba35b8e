"""The live view: server-sent events.

Law: once a second something is sent to everybody who watches. It is made once for all who want the same; whoever does
not read in time misses some, and nobody waits for him.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, final
from urllib.parse import parse_qsl, urlsplit

import trio
from starlette.responses import StreamingResponse

from stompbroker.management.api import read_query
from stompbroker.management.endpoints import ENDPOINTS
from stompbroker.management.problems import Problem

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

    from stompbroker.control import Control
    from stompbroker.management.api import Asked
    from stompbroker.management.endpoints import Endpoint

__all__ = ["Events"]

#: Streams at the same time.
MAX_STREAMS: Final = 256
INTERVAL_S: Final = 1.0
_OVERVIEW: Final = ENDPOINTS[0]
_LISTS: Final = {endpoint.path: endpoint for endpoint in ENDPOINTS if endpoint.method == "GET" and not endpoint.in_path}


@final
class Events:
    __slots__ = ("_asked", "_control", "_made", "_made_for_s")

    def __init__(self, control: Control, asked: Asked) -> None:
        self._control = control
        self._asked = asked
        #: What was made for the present second, by what was asked for.
        self._made: dict[str, bytes] = {}
        self._made_for_s = 0.0

    async def respond(self, request: Request) -> StreamingResponse:
        """Raises Problem."""
        if unknown := sorted(request.query_params.keys() - {"resource"}):
            raise Problem(400, f"unknown in the query: {', '.join(unknown)}; it takes resource")
        resource = request.query_params.get("resource")
        if resource is not None:
            _read_resource(resource)
        if self._control.sampler.watchers >= MAX_STREAMS:
            raise Problem(503, f"{MAX_STREAMS} watch already, which is all there may be")
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(self._stream(resource), media_type="text/event-stream", headers=headers)

    async def _stream(self, resource: str | None) -> AsyncIterator[bytes]:
        sampler = self._control.sampler
        sampler.watchers += 1
        try:
            while True:
                yield await self._event("overview", None)
                if resource is not None:
                    yield await self._event("page", resource)
                await trio.sleep(INTERVAL_S)
        finally:
            sampler.watchers -= 1

    async def _event(self, name: str, resource: str | None) -> bytes:
        now_s = trio.current_time()
        if now_s - self._made_for_s >= INTERVAL_S:
            self._made_for_s = now_s
            self._made = {}
        key = resource or ""
        if key not in self._made:
            self._made[key] = await self._make(name, resource)
        return self._made[key]

    async def _make(self, name: str, resource: str | None) -> bytes:
        try:
            endpoint, params = (_OVERVIEW, {}) if resource is None else _read_resource(resource)
            value = await self._asked.call(endpoint, params)
        except Problem as problem:
            name, value = "problem", {"status": problem.status, "detail": problem.detail}
        return f"event: {name}\ndata: {json.dumps(value, separators=(',', ':'))}\n\n".encode()


def _read_resource(resource: str) -> tuple[Endpoint, dict[str, Any]]:
    """A list with its query, as in `/topics?sort=-rate`. Raises Problem."""
    parts = urlsplit(resource)
    endpoint = _LISTS.get(parts.path)
    if endpoint is None:
        raise Problem(400, f"resource is one of {', '.join(_LISTS)}, with a query")
    return endpoint, read_query(parse_qsl(parts.query, keep_blank_values=True), endpoint)
