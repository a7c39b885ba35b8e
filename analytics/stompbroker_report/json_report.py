"""`report.json`: a report's content as text, and back.

The dataclasses of `content.py` are the format; nothing is renamed, rounded or left out. The same content gives the same
bytes: keys are sorted, dates and times are ISO 8601, an enum is its value.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import Enum
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from stompbroker_report.content import ReportContent

if TYPE_CHECKING:
    from datetime import date


def to_json(content: ReportContent) -> str:
    """Ends in a line break, as a text file does."""
    plain = asdict(content)
    return json.dumps(plain, default=_text, ensure_ascii=False, allow_nan=False, indent=1, sort_keys=True) + "\n"


def from_json(text: str) -> ReportContent:
    """What `to_json` was given.

    Raises:
        ValueError: the text is not a report, or one of another release.
    """
    return TypeAdapter(ReportContent).validate_json(text)


def _text(value: Enum | date) -> str:
    return str(value.value) if isinstance(value, Enum) else value.isoformat()
