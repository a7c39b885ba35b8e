"""The whole HTTP application.

Law: routes, and around them what every request meets: who may ask, what is told to browsers, and what happens when
something goes wrong. A bug in an answer is a 500 and a line in the log, and nothing else.
"""

from __future__ import annotations

import json
from importlib.resources import files
from math import inf
from typing import TYPE_CHECKING, Final, final

import structlog
import trio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from stompbroker.management.api import API, MAX_BODY_BYTES, Asked, api_routes
from stompbroker.management.events import Events
from stompbroker.management.metrics import render_metrics
from stompbroker.management.openapi import openapi_document, readable_page
from stompbroker.management.responses import Problem, json_response, problem_response

if TYPE_CHECKING:
    from typing import TypeAlias

    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from stompbroker.control import Control
    from stompbroker.management.access import Access

    _Channel: TypeAlias = tuple[trio.MemorySendChannel[Message], trio.MemoryReceiveChannel[Message]]

__all__ = ["make_application"]

_TYPES: Final = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
#: The page loads nothing from anywhere else, and nobody may put it into a page of his own.
_SECURITY_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
_RAW_SECURITY_HEADERS: Final = [(name.lower().encode(), value.encode()) for name, value in _SECURITY_HEADERS.items()]

log = structlog.get_logger()


def make_application(control: Control, access: Access) -> ASGIApp:
    asked = Asked(control)

    async def live(_: Request) -> Response:
        return json_response({"status": "live"})

    async def ready(_: Request) -> Response:
        why_not = control.why_not_ready()
        if why_not is not None:
            raise Problem(503, why_not)
        warnings = control.warnings()
        return json_response({"status": "ready", "warnings": warnings} if warnings else {"status": "ready"})

    async def metrics(_: Request) -> Response:
        content, content_type = await render_metrics(control)
        return Response(content, headers={"Content-Type": content_type})

    application = Starlette(
        routes=[
            *_pages(),
            Route("/health/live", live),
            Route("/health/ready", ready),
            Route("/metrics", metrics),
            Route(f"{API}/events", Events(control, asked).respond),
            *api_routes(asked),
        ],
        exception_handlers={
            Problem: _answer_problem,  # type: ignore[dict-item]
            HTTPException: _answer_http,  # type: ignore[dict-item]
            # It is raised again behind the answer, and logged there.
            Exception: _answer_mistake,
        },
    )
    # An address with a slash too many is none of ours.
    application.router.redirect_slashes = False
    return _guarded(application, access)


def _pages() -> list[Route]:
    """What is the same whatever the broker does: the live page, its files, and the documents about the API."""
    static = {
        file.name: (file.read_bytes(), _TYPES["." + file.name.rpartition(".")[2]])
        for file in files("stompbroker.management").joinpath("static").iterdir()
        if "." + file.name.rpartition(".")[2] in _TYPES
    }
    document = json.dumps(openapi_document())

    async def page(_: Request) -> Response:
        return HTMLResponse(static["index.html"][0])

    async def static_file(request: Request) -> Response:
        found = static.get(request.path_params["name"])
        if found is None:
            raise Problem(404, "there is no such file")
        return Response(found[0], media_type=found[1], headers={"Cache-Control": "no-cache"})

    async def api_document(_: Request) -> Response:
        return Response(document, media_type="application/json")

    async def api_page(_: Request) -> Response:
        return HTMLResponse(readable_page())

    return [
        Route("/", page),
        Route("/static/{name}", static_file),
        Route("/api/openapi.json", api_document),
        Route("/api/docs", api_page),
    ]


@final
class Incoming:
    """What a client sends behind its request: taken whether anybody wants it or not, and no more kept than a body may
    have. The server hands over a few pieces, and then waits until they are taken: if nobody did, the end of the answer
    would wait behind them, and the connection with both for good.
    """

    __slots__ = ("_put", "_receive", "_take", "is_gone")

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        # Bounded by what `run` puts into it.
        channel: _Channel = trio.open_memory_channel(inf)
        self._put, self._take = channel
        #: Whether the client has left.
        self.is_gone = False

    async def run(self) -> None:
        """Take until the client leaves or the answer is done."""
        size_bytes = 0
        with self._put:
            while not self.is_gone:
                message = await self._receive()
                self.is_gone = message["type"] == "http.disconnect"
                # Whoever reads has had too much by the piece that is the first too many.
                if self.is_gone or size_bytes <= MAX_BODY_BYTES:
                    self._put.send_nowait(message)
                size_bytes += len(message.get("body", b""))

    async def receive(self) -> Message:
        """As the application calls it."""
        try:
            return await self._take.receive()
        except trio.EndOfChannel:
            return {"type": "http.disconnect"}

    def close(self) -> None:
        self._take.close()


def _guarded(application: ASGIApp, access: Access) -> ASGIApp:
    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await application(scope, receive, send)
            return
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
            return
        incoming = Incoming(receive)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(incoming.run)
            await _answer(application, access, scope, incoming, send)
            nursery.cancel_scope.cancel()
        incoming.close()

    return guarded


async def _answer(application: ASGIApp, access: Access, scope: Scope, incoming: Incoming, send: Send) -> None:
    async def tell(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), *_RAW_SECURITY_HEADERS]
        await send(message)

    try:
        try:
            access.check(HTTPConnection(scope), scope["method"])
        except Problem as problem:
            await problem.response(scope, incoming.receive, tell)
            return
        await application(scope, incoming.receive, tell)
    except Exception:
        if incoming.is_gone:
            return  # there is nobody to answer
        # The boundary for requests: a bug in one must not take the broker down.
        log.exception("a management request failed", path=scope["path"])


async def _answer_problem(_: Request, problem: Problem) -> Response:
    return problem.response


async def _answer_mistake(_: Request, __: Exception) -> Response:
    return problem_response(500, "the broker's log says more")


async def _answer_http(_: Request, error: HTTPException) -> Response:
    details = {404: "there is nothing at this address; see /api/docs", 405: "this address does not take that method"}
    detail = details.get(error.status_code, error.detail)
    return problem_response(error.status_code, detail, dict(error.headers or {}))
