"""How long a message lives, as its publisher says.

Law: headers, the time and the topic's default in, a value out, or a PeerViolation. Whether a message is over is found
out by whoever would deliver it.

    expires       milliseconds since 1970: the end itself (ActiveMQ, JMS)
    ttl           milliseconds from now
    expiration    the same (RabbitMQ)

0 means never in each of them, in spite of the default. Where a frame has several, the earliest end counts, and never is
later than any end; so is what lies beyond the year 2262.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from stompbroker.sessions.header_values import whole_number

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Lifetime", "read_lifetime"]

_ABSOLUTE: Final = "expires"
_RELATIVE: Final = ("ttl", "expiration")

_NS_PER_MS: Final = 1_000_000
#: 16 digits: the year 9999 and Java's dates far beyond it are some people's "never", not a mistake.
_MAX_MS: Final = 10**16 - 1
#: Instants are kept as nanoseconds since 1970 in 64 bits, which ends in the year 2262.
_LAST_NS: Final = 2**63 - 1


class Lifetime(NamedTuple):
    """Where there are two ends, the earlier one counts, message by message; none means for ever."""

    #: From the moment it is published.
    lifetime_ns: int | None = None
    #: Since 1970.
    expires_at_ns: int | None = None


def read_lifetime(headers: Mapping[str, str], now_ns: int, default_ms: int) -> Lifetime:
    """What a SEND says, or else `default_ms`, where 0 means for ever. `now_ns` is since 1970. Raises PeerViolation.

    An end that has passed already is told as it is.
    """
    absolute = [
        _NS_PER_MS * _milliseconds(header, headers[header], "since 1970")
        for header in (_ABSOLUTE,)
        if header in headers
    ]
    relative = [
        _NS_PER_MS * _milliseconds(header, headers[header], "from now") for header in _RELATIVE if header in headers
    ]
    if not absolute and not relative:
        return Lifetime(default_ms * _NS_PER_MS) if default_ms else Lifetime()
    return Lifetime(
        min((lifetime_ns for lifetime_ns in relative if lifetime_ns and now_ns + lifetime_ns < _LAST_NS), default=None),
        min((at_ns for at_ns in absolute if at_ns and at_ns < _LAST_NS), default=None),
    )


def _milliseconds(header: str, value: str, since: str) -> int:
    return whole_number(header, value, 0, _MAX_MS, f"a whole number of milliseconds {since} (0 means never)")
