"""Where a new subscription begins to read: what its SUBSCRIBE says, and which offset that is.

Law: headers in, a place out, or a PeerViolation that says what is allowed. Where to begin is said by `from`, or by
RabbitMQ's header with its words: first, last, next, timestamp=SECONDS, and its units of age, of which Y is 365 days, M
is 30, and D is our d.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Final, final

from stompbroker.clock import NANOSECONDS
from stompbroker.delivery import Replay
from stompbroker.errors import PeerViolation
from stompbroker.ids import Offset
from stompbroker.sessions.headers import malformed, whole_number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stompbroker.delivery import Subscription
    from stompbroker.sessions.session_context import SessionContext

#: The headers that say it.
STARTS: Final = ("from", "x-stream-offset")
_DAY_S: Final = 86_400
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: Offsets, and times in nanoseconds since 1970, are kept in 64 bits. A time outside is taken as the nearest one inside:
#: there are no messages beyond either end.
_MAX: Final = 2**63 - 1

_ALLOWED: Final = (
    "a place to start from: earliest; latest; an offset (offset=1200); a time in ISO 8601, in UTC unless it says "
    "otherwise (2026-03-31T08:00:00Z, 2026-03-31T10:00:00+02:00); or an age in s, m, h or d (90s, 15m, 1h, 7d)"
)
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": _DAY_S, "D": _DAY_S, "M": 30 * _DAY_S, "Y": 365 * _DAY_S}
_AGE: Final = re.compile(r"([0-9]{1,9})([smhdDMY])", re.ASCII)
#: The forms of ISO 8601 that cannot be mistaken for a number.
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
@dataclass(frozen=True, slots=True)
class Start:
    kind: StartKind
    #: An offset; a time in nanoseconds since 1970; or an age in nanoseconds.
    number: int = 0

    def since_ns(self, now_ns: int) -> int:
        """The time that a TIME or an AGE means."""
        return self.number if self.kind is StartKind.TIME else now_ns - self.number


_EARLIEST, _LATEST = Start(StartKind.EARLIEST), Start(StartKind.LATEST)
_WORDS: Final = {"earliest": _EARLIEST, "first": _EARLIEST, "latest": _LATEST, "last": _LATEST, "next": _LATEST}


def read_start(headers: Mapping[str, str]) -> Start | None:
    """Where a SUBSCRIBE wants to begin; None if it does not say. Raises PeerViolation."""
    said = {header: _read(header, headers[header]) for header in STARTS if header in headers}
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
            return Start(StartKind.OFFSET, whole_number(header, number, 0, _MAX))
        if key == "timestamp":
            return _at(whole_number(header, number, 0, _MAX) * NANOSECONDS)
        if age := _AGE.fullmatch(value):
            return Start(StartKind.AGE, min(int(age[1]) * _SECONDS[age[2]] * NANOSECONDS, _MAX))
        if _TIME.fullmatch(value):
            at = datetime.fromisoformat(value)
            return _at(((at if at.tzinfo else at.replace(tzinfo=UTC)) - _EPOCH) // timedelta(microseconds=1) * 1000)
    except (PeerViolation, ValueError):
        pass  # whatever is wrong, the client is told all that is allowed
    raise malformed(header, value, _ALLOWED)


def _at(at_ns: int) -> Start:
    return Start(StartKind.TIME, max(0, min(at_ns, _MAX)))


def find_start(start: Start | None, subscription: Subscription, context: SessionContext) -> Replay | None:
    """The offset to begin at; None if the subscription begins with the next message. Raises PeerViolation.

    A time is looked up among the marks of what is retained; messages between the mark and the time are skipped when
    they are read.
    """
    pattern = subscription.pattern
    if start is None or start.kind is StartKind.LATEST:
        return None
    if not pattern.is_exact:
        raise PeerViolation(
            "replay needs one topic",
            f"{subscription.destination!r} is a pattern; where to begin (`from`) can be said for one topic "
            "only; leave that out",
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
            if start.number > topic.log.end_offset:
                raise PeerViolation(
                    "offset not reached yet",
                    f"the next message of {topic.name!r} gets offset {topic.log.end_offset}, not {start.number}; "
                    "begin there at the latest",
                )
            return Replay(Offset(max(start.number, kept_from)), asked_for=Offset(start.number))
        case _:
            since_ns = start.since_ns(now_ns)
            return Replay(max(kept_from, topic.retained.offset_before(since_ns)), since_ns=since_ns)
