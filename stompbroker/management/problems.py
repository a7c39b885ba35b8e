"""What a client of the API is told when something cannot be done.

Law: RFC 9457: one JSON object with a title, the status, and a sentence that says what is allowed.
"""

from __future__ import annotations

import json
from typing import Final, final

from starlette.responses import Response

__all__ = ["PROBLEM_TYPE", "Problem", "problem_response"]

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
