"""What a client of the API is answered with: JSON, and problems where something cannot be done.

Law: JSON is compact and plain ASCII, since names are the clients' to choose. A long list is written in steps: a
thousand entries take five milliseconds. A problem is as in RFC 9457: one JSON object with a title, the status, and a
sentence that says what is allowed.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, final

from starlette.responses import Response

if TYPE_CHECKING:
    from stompbroker.control import Looking

__all__ = ["PROBLEM_TYPE", "Problem", "as_json", "as_json_in_steps", "json_response", "problem_response"]

_SEPARATORS: Final = (",", ":")
#: Entries written between two looks at the time; a list of no more is written at once.
STEP_ENTRIES: Final = 20

PROBLEM_TYPE: Final = "application/problem+json"

_TITLES: Final = {
    400: "Bad request",
    401: "Not authorised",
    403: "Forbidden",
    404: "Not found",
    405: "Method not allowed",
    408: "Too slow",
    413: "Too large",
    415: "Unsupported media type",
    421: "Misdirected request",
    500: "A mistake of ours",
    503: "Not available",
}


def as_json(value: Any) -> str:
    return json.dumps(value, separators=_SEPARATORS)


def json_response(value: Any) -> Response:
    return Response(as_json(value), media_type="application/json")


async def as_json_in_steps(value: Any, looking: Looking) -> str:
    """The same, for an object with long lists in it."""
    if not isinstance(value, dict) or not any(_is_long(each) for each in value.values()):
        return as_json(value)
    fields: list[str] = []
    async with looking.at_once() as look:
        for name, field in value.items():
            pieces: list[str] = []
            for start in range(0, len(field), STEP_ENTRIES) if _is_long(field) else ():
                pieces.append(as_json(field[start : start + STEP_ENTRIES])[1:-1])
                if look.is_over:
                    await look.pause()
            fields.append(f"{as_json(name)}:[{','.join(pieces)}]" if pieces else f"{as_json(name)}:{as_json(field)}")
    return f"{{{','.join(fields)}}}"


def _is_long(field: Any) -> bool:
    return isinstance(field, list) and len(field) > STEP_ENTRIES


@final
class Problem(Exception):
    def __init__(self, status: int, detail: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = headers

    @property
    def response(self) -> Response:
        return problem_response(self.status, self.detail, self.headers)


def problem_response(status: int, detail: str, headers: dict[str, str] | None = None) -> Response:
    body = {"type": "about:blank", "title": _TITLES.get(status, "Problem"), "status": status, "detail": detail}
    # Plain ASCII: it may quote what the client sent, which may be no text at all, such as half of a surrogate pair.
    return Response(json.dumps(body), status, headers=headers, media_type=PROBLEM_TYPE)
