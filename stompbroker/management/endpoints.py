"""Everything that can be asked over HTTP, as one table, and its routes.

Law: routes, the API's document and its page are made from this table and the methods of `control` that it names: their
parameters and answers, and the first line of their docstrings. A route turns a request into a call of `control`: a
parameter that the endpoint does not have is refused here, a value that is not allowed by `control`. What changes
something is for operators, and is in the audit log. Paths are routed as they are quoted, so that a name in one may hold
a slash.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, final
from urllib.parse import unquote

import trio
from pydantic import BaseModel, ConfigDict, Field, create_model
from starlette.responses import Response
from starlette.routing import Route

from stompbroker.control import METHODS, Record
from stompbroker.management.responses import Problem, as_json, as_json_in_steps

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.requests import Request

    from stompbroker.control import Control, Param
    from stompbroker.management.access import Access, Visitor

API: Final = "/api/v1"
#: A body holds a few fields.
MAX_BODY_BYTES: Final = 16 * 1024
#: How long a body may take to come.
BODY_S: Final = 10.0
_WHOLE: Final = re.compile(r"-?[0-9]{1,19}", re.ASCII)
#: For the command line only: exact counts cost every time, and a browser does not count before it moves letters.
_NOT_OVER_HTTP: Final = frozenset({"exact", "up_to"})


@final
@dataclass(frozen=True, slots=True)
class Endpoint:
    method: str
    path: str
    #: The method of `control`.
    call: str

    @property
    def answer(self) -> type[BaseModel]:
        return _model_of(METHODS[self.call].answer)

    @property
    def summary(self) -> str:
        return (METHODS[self.call].function.__doc__ or "").partition("\n")[0].removesuffix(".")

    @property
    def in_path(self) -> Mapping[str, Param]:
        return {name: param for name, param in METHODS[self.call].params.items() if f"{{{name}}}" in self.path}

    @property
    def in_query(self) -> Mapping[str, Param]:
        return self._not_in_path() if self.method == "GET" else {}

    @property
    def in_body(self) -> Mapping[str, Param]:
        return {} if self.method == "GET" else self._not_in_path()

    def _not_in_path(self) -> Mapping[str, Param]:
        without = self.in_path.keys() | _NOT_OVER_HTTP
        return {name: param for name, param in METHODS[self.call].params.items() if name not in without}

    @property
    def group(self) -> str:
        return "broker" if self.path in ("/me", "/overview", "/history") else self.path.split("/")[1].replace("-", " ")


@cache
def _model_of(record: Record[Any]) -> type[BaseModel]:
    fields: Any = {
        name: (_annotation(shown.kind), Field(description=shown.says)) for name, shown in record.fields.items()
    }
    return create_model(record.name, __config__=ConfigDict(extra="forbid"), **fields)


def _annotation(kind: Any) -> Any:
    if isinstance(kind, tuple):
        return _annotation(kind[0]) | None
    if isinstance(kind, list):
        return list[_annotation(kind[0])]  # type: ignore[misc]
    return _model_of(kind) if isinstance(kind, Record) else kind


ENDPOINTS: Final = (
    Endpoint("GET", "/me", "me"),
    Endpoint("GET", "/overview", "overview"),
    Endpoint("GET", "/history", "history"),
    Endpoint("GET", "/topics", "topics"),
    Endpoint("GET", "/topics/{name}", "topic"),
    Endpoint("GET", "/topics/{topic}/messages/{message_id}", "trace"),
    Endpoint("GET", "/subscriptions", "subscriptions"),
    Endpoint("GET", "/subscriptions/{id}", "subscription"),
    Endpoint("DELETE", "/subscriptions/{id}", "remove_subscription"),
    Endpoint("POST", "/subscriptions/{id}/pause", "pause_subscription"),
    Endpoint("POST", "/subscriptions/{id}/resume", "resume_subscription"),
    Endpoint("POST", "/subscriptions/{id}/move", "move_subscription"),
    Endpoint("POST", "/subscriptions/{id}/give", "give_subscription"),
    Endpoint("GET", "/connections", "connections"),
    Endpoint("GET", "/connections/{id}", "connection"),
    Endpoint("DELETE", "/connections/{id}", "close_connection"),
    Endpoint("GET", "/bridges", "bridges"),
    Endpoint("GET", "/dead-letters", "dead_letter_topics"),
    Endpoint("GET", "/dead-letters/{topic}", "dead_letters"),
    Endpoint("GET", "/dead-letters/{topic}/{offset}", "dead_letter"),
    Endpoint("POST", "/dead-letters/{topic}/redrive", "redrive_dead_letters"),
    Endpoint("POST", "/dead-letters/{topic}/purge", "purge_dead_letters"),
    Endpoint("GET", "/last-values", "last_values"),
    Endpoint("POST", "/last-values/purge", "purge_last_values"),
    Endpoint("GET", "/last-values/{topic}", "last_value"),
    Endpoint("DELETE", "/last-values/{topic}", "remove_last_value"),
    Endpoint("GET", "/collector", "explain_collection"),
    Endpoint("POST", "/collector/run", "run_collector"),
    Endpoint("POST", "/ledger/export", "export_ledger"),
)


def visitor_of(request: Request) -> Visitor:
    """Who was admitted."""
    visitor: Visitor = request.scope["visitor"]
    return visitor


def api_routes(control: Control, access: Access) -> list[Route]:
    """One for each address, so that a request with a wrong method is told all right ones."""
    by_path: dict[str, dict[str, Endpoint]] = {}
    for endpoint in ENDPOINTS:
        by_path.setdefault(endpoint.path, {})[endpoint.method] = endpoint

    async def act(call: str, params: Mapping[str, Any], visitor: Visitor) -> Any:
        what = f"{call} {as_json(params)}"
        try:
            value = await control.call(call, params, visitor.caller)
        except trio.Cancelled:
            access.note_acted(visitor, f"{what}, cut off: it may be done or not")
            raise
        access.note_acted(visitor, what)
        return value

    def answers(endpoints: Mapping[str, Endpoint]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            endpoint = endpoints["GET" if request.method == "HEAD" else request.method]
            visitor = visitor_of(request)
            if endpoint.method != "GET":
                visitor.caller.check_changes()
            in_path = {name: unquote(quoted) for name, quoted in request.path_params.items()}
            params = _read_texts(in_path, endpoint.in_path, "path")
            params |= read_query(request.query_params.multi_items(), endpoint)
            if endpoint.method == "GET":
                value = await control.call(endpoint.call, params, visitor.caller)
            else:
                value = await act(endpoint.call, params | await _read_body(request, endpoint), visitor)
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
