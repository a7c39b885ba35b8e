"""The kinds of values a setting can have.

Law: a kind knows how its values are written by a person, how they are read, how they are shown, and the words for
it in a message. The range belongs to the setting, and is enforced and explained from the same constraint.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, final

from pydantic import AfterValidator, BeforeValidator, Field

from stompbroker.config.places import read_database, read_lake, without_password

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic.fields import FieldInfo

__all__ = [
    "DAY_MS",
    "DAY_S",
    "DECADE_S",
    "GIB",
    "HOUR_MS",
    "HOUR_S",
    "KIB",
    "MIB",
    "MIN_TOKEN",
    "TIB",
    "AckDeadline",
    "ByteSize",
    "Count",
    "Database",
    "DirectoryPath",
    "Factor",
    "Kind",
    "LakePlace",
    "Milliseconds",
    "Seconds",
    "ServerHeader",
    "Token",
    "YesOrNo",
    "allowed",
    "bytes_as_text",
    "concealed",
    "show",
]

KIB, MIB, GIB, TIB = 1024, 1024**2, 1024**3, 1024**4
_BYTE_UNITS = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "kib": KIB,
    "mib": MIB,
    "gib": GIB,
    "tb": 10**12,
    "tib": TIB,
}
_BYTE_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)\s*([kmgt]i?b|b)?", re.IGNORECASE | re.ASCII)

#: What upper bounds are made of: waits much longer than these are typing mistakes, not wishes.
HOUR_S, DAY_S = 3_600, 86_400
HOUR_MS, DAY_MS = HOUR_S * 1_000, DAY_S * 1_000
DECADE_S = 3_650 * DAY_S

#: A shorter deadline would be over before a message has crossed a slow network and its ACK has come back.
MIN_ACK_DEADLINE_MS = 100


@final
@dataclass(frozen=True, slots=True)
class Kind:
    """Marks the type of a setting with the words for it."""

    noun: str
    is_bytes: bool = False
    #: For a value that is or holds a secret: what may be shown of it, right or wrong.
    conceal: Callable[[object], object] | None = None


def _refuse_truth(value: object) -> object:
    """TOML's `true` is the number 1 to Python, but not to the person who wrote it."""
    if isinstance(value, bool):
        raise ValueError("true and false are no numbers")
    return value


def _read_truth(value: object) -> object:
    """A file has true and false; an environment variable or a flag can only have the words."""
    if isinstance(value, bool):
        return value
    if value not in ("true", "false"):
        raise ValueError("neither true nor false")
    return value == "true"


def _refuse_short_deadline(value: int) -> int:
    if 0 < value < MIN_ACK_DEADLINE_MS:
        raise ValueError("too short to be kept")
    return value


def _read_byte_size(value: object) -> object:
    """Bytes from a number, or from a text such as "512 MiB" (binary) or "10 MB" (decimal)."""
    if not isinstance(value, str):
        return _refuse_truth(value)
    match = _BYTE_SIZE.fullmatch(value.strip())
    if match is None:
        raise ValueError("not a size")
    return round(float(match[1]) * _BYTE_UNITS[(match[2] or "b").lower()])


def _read_path(value: object) -> object:
    if value == "":
        raise ValueError("an empty path is no directory")
    return Path(value).expanduser() if isinstance(value, str) else value


Count = Annotated[int, BeforeValidator(_refuse_truth), Kind("a whole number")]
Milliseconds = Annotated[int, BeforeValidator(_refuse_truth), Kind("a whole number of milliseconds")]
AckDeadline = Annotated[
    int,
    BeforeValidator(_refuse_truth),
    AfterValidator(_refuse_short_deadline),
    Kind(f"0 for none, or at least {MIN_ACK_DEADLINE_MS}: a whole number of milliseconds"),
]
Seconds = Annotated[float, BeforeValidator(_refuse_truth), Field(allow_inf_nan=False), Kind("a number of seconds")]
Factor = Annotated[float, BeforeValidator(_refuse_truth), Field(allow_inf_nan=False), Kind("a number")]
YesOrNo = Annotated[bool, BeforeValidator(_read_truth), Kind("true or false")]
ByteSize = Annotated[
    int,
    BeforeValidator(_read_byte_size),
    Kind('a number of bytes or a size such as "64 KiB" or "10 MB"', is_bytes=True),
]
DirectoryPath = Annotated[Path, BeforeValidator(_read_path), Kind("a directory")]
Database = Annotated[
    str,
    AfterValidator(read_database),
    Kind(
        '"" for the SQLite file in the data directory, "memory" for nothing that outlives the broker, or a URL '
        "postgresql+psycopg://USER:PASSWORD@HOST:PORT/DATABASE (in a password, %40 %2F %3F %23 stand for @ / ? #)",
        conceal=without_password,
    ),
]
LakePlace = Annotated[
    str,
    AfterValidator(read_lake),
    Kind(
        '"" for the directory lake in the data directory, the path of another one, or a URL: file:///DIRECTORY or '
        "s3://BUCKET/PATH, without keys, which come from the environment"
    ),
]


def _read_token(value: str) -> str:
    if value and (len(value) < MIN_TOKEN or not value.isascii() or not value.isprintable() or " " in value):
        raise ValueError("not a token")
    return value


#: Shorter ones can be guessed.
MIN_TOKEN = 16
Token = Annotated[
    str,
    AfterValidator(_read_token),
    Kind(
        f"at least {MIN_TOKEN} printable ASCII characters without blanks", conceal=lambda value: "***" if value else ""
    ),
]


def _read_server_header(value: str) -> str:
    """CONNECTED is not escaped: a line end would begin another header."""
    if not value.isprintable() or len(value) > MAX_SERVER_HEADER:
        raise ValueError("not one line of printable text")
    return value


#: Longer than any broker's, and short beside everything else in CONNECTED.
MAX_SERVER_HEADER = 255
ServerHeader = Annotated[
    str,
    AfterValidator(_read_server_header),
    Kind(f'up to {MAX_SERVER_HEADER} printable characters, such as "RabbitMQ/3.13.0", or "" for no such header'),
]


def bytes_as_text(size: int) -> str:
    """A size as it is written in settings: in the largest binary unit, to one decimal where it is not whole."""
    for unit, factor in (("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if size >= factor:
            return f"{size // factor} {unit}" if size % factor == 0 else f"{size / factor:.1f} {unit}"
    return f"{size} B"


def show(value: object, field: FieldInfo | None = None) -> str:
    """A value as it is written in a settings file, but for passwords."""
    value = concealed(value, field)
    if isinstance(value, int) and field is not None and (kind := _kind(field)) and kind.is_bytes:
        return bytes_as_text(value)
    if isinstance(value, Enum):
        return show(value.value)
    if isinstance(value, str | Path):
        return json.dumps(str(value), ensure_ascii=False)
    return str(value).lower() if isinstance(value, bool) else str(value)


def concealed(value: object, field: FieldInfo | None) -> object:
    """The value itself, or what may be shown of it."""
    kind = _kind(field) if field is not None else None
    return kind.conceal(value) if kind and kind.conceal else value


def allowed(field: FieldInfo) -> str:
    """The words for what a setting may be, taken from the very constraints that are enforced."""
    if isinstance(field.annotation, type) and issubclass(field.annotation, Enum):
        return "one of " + ", ".join(str(member.value) for member in field.annotation)
    kind = _kind(field)
    noun = kind.noun if kind else ""
    low = next((item.ge for item in field.metadata if hasattr(item, "ge")), None)
    high = next((item.le for item in field.metadata if hasattr(item, "le")), None)
    return noun if low is None or high is None else f"{noun} from {show(low, field)} to {show(high, field)}"


def _kind(field: FieldInfo) -> Kind | None:
    return next((item for item in field.metadata if isinstance(item, Kind)), None)
