"""What a client of the API is answered with: JSON, and problems as in RFC 9457.

Law: JSON is compact and plain ASCII, since clients choose names, and a name may be half of a surrogate pair. A long
list is written in steps: a thousand entries take five milliseconds.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, final

from starlette.responses import Response

from stompbroker.control import ControlError, Forbidden, NotFound, Unavailable

if TYPE_CHECKING:
    from stompbroker.control import Looking

#: Entries written between two looks at the time; a list of no more is written at once.
STEP_ENTRIES: Final = 20
PROBLEM_TYPE: Final = "application/problem+json"


def as_json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


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
                await look.pause_if_over()
            fields.append(f"{as_json(name)}:[{','.join(pieces)}]" if pieces else f"{as_json(name)}:{as_json(field)}")
    return f"{{{','.join(fields)}}}"


def _is_long(field: Any) -> bool:
    return isinstance(field, list) and len(field) > STEP_ENTRIES


@final
@dataclass(eq=False)
class Problem(Exception):
    status: int
    detail: str
    headers: dict[str, str] | None = None

    @classmethod
    def of(cls, error: ControlError) -> Problem:
        return cls({NotFound: 404, Forbidden: 403, Unavailable: 503}.get(type(error), 400), str(error))

    @property
    def response(self) -> Response:
        title = HTTPStatus(self.status).phrase
        body = {"type": "about:blank", "title": title, "status": self.status, "detail": self.detail}
        return Response(as_json(body), self.status, headers=self.headers, media_type=PROBLEM_TYPE)
