"""The whole HTTP application: routes, and around them access, security headers and error answers.

Law: a bug in an answer is a 500 and a line in the log, and nothing else.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from importlib.resources import files
from math import inf
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final, final
from urllib.parse import quote, unquote

import structlog
import trio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from stompbroker.control import ControlError, Forbidden
from stompbroker.management.endpoints import API, MAX_BODY_BYTES, api_routes, visitor_of
from stompbroker.management.events import Events
from stompbroker.management.metrics import render_metrics
from stompbroker.management.openapi import openapi_document, readable_page
from stompbroker.management.responses import Problem

if TYPE_CHECKING:
    from typing import TypeAlias

    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from stompbroker.control import Control
    from stompbroker.management.access import Access

    _Channel: TypeAlias = tuple[trio.MemorySendChannel[Message], trio.MemoryReceiveChannel[Message]]

_TYPES: Final = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
#: The page loads nothing from anywhere else, and no other page may embed it.
_SECURITY_HEADERS: Final = [
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        b"connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]

log = structlog.get_logger()


def make_application(control: Control, access: Access) -> ASGIApp:
    async def ready(_: Request) -> Response:
        why_not = control.why_not_ready(tells_all=not access.asks_for_login)
        if why_not is not None:
            raise Problem(503, why_not)
        warnings = control.warnings()
        return JSONResponse({"status": "ready", "warnings": warnings} if warnings else {"status": "ready"})

    async def metrics(request: Request) -> Response:
        visitor_of(request).caller.check_whole()
        content, content_type = await render_metrics(control)
        return Response(content, headers={"Content-Type": content_type})

    async def answer_error(request: Request, error: Exception) -> Response:
        if isinstance(error, Forbidden):
            access.note_denied(visitor_of(request), f"{request.method} {request.url.path}")
        return _response_to(error)

    application = Starlette(
        routes=[
            *(Route(path, response, methods=["GET"]) for path, response in _constant_answers().items()),
            Route("/health/ready", ready),
            Route("/metrics", metrics),
            Route(f"{API}/events", Events(control, access).respond),
            *api_routes(control, access),
        ],
        # Starlette raises an `Exception` again after the answer, and `_answer` logs it.
        exception_handlers=dict.fromkeys((Problem, ControlError, HTTPException, Exception), answer_error),
    )
    # An address with a slash too many is none of ours.
    application.router.redirect_slashes = False
    return _guarded(application, access)


def make_standby_application() -> ASGIApp:
    """A broker on stand-by lives, and that is all. It says no more: there is nobody yet who could be told more."""

    async def answer_error(_: Request, error: Exception) -> Response:
        return _response_to(error)

    async def refuse(_: Request) -> Response:
        raise Problem(503, "standby: the broker waits until the store is free")

    return Starlette(
        routes=[
            Route("/health/live", JSONResponse({"status": "live"}), methods=["GET"]),
            Route("/{path:path}", refuse, methods=["GET", "POST", "PUT", "PATCH", "DELETE"]),
        ],
        exception_handlers=dict.fromkeys((Problem, HTTPException), answer_error),
    )


def _constant_answers() -> dict[str, Response]:
    """By path: the live page, its files, and the documents about the API."""
    answers = {
        "/health/live": JSONResponse({"status": "live"}),
        "/api/openapi.json": Response(json.dumps(openapi_document()), media_type="application/json"),
        "/api/docs": HTMLResponse(readable_page()),
    }
    for file in files("stompbroker.management").joinpath("static").iterdir():
        media_type = _TYPES.get(PurePath(file.name).suffix)
        if media_type is not None:
            answers[f"/static/{file.name}"] = Response(
                file.read_bytes(), media_type=media_type, headers={"Cache-Control": "no-cache"}
            )
    return answers | {"/": HTMLResponse(answers["/static/index.html"].body)}


@final
@dataclass(slots=True, eq=False)
class Incoming:
    """Takes what a client sends, whether or not the application reads it, and keeps no more than a body may have.

    The server hands over a few pieces and then waits until they are taken. If nobody took them, the end of the answer
    would wait behind them for good, and so would the connection.
    """

    _receive: Receive
    #: Whether the client has left.
    is_gone: bool = False
    #: Bounded by what `run` puts into it.
    _pieces: _Channel = field(default_factory=lambda: trio.open_memory_channel[Any](inf))

    async def run(self) -> None:
        """Take until the client leaves or the answer is done."""
        size_bytes = 0
        put, _ = self._pieces
        with put:
            while not self.is_gone:
                message = await self._receive()
                self.is_gone = message["type"] == "http.disconnect"
                # The first piece beyond the limit is handed on: it tells the application that the body is too long.
                if self.is_gone or size_bytes <= MAX_BODY_BYTES:
                    put.send_nowait(message)
                size_bytes += len(message.get("body", b""))

    async def receive(self) -> Message:
        """As the application calls it."""
        try:
            return await self._pieces[1].receive()
        except trio.EndOfChannel:
            return {"type": "http.disconnect"}

    def close(self) -> None:
        self._pieces[1].close()


def _guarded(application: ASGIApp, access: Access) -> ASGIApp:
    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
            return
        scope["path"] = _routed_path(scope["raw_path"])
        incoming = Incoming(receive)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(incoming.run)
            await _answer(application, access, scope, incoming, send)
            nursery.cancel_scope.cancel()
        incoming.close()

    return guarded


def _routed_path(raw_path: bytes) -> str:
    """With every segment quoted in one way. Servers decode the path before it is routed, and then the slashes of
    `/topics/%2Fqueue%2Fjobs` could not be told from those between segments."""
    return "/".join(quote(unquote(segment), safe="") for segment in raw_path.decode("ascii").split("/"))


async def _answer(application: ASGIApp, access: Access, scope: Scope, incoming: Incoming, send: Send) -> None:
    async def tell(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), *_SECURITY_HEADERS]
        await send(message)

    try:
        try:
            scope["visitor"] = await access.admit(HTTPConnection(scope), scope["method"])
        except Problem as problem:
            await problem.response(scope, incoming.receive, tell)
            return
        await application(scope, incoming.receive, tell)
    except Exception:
        if incoming.is_gone:
            return  # nobody is there to answer
        # The boundary for requests: a bug in one must not take the broker down.
        log.exception("a management request failed", path=scope["path"])


def _response_to(error: Exception) -> Response:
    details = {404: "there is nothing at this address; see /api/docs", 405: "this address does not take that method"}
    match error:
        case Problem():
            return error.response
        case ControlError():
            return Problem.of(error).response
        case HTTPException(status_code=status):
            return Problem(status, details.get(status, error.detail), dict(error.headers or {})).response
    return Problem(500, "the broker's log says more").response
