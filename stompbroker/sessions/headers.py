"""How headers are read: values of all kinds, what a subscriber wants done with failed messages, what is not supported.

Law: headers in, a value out, or a PeerViolation that names the header and what is allowed. What a frame does not say
stays as the topic has it. ActiveMQ's names are accepted with and without its prefix, with ActiveMQ's meaning:

    maximumRedeliveries        not counting the first delivery; -1 means without end
    initialRedeliveryDelay     the wait after the first failure
    redeliveryDelay            the same, where initialRedeliveryDelay is 0 or missing
    maximumRedeliveryDelay     -1 means as long as is allowed
    backOffMultiplier          counts unless useExponentialBackOff is false, which means 1
    useExponentialBackOff      true alone leaves the topic's multiplier

Headers of other brokers that would deliver other messages than asked for, to others, or at another time, are refused.
Mere hints, such as `priority`, are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from stompbroker.delivery import QUEUE_PREFIX, DeliveryWishes, Refusal, WhenUsedUp
from stompbroker.errors import InvalidDestination, PeerViolation, shorten

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stompbroker.delivery import Pattern

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


def read_destination(text: str, parse: Callable[[str], Pattern], *, is_bare_queue: bool = False) -> Pattern:
    """`is_bare_queue`: what has no prefix is a queue. Raises PeerViolation."""
    try:
        found = parse(text)
        return parse(QUEUE_PREFIX + text) if is_bare_queue and not text.startswith("/") else found
    except InvalidDestination as error:
        raise PeerViolation("invalid destination", str(error)) from None


def refuse_nul(header: str, value: str) -> None:
    """Not every database can store it in a text."""
    if "\0" in value:
        raise PeerViolation(f"malformed header {header!r}", "it holds a NUL, which no text may")


def check_name(header: str, value: str) -> str:
    """The value itself if it can be the name of something that is stored."""
    if not value:
        raise PeerViolation(f"empty header {header!r}", "it needs at least one character; or leave it out")
    refuse_nul(header, value)
    size_bytes = len(value.encode())
    if size_bytes > MAX_NAME_BYTES:
        raise PeerViolation(f"header {header!r} too long", f"{MAX_NAME_BYTES} bytes are allowed; it has {size_bytes}")
    return value


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

#: Ours, that of ActiveMQ and JMS, and that of Artemis.
_GROUP_KEYS: Final = ("group-key", "JMSXGroupID", "message_group")

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


def read_group_key(headers: Mapping[str, str]) -> str | None:
    """What a SEND gives to consumers of a queue or group one after the other. Raises PeerViolation, also where headers
    disagree."""
    claims = [_Claim(name, headers[name], check_name(name, headers[name])) for name in _GROUP_KEYS if name in headers]
    for claim in claims:
        _agreed(claims[0], claim)
    return claims[0].value if claims else None


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


#: Whether a header with this value asks for what is not there.
_Asks = Callable[[str, str], bool]


class _Unsupported(NamedTuple):
    asks: _Asks
    #: What is not there, and what to do instead.
    reason: str


def _unless(*harmless: str) -> _Asks:
    return lambda _header, value: value.lower() not in harmless


_is_filled: Final = _unless("")

_DELAYED: Final = _Unsupported(
    _unless("", "0"), "messages cannot be delayed or repeated; send the message when it is due, without this header"
)
_ONE_OF_MANY: Final = _Unsupported(
    _unless("", "multicast"),
    "the destination says what it is: every subscriber of /topic/NAME gets every message, and each message of "
    "/queue/NAME goes to one; leave the header out",
)
_FILTERED: Final = _Unsupported(
    _is_filled,
    "messages cannot be filtered by their headers; subscribe to a topic or pattern that has what you want, or "
    "filter what you get, without this header",
)
_LIMITED: Final = _Unsupported(
    _is_filled, "a subscription cannot limit what is kept for it; let the publisher send ttl, and leave the header out"
)

UNSUPPORTED_IN_SEND: Final[Mapping[str, _Unsupported]] = {
    "AMQ_SCHEDULED_DELAY": _DELAYED,
    "AMQ_SCHEDULED_TIME": _DELAYED,
    "AMQ_SCHEDULED_PERIOD": _DELAYED,
    "AMQ_SCHEDULED_REPEAT": _DELAYED,
    "AMQ_SCHEDULED_CRON": _DELAYED,
    "x-delay": _DELAYED,
    "destination-type": _ONE_OF_MANY,
    "x-message-ttl": _Unsupported(_is_filled, "the life of a message is not given so; use ttl, in milliseconds"),
    "_AMQ_DUPL_ID": _Unsupported(
        _is_filled,
        "duplicates are not found by an id; number your messages with producer, producer-epoch and producer-seq",
    ),
}

UNSUPPORTED_IN_SUBSCRIBE: Final[Mapping[str, _Unsupported]] = {
    "selector": _FILTERED,
    "x-stream-filter": _FILTERED,
    "browser-end": _Unsupported(
        lambda header, value: not truth(header, value),
        "a browser ends with what is in the queue, and cannot follow it; leave the header out",
    ),
    "subscription-type": _ONE_OF_MANY,
    "destination-type": _ONE_OF_MANY,
    "activemq.retroactive": _Unsupported(truth, "to read what a topic retains, subscribe with from:earliest"),
    "from-seq": _Unsupported(_unless("-1"), "to read what a topic retains, subscribe with from:offset=NUMBER"),
    "include-seq": _Unsupported(
        _is_filled, "a number is not given under another name; messages of a topic that retains some carry offset"
    ),
    "x-message-ttl": _LIMITED,
    "x-max-length": _LIMITED,
    "x-max-length-bytes": _LIMITED,
    "x-expires": _Unsupported(
        _is_filled,
        "a subscription cannot say how long it is kept; leave the header out, or have the operator set idle_delete_s",
    ),
    "x-dead-letter-exchange": _Unsupported(
        _is_filled,
        "there are no exchanges; leave the header out, and find dead letters at /topic/DLQ.<topic> or "
        "/queue/DLQ.<queue>",
    ),
}


def refuse_unsupported(headers: Mapping[str, str], unsupported: Mapping[str, _Unsupported]) -> None:
    """Raises PeerViolation."""
    for header in unsupported.keys() & headers.keys():
        value = headers[header]
        if unsupported[header].asks(header, value):
            raise PeerViolation(f"unsupported header {header!r}", f"{shown(value)}: {unsupported[header].reason}")
