"""The endpoints as HTTP routes.

Law: from a request to a call of `control` and back. A parameter that an endpoint does not have is refused here, a value
that is not allowed by `control`.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

import trio
from starlette.responses import Response
from starlette.routing import Route

from stompbroker.management.endpoints import ENDPOINTS
from stompbroker.management.responses import Problem, as_json_in_steps

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.requests import Request

    from stompbroker.control import Control, Param
    from stompbroker.management.endpoints import Endpoint

API: Final = "/api/v1"
#: A body holds a few fields.
MAX_BODY_BYTES: Final = 16 * 1024
#: How long a body may take to come.
BODY_S: Final = 10.0
_WHOLE: Final = re.compile(r"-?[0-9]{1,19}", re.ASCII)


def api_routes(control: Control) -> list[Route]:
    """One for each address, so that a request with a wrong method is told all right ones."""
    by_path: dict[str, dict[str, Endpoint]] = {}
    for endpoint in ENDPOINTS:
        by_path.setdefault(endpoint.path, {})[endpoint.method] = endpoint

    def answers(endpoints: Mapping[str, Endpoint]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            endpoint = endpoints["GET" if request.method == "HEAD" else request.method]
            params = _read_texts(request.path_params, endpoint.in_path, "path")
            params |= read_query(request.query_params.multi_items(), endpoint)
            if endpoint.method != "GET":
                params |= await _read_body(request, endpoint)
            value = await control.call(endpoint.call, params)
            return Response(await as_json_in_steps(value, control.looking), media_type="application/json")

        return answer

    return [Route(f"{API}{path}", answers(endpoints), methods=sorted(endpoints)) for path, endpoints in by_path.items()]


def read_query(items: list[tuple[str, str]], endpoint: Endpoint) -> dict[str, Any]:
    """Raises Problem."""
    given = dict(items)
    if len(given) < len(items):
        raise Problem(400, "a query parameter may be given once")
    return _read_texts(given, endpoint.in_query, "query")


def _read_texts(given: Mapping[str, str], known: Mapping[str, Param], place: str) -> dict[str, Any]:
    _refuse_unknown(given, known, place)
    return {name: _from_text(value, known[name]) for name, value in given.items()}


def _refuse_unknown(given: Mapping[str, Any], known: Mapping[str, Param], place: str) -> None:
    if unknown := sorted(given.keys() - known.keys()):
        allowed = f"it takes {', '.join(known)}" if known else "it takes none"
        raise Problem(400, f"unknown in the {place}: {', '.join(unknown)}; {allowed}")


def _from_text(value: str, param: Param) -> str | int | bool:
    """A text that is no number, or neither true nor false, stays a text, which `control` refuses."""
    if param.kind is int and _WHOLE.fullmatch(value):
        return int(value)
    return value == "true" if param.kind is bool and value in ("true", "false") else value


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
        return {}
    # A form on another site can send text, but not this without a preflight request.
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise Problem(415, "a body is JSON: send Content-Type: application/json")
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        raise Problem(400, "the body is not JSON") from None
    if not isinstance(fields, dict):
        raise Problem(400, "the body is a JSON object")
    _refuse_unknown(fields, endpoint.in_body, "body")
    return fields
