"""The endpoints as an HTTP application.

Law: from a request to a call of `control` and back. Everything in a request is checked against the table: what is not
in it is refused with what would be allowed.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, final

import trio
from starlette.responses import Response
from starlette.routing import Route

from stompbroker.control import ControlError, NotFound, Unavailable
from stompbroker.management.endpoints import ENDPOINTS, ParamKind
from stompbroker.management.responses import Problem, as_json_in_steps

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.requests import Request

    from stompbroker.control import Control
    from stompbroker.management.endpoints import Endpoint, Param

__all__ = ["API", "MAX_BODY_BYTES", "Asked", "api_routes", "read_query"]

API: Final = "/api/v1"
#: Bodies are a few fields.
MAX_BODY_BYTES: Final = 16 * 1024
#: How long a body may take to come.
BODY_S: Final = 10.0
_WHOLE: Final = re.compile(r"-?[0-9]{1,19}", re.ASCII)


@final
class Asked:
    """Calls `control` for whoever asks over HTTP."""

    __slots__ = ("_control",)

    def __init__(self, control: Control) -> None:
        self._control = control

    async def call(self, endpoint: Endpoint, params: Mapping[str, Any]) -> Any:
        """Raises Problem."""
        try:
            return await self._control.call(endpoint.call, params)
        except NotFound as error:
            raise Problem(404, str(error)) from None
        except Unavailable as error:
            raise Problem(503, str(error)) from None
        except ControlError as error:
            raise Problem(400, str(error)) from None

    async def answer(self, endpoint: Endpoint, request: Request) -> Response:
        params = _read_all(request.path_params, endpoint.in_path, "path")
        params |= read_query(request.query_params.multi_items(), endpoint)
        if endpoint.method != "GET":
            params |= await _read_body(request, endpoint)
        value = await self.call(endpoint, params)
        return Response(await as_json_in_steps(value, self._control.looking), media_type="application/json")


def api_routes(asked: Asked) -> list[Route]:
    """One for each address, so that whoever asks in another way than it allows is told all that it does."""
    by_path: dict[str, dict[str, Endpoint]] = {}
    for endpoint in ENDPOINTS:
        by_path.setdefault(endpoint.path, {})[endpoint.method] = endpoint

    def answers(endpoints: Mapping[str, Endpoint]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            method = "GET" if request.method == "HEAD" else request.method
            return await asked.answer(endpoints[method], request)

        return answer

    return [Route(f"{API}{path}", answers(endpoints), methods=sorted(endpoints)) for path, endpoints in by_path.items()]


def read_query(items: list[tuple[str, str]], endpoint: Endpoint) -> dict[str, Any]:
    """Raises Problem."""
    given = dict(items)
    if len(given) < len(items):
        raise Problem(400, "a query parameter may be given once")
    return _read_all(given, endpoint.in_query, "query")


def _read_all(given: Mapping[str, str], known: Mapping[str, Param], place: str) -> dict[str, Any]:
    _refuse_unknown(given, known, place)
    return {name: _read_text(name, value, known[name]) for name, value in given.items()}


def _refuse_unknown(given: Mapping[str, Any], known: Mapping[str, Param], place: str) -> None:
    if unknown := sorted(given.keys() - known.keys()):
        allowed = f"it takes {', '.join(known)}" if known else "it takes none"
        raise Problem(400, f"unknown in the {place}: {', '.join(unknown)}; {allowed}")


def _read_text(name: str, value: str, param: Param) -> Any:
    match param.kind:
        case ParamKind.NUMBER:
            if not _WHOLE.fullmatch(value):
                raise Problem(400, f"{name} is a whole number, not {value[:100]!r}")
            return _checked(name, int(value), param)
        case ParamKind.TRUTH:
            if value not in ("true", "false"):
                raise Problem(400, f"{name} is true or false, not {value[:100]!r}")
            return value == "true"
        case ParamKind.TEXT:
            return _checked(name, value, param)


def _checked(name: str, value: Any, param: Param) -> Any:
    if param.choices and value not in param.choices:
        raise Problem(400, f"{name} is one of {', '.join(param.choices)}")
    if isinstance(value, int) and not (param.low or 0) <= value <= (param.high or value):
        raise Problem(400, f"{name} is a whole number from {param.low} to {param.high}")
    if isinstance(value, str) and "\0" in value:
        raise Problem(400, f"{name} must not hold a NUL")
    return value


async def _receive_body(request: Request) -> bytes:
    body: bytes = b""
    with trio.move_on_after(BODY_S):
        while True:
            message = await request.receive()
            if message["type"] != "http.request":
                raise Problem(400, "the body did not come in full")
            body += message.get("body", b"")
            if len(body) > MAX_BODY_BYTES:
                raise Problem(413, f"a body may have {MAX_BODY_BYTES} bytes")
            if not message.get("more_body", False):
                return body
    raise Problem(408, f"a body has to come within {BODY_S:g} s")


async def _read_body(request: Request, endpoint: Endpoint) -> dict[str, Any]:
    body = await _receive_body(request)
    if not body:
        fields: Any = {}
    else:
        # A form of another site can send text, but not this without asking first.
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            raise Problem(415, "a body is JSON: send Content-Type: application/json")
        try:
            fields = json.loads(body)
        except (ValueError, RecursionError):
            raise Problem(400, "the body is not JSON") from None
    if not isinstance(fields, dict):
        raise Problem(400, "the body is a JSON object")
    _refuse_unknown(fields, endpoint.in_body, "body")
    kinds = {ParamKind.TEXT: str, ParamKind.NUMBER: int, ParamKind.TRUTH: bool}
    for name, value in fields.items():
        param = endpoint.in_body[name]
        is_truth = isinstance(value, bool)
        if not isinstance(value, kinds[param.kind]) or (is_truth and param.kind is not ParamKind.TRUTH):
            raise Problem(400, f"{name} in the body is of type {param.kind.value}")
        _checked(name, value, param)
    if missing := [name for name, param in endpoint.in_body.items() if param.is_required and name not in fields]:
        raise Problem(400, f"missing in the body: {', '.join(missing)}")
    return fields
