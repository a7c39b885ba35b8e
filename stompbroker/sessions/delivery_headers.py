"""How a subscriber wants failed messages to be retried, and what it says when it refuses one.

Law: headers in, a value out, or a PeerViolation that names the header and what is allowed. What a frame does not say
stays as the topic has it. ActiveMQ's names are accepted with and without its prefix, with ActiveMQ's meaning:

    maximumRedeliveries        not counting the first delivery; -1 means without end
    initialRedeliveryDelay     the wait after the first failure
    redeliveryDelay            the same, where initialRedeliveryDelay is 0 or missing
    maximumRedeliveryDelay     -1 means as long as is allowed
    backOffMultiplier          counts unless useExponentialBackOff is false, which means 1
    useExponentialBackOff      true alone leaves the topic's multiplier
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from stompbroker.delivery import DeliveryWishes, Refusal, WhenUsedUp
from stompbroker.errors import PeerViolation, shorten
from stompbroker.sessions.header_values import choice, decimal_number, malformed, refuse_nul, truth, whole_number

if TYPE_CHECKING:
    from collections.abc import Mapping

_NS_PER_MS: Final = 1_000_000
_DAY_MS: Final = 86_400_000
#: A longer wait is a typing mistake.
_MAX_FIRST_DELAY_MS: Final = _DAY_MS
_MAX_DELAY_MS: Final = 7 * _DAY_MS
_MAX_ATTEMPTS: Final = 1_000_000
#: A shorter deadline would pass before a message has crossed a slow network and its ACK has come back.
_MIN_DEADLINE_MS, _MAX_DEADLINE_MS = 100, _DAY_MS
#: Characters of a reason that are kept with the message.
MAX_REASON: Final = 250

_PREFIX: Final = "activemq."
_MILLISECONDS: Final = "a whole number of milliseconds"

#: From the header and its value.
_Reader = Callable[[str, str], Any]


class _Claim(NamedTuple):
    """The value that a header gives to a field of the policy."""

    header: str
    text: str
    value: Any

    def __str__(self) -> str:
        return f"{self.header}:{self.text}"


def read_wishes(headers: Mapping[str, str]) -> DeliveryWishes:
    """What a SUBSCRIBE wants otherwise than the topic has it. Raises PeerViolation, also where headers disagree."""
    activemq = _read_activemq(headers)
    claims = {
        field: _agreed(_claim(headers, header, read), activemq.get(field)) for field, (header, read) in _OWN.items()
    }
    first, longest = claims["first_delay_ms"], claims["max_delay_ms"]
    if first is not None and longest is not None and first.value > longest.value:
        raise PeerViolation(
            "contradicting headers",
            f"{first} is more than {longest}, so no wait could be as long as that: lower the one or raise the other",
        )
    return DeliveryWishes({field: claim.value for field, claim in claims.items() if claim is not None})


def read_refusal(headers: Mapping[str, str], now_ns: int) -> Refusal:
    """What a NACK says that came at `now_ns`. Raises PeerViolation."""
    delay_ns = None
    if "delay" in headers:
        delay_ns = whole_number("delay", headers["delay"], 0, _MAX_DELAY_MS, _MILLISECONDS) * _NS_PER_MS
    reason = headers.get("reason", "")
    refuse_nul("reason", reason)
    is_final = not truth("requeue", headers.get("requeue", "true"))
    return Refusal(now_ns, shorten(reason, MAX_REASON), delay_ns, is_final)


def read_ordering(headers: Mapping[str, str]) -> bool:
    """Whether a SUBSCRIBE wants what follows a failed message to wait for it. Raises PeerViolation."""
    value = headers.get("ordering", "none")
    if value not in ("strict", "none"):
        raise malformed("ordering", value, "one of strict, none")
    return value == "strict"


def _read_deadline(header: str, value: str) -> int:
    if value == "0":
        return 0
    return whole_number(header, value, _MIN_DEADLINE_MS, _MAX_DEADLINE_MS, f"0 for none, nor {_MILLISECONDS}")


_first_delay: Final = partial(whole_number, low=0, high=_MAX_FIRST_DELAY_MS, noun=_MILLISECONDS)
_multiplier: Final = partial(decimal_number, low=1, high=100)

#: The header of each field of a `DeliveryPolicy`, and how it is read.
_OWN: Final[Mapping[str, tuple[str, _Reader]]] = {
    "first_delay_ms": ("redelivery-delay", _first_delay),
    "multiplier": ("redelivery-multiplier", _multiplier),
    "max_delay_ms": ("redelivery-max-delay", partial(whole_number, low=0, high=_MAX_DELAY_MS, noun=_MILLISECONDS)),
    "jitter": ("redelivery-jitter", partial(decimal_number, low=0, high=1)),
    "max_attempts": ("max-attempts", partial(whole_number, low=0, high=_MAX_ATTEMPTS)),
    "ack_deadline_ms": ("ack-deadline", _read_deadline),
    "when_used_up": ("when-used-up", partial(choice, choices=WhenUsedUp)),
}

_ACTIVEMQ: Final[Mapping[str, _Reader]] = {
    "maximumRedeliveries": partial(whole_number, low=-1, high=_MAX_ATTEMPTS - 1),
    "initialRedeliveryDelay": _first_delay,
    "redeliveryDelay": _first_delay,
    "backOffMultiplier": _multiplier,
    "useExponentialBackOff": truth,
    "maximumRedeliveryDelay": partial(whole_number, low=-1, high=_MAX_DELAY_MS, noun=_MILLISECONDS),
}


def _read_activemq(headers: Mapping[str, str]) -> dict[str, _Claim | None]:
    """By field, what ActiveMQ's headers say."""
    said = {
        name: _agreed(_claim(headers, _PREFIX + name, read), _claim(headers, name, read))
        for name, read in _ACTIVEMQ.items()
    }
    initial, delay = said["initialRedeliveryDelay"], said["redeliveryDelay"]
    multiplier, back_off = said["backOffMultiplier"], said["useExponentialBackOff"]
    if back_off is not None and not back_off.value:
        multiplier = back_off._replace(value=1.0)
    longest, redeliveries = said["maximumRedeliveryDelay"], said["maximumRedeliveries"]
    if longest is not None and longest.value < 0:
        longest = longest._replace(value=_MAX_DELAY_MS)
    return {
        "first_delay_ms": initial if initial is not None and initial.value else delay or initial,
        "multiplier": multiplier,
        "max_delay_ms": longest,
        # The first delivery is not a redelivery. So -1, without end, becomes our 0, which means the same.
        "max_attempts": redeliveries and redeliveries._replace(value=redeliveries.value + 1),
    }


def _claim(headers: Mapping[str, str], header: str, read: _Reader) -> _Claim | None:
    return _Claim(header, headers[header], read(header, headers[header])) if header in headers else None


def _agreed(one: _Claim | None, other: _Claim | None) -> _Claim | None:
    """The one that is there. If both are, they must give the same value."""
    if one is not None and other is not None and one.value != other.value:
        raise PeerViolation(
            "contradicting headers",
            f"{one} and {other} are about the same thing and mean different values of it, "
            f"{one.value} and {other.value}: give one of them, or both alike",
        )
    return one or other
