"""From answers to JSON.

Law: compact, and plain ASCII, since names are the clients' to choose. A long list is written in steps: a thousand
entries take five milliseconds.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from stompbroker.control import Looking

__all__ = ["as_json", "as_json_in_steps"]

_SEPARATORS: Final = (",", ":")
#: Entries written between two looks at the time; a list of no more is written at once.
STEP_ENTRIES: Final = 20


def as_json(value: Any) -> str:
    return json.dumps(value, separators=_SEPARATORS)


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
