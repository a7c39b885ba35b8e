"""Where in a topic a new subscription wants to begin.

Law: from headers to a value, and from that value to an offset of what the topic has retained; or a PeerViolation that
says what is allowed.

RabbitMQ's header and its words are taken, too: first, last and next, timestamp=SECONDS, and its units of age, of which
Y is 365 days, M is 30, and D is our d.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Final, final

from stompbroker.delivery import Replay
from stompbroker.errors import PeerViolation
from stompbroker.ids import Offset
from stompbroker.sessions.header_values import malformed, whole_number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stompbroker.delivery import Pattern
    from stompbroker.sessions.session_context import SessionContext

__all__ = ["Start", "StartKind", "find_start", "read_start"]

_HEADERS: Final = ("from", "x-stream-offset")
_NS_PER_S: Final = 1_000_000_000
_NS_PER_US: Final = 1_000
_DAY_S: Final = 86_400
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: Offsets, and instants as nanoseconds since 1970, are kept in 64 bits. A time outside of them is taken as the nearest
#: one inside: there are no messages beyond either end.
_MAX: Final = 2**63 - 1

_ALLOWED: Final = (
    "a place to start from: earliest; latest; an offset (offset=1200); a time in ISO 8601, in UTC unless it says "
    "otherwise (2026-03-31T08:00:00Z, 2026-03-31T10:00:00+02:00); or an age in s, m, h or d (90s, 15m, 1h, 7d)"
)
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": _DAY_S, "D": _DAY_S, "M": 30 * _DAY_S, "Y": 365 * _DAY_S}
_AGE: Final = re.compile(r"([0-9]{1,9})([smhdDMY])", re.ASCII)
#: Of what ISO 8601 has, the forms that cannot be taken for a number.
_TIME: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"(?:[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]{1,9})?)?(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?)?)?",
    re.ASCII,
)


@final
class StartKind(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    TIME = "time"
    AGE = "age"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where to begin; of the numbers, only that of its kind means something."""

    kind: StartKind
    offset: int = 0
    #: Since 1970.
    at_ns: int = 0
    #: Before the moment of subscribing.
    age_ns: int = 0


_WORDS: Final = {
    "earliest": Start(kind=StartKind.EARLIEST),
    "latest": Start(kind=StartKind.LATEST),
    "first": Start(kind=StartKind.EARLIEST),
    "last": Start(kind=StartKind.LATEST),
    "next": Start(kind=StartKind.LATEST),
}


def read_start(headers: Mapping[str, str]) -> Start | None:
    """Where a SUBSCRIBE wants to begin; None if it does not say. Raises PeerViolation."""
    said = {header: _read(header, headers[header]) for header in _HEADERS if header in headers}
    if len(set(said.values())) > 1:
        both = " and ".join(f"{header}:{headers[header]}" for header in said)
        raise PeerViolation("contradicting headers", f"{both} are two places to start from: give one of them")
    return next(iter(said.values()), None)


def _read(header: str, value: str) -> Start:
    if value in _WORDS:
        return _WORDS[value]
    key, _, number = value.partition("=")
    try:
        if key == "offset":
            return Start(kind=StartKind.OFFSET, offset=whole_number(header, number, 0, _MAX))
        if key == "timestamp":
            return _at(whole_number(header, number, 0, _MAX) * _NS_PER_S)
        if age := _AGE.fullmatch(value):
            return Start(kind=StartKind.AGE, age_ns=min(int(age[1]) * _SECONDS[age[2]] * _NS_PER_S, _MAX))
        if _TIME.fullmatch(value):
            return _at(_since_1970_ns(datetime.fromisoformat(value)))
    except (PeerViolation, ValueError):
        # Whatever is wrong with it, it is told with all that would have been right.
        pass
    raise malformed(header, value, _ALLOWED)


def _at(at_ns: int) -> Start:
    return Start(kind=StartKind.TIME, at_ns=max(0, min(at_ns, _MAX)))


def _since_1970_ns(at: datetime) -> int:
    in_utc = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return (in_utc - _EPOCH) // timedelta(microseconds=1) * _NS_PER_US


def find_start(start: Start | None, destination: str, pattern: Pattern, context: SessionContext) -> Replay | None:
    """The offset that `start` comes to; None if the subscription begins with what comes. Raises PeerViolation.

    It is found at once: a time is looked up among the marks of what is retained, and what lies between the mark and the
    time is stepped over when it is read.
    """
    if start is None or start.kind is StartKind.LATEST:
        return None
    if not pattern.is_exact:
        raise PeerViolation(
            "replay needs one topic",
            f"{destination!r} is a pattern; only of one topic it can be said where to begin (`from`); leave that out",
        )
    now_ns = context.clock.now_ns()
    topic = context.registry.topic(pattern, now_ns)
    if topic.retained is None:
        raise PeerViolation(
            "topic retains nothing",
            f"{topic.name!r} keeps no messages for later subscribers, so there is nothing to begin `from`: leave that "
            "out, or have the operator set retain_s, retain_bytes or retain_messages for the topic",
        )
    kept_from = topic.collected_up_to
    match start.kind:
        case StartKind.EARLIEST:
            return Replay(kept_from)
        case StartKind.OFFSET:
            if start.offset > topic.log.end_offset:
                raise PeerViolation(
                    "offset not reached yet",
                    f"the next message of {topic.name!r} gets offset {topic.log.end_offset}, not {start.offset}; "
                    "begin there at the latest",
                )
            return Replay(Offset(max(start.offset, kept_from)), asked_for=Offset(start.offset))
        case _:
            since_ns = start.at_ns if start.kind is StartKind.TIME else now_ns - start.age_ns
            return Replay(max(kept_from, topic.retained.offset_before(since_ns)), since_ns=since_ns)
