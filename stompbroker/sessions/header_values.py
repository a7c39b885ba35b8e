"""How the value of one header is read.

Law: one header in, one value out, or a PeerViolation that names the header, the value and what is allowed. Callers know
what a header means.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final, TypeVar

from stompbroker.errors import PeerViolation, shorten

#: Bytes of UTF-8 in a client id or a name: they are kept, indexed and typed by people.
MAX_NAME_BYTES: Final = 255
#: Characters of a wrong value that are repeated: what is allowed stands after it and must not be cut off.
_MAX_SHOWN: Final = 100
#: Leading zeros included; more digits than a number of 64 bits has are a mistake.
_WHOLE: Final = re.compile(r"(-?)[0-9]{1,19}", re.ASCII)
_DECIMAL: Final = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,17})?", re.ASCII)

AnyEnum = TypeVar("AnyEnum", bound=Enum)


def shown(value: str) -> str:
    """A client's text as it is repeated to it: quoted, and shortened if it is long."""
    return repr(shorten(value, _MAX_SHOWN))


def malformed(header: str, value: str, allowed: str) -> PeerViolation:
    """To be raised; `allowed` completes the sentence "it is not …"."""
    return PeerViolation(f"malformed header {header!r}", f"{shown(value)} is not {allowed}")


def truth(header: str, value: str) -> bool:
    """Any letter case: many clients write Python's `True`."""
    if value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise malformed(header, value, "true or false")


def choice(header: str, value: str, choices: type[AnyEnum]) -> AnyEnum:
    try:
        return choices(value)
    except ValueError:
        raise malformed(header, value, "one of " + ", ".join(each.value for each in choices)) from None


def whole_number(header: str, value: str, low: int, high: int, noun: str = "a whole number") -> int:
    match = _WHOLE.fullmatch(value)
    if match and (low < 0 or not match[1]) and low <= int(value) <= high:
        return int(value)
    raise malformed(header, value, f"{noun} from {low} to {high}")


def decimal_number(header: str, value: str, low: int, high: int) -> float:
    if _DECIMAL.fullmatch(value) and low <= float(value) <= high:
        return float(value)
    raise malformed(header, value, f"a decimal number from {low} to {high}")


def refuse_nul(header: str, value: str) -> None:
    """Not every database can store it in a text."""
    if "\0" in value:
        raise PeerViolation(f"malformed header {header!r}", "it holds a NUL, which no text may")


def check_name(header: str, value: str) -> str:
    """The value itself if it can be the name of something that is stored."""
    if not value:
        raise PeerViolation(f"empty header {header!r}", "a name needs at least one character")
    refuse_nul(header, value)
    size_bytes = len(value.encode())
    if size_bytes > MAX_NAME_BYTES:
        raise PeerViolation(f"header {header!r} too long", f"{MAX_NAME_BYTES} bytes are allowed; it has {size_bytes}")
    return value
