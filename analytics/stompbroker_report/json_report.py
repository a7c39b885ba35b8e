"""`report.json`: a report's content as text, and back.

Law: the dataclasses of `content.py` are the format; nothing is renamed, rounded or left out. The same content gives the
same text, byte for byte: names are sorted, dates and times are ISO 8601, an enum is its value.
"""

from __future__ import annotations

import json
import types
from dataclasses import fields, is_dataclass
from datetime import date, datetime
from enum import Enum
from typing import Any, Union, get_args, get_origin, get_type_hints

from stompbroker_report.content import ReportContent

__all__ = ["from_json", "to_json"]


def to_json(content: ReportContent) -> str:
    """Ends in a line break, as a text file does."""
    return json.dumps(_plain(content), ensure_ascii=False, allow_nan=False, indent=1, sort_keys=True) + "\n"


def from_json(text: str) -> ReportContent:
    """What `to_json` was given.

    Raises:
        ValueError: the text is not a report, or one of another release.
    """
    try:
        content = _value(json.loads(text), ReportContent)
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"not a report of this release: {error!r}") from error
    assert isinstance(content, ReportContent)
    return content


def _plain(value: object) -> object:
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, date):  # a datetime is one too
        return value.isoformat()
    return value


def _value(plain: Any, kind: Any, row: Any = None) -> object:
    """`kind` is an annotation of `content.py`; `row` is what its type variable stands for."""
    if plain is None or kind in (int, float, str, bool):
        return float(plain) if kind is float and plain is not None else plain
    if kind in (date, datetime):
        return kind.fromisoformat(plain)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _value(plain, next(argument for argument in arguments if argument is not types.NoneType), row)
    if origin is tuple:
        return tuple(
            _value(item, row if arguments[0].__class__.__name__ == "TypeVar" else arguments[0], row) for item in plain
        )
    if origin is not None:
        return _record(plain, origin, arguments[0])
    if issubclass(kind, Enum):
        return kind(plain)
    return _record(plain, kind, None)


def _record(plain: dict[str, Any], kind: Any, row: Any) -> object:
    hints = get_type_hints(kind)
    return kind(**{field.name: _value(plain[field.name], hints[field.name], row) for field in fields(kind)})
