"""What a SUBSCRIBE asks for and which durable subscription a frame means, in every broker's dialect.

Law: headers in, a value out, or a PeerViolation that names the header and what is allowed. Other brokers' headers are
accepted where they mean exactly the same. A durable subscription is known by

    activemq.subscriptionName, durable-subscription-name,      its name within the CONNECT's client-id
    durable-subscriber-name
    x-queue-name                                               its name, without a client-id
    durable:true or persistent:true, with an id                its id within the client-id; without one, within the
                                                               destination
    destination:/dsub/ID                                       its name or id, wherever

Where to begin is said by `from`, or by RabbitMQ's header with its words: first, last, next, timestamp=SECONDS, and its
units of age, of which Y is 365 days, M is 30, and D is our d.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Final, final

from stompbroker.clock import NANOSECONDS
from stompbroker.delivery import AckMode, Credit, Identity, IdentityKind, Pattern, Subscription, parse_pattern
from stompbroker.errors import PeerViolation
from stompbroker.sessions.headers import (
    UNSUPPORTED_IN_SUBSCRIBE,
    check_name,
    malformed,
    read_destination,
    read_ordering,
    read_wishes,
    refuse_unsupported,
    truth,
    whole_number,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from stompbroker.sessions.session_context import SessionSettings

#: Other brokers' headers for the name of a durable subscription.
_NAMES: Final = ("activemq.subscriptionName", "durable-subscription-name", "durable-subscriber-name")
_QUEUE_NAME: Final = "x-queue-name"
_DURABLE: Final = ("durable", "persistent")

DSUB_PREFIX: Final = "/dsub/"
#: There is no login yet.
_OWNER: Final = ""

#: Other brokers' headers for the number of messages in flight.
_MESSAGE_CREDIT: Final = ("prefetch-count", "activemq.prefetchSize")
#: Larger numbers of messages or bytes are mistakes.
_MAX_CREDIT: Final = 9_999_999_999
_NO_LOCAL: Final = ("no-local", "activemq.noLocal")

_STARTS: Final = ("from", "x-stream-offset")
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


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeRequest:
    #: As it will be if it is new, without its durability.
    subscription: Subscription
    credit: Credit
    #: None for a transient subscription.
    identity: Identity | None
    start: Start | None


def read_subscribe(
    headers: Mapping[str, str],
    settings: SessionSettings,
    durable: Mapping[Identity, Subscription],
    client_id: str | None,
) -> SubscribeRequest:
    """Raises PeerViolation. `durable`: the existing durable subscriptions; the frame may name one of them."""
    refuse_unsupported(headers, UNSUPPORTED_IN_SUBSCRIBE)
    destination = headers["destination"]
    identity: Identity | None
    if destination.startswith(DSUB_PREFIX):
        identity = find_by_name(destination.removeprefix(DSUB_PREFIX), durable, client_id)
        pattern = durable[identity].pattern
    else:
        pattern = read_destination(destination, parse_pattern)
        identity = read_identity(headers, pattern, client_id) if asks_for_durable(headers) else None
    ack_mode = _ack_mode(headers.get("ack", "auto"))
    credit, is_ordered = _credit(headers, settings), read_ordering(headers)
    if is_ordered:
        _check_ordered(headers, ack_mode, is_durable=identity is not None)
        # One in flight, and nothing new while one waits to be sent again.
        credit = Credit(1, max_waiting=1)
    subscription = Subscription(
        name=headers.get("id"),
        destination=destination,
        pattern=pattern,
        ack_mode=ack_mode,
        is_no_local=any(truth(name, headers[name]) for name in _NO_LOCAL if name in headers),
        is_ordered=is_ordered,
        wishes=read_wishes(headers),
    )
    return SubscribeRequest(subscription=subscription, credit=credit, identity=identity, start=read_start(headers))


def _check_ordered(headers: Mapping[str, str], ack_mode: AckMode, *, is_durable: bool) -> None:
    if not is_durable:
        raise PeerViolation(
            "ordering:strict needs a durable subscription", "its order must outlive its connection; add durable:true"
        )
    if ack_mode is AckMode.AUTO:
        raise PeerViolation("ordering:strict needs acknowledgements", "use ack:client or ack:client-individual")
    for name in (*_MESSAGE_CREDIT, "credit"):
        if headers.get(name, "1") != "1":
            raise PeerViolation(
                f"ordering:strict contradicts {name!r}",
                f"{name}:{headers[name]}, but in strict order one message is in flight; ask for 1, or leave it out",
            )


def _ack_mode(value: str) -> AckMode:
    try:
        return AckMode(value)
    except ValueError:
        allowed = ", ".join(mode.value for mode in AckMode)
        raise PeerViolation("unknown ack mode", f"ack:{value} is not one of {allowed}") from None


def _credit(headers: Mapping[str, str], settings: SessionSettings) -> Credit:
    """How much the client wants in flight. More than `max_prefetch` is taken as `max_prefetch`: clients write "as many
    as possible" as a large number, and RabbitMQ's 0 means the same."""
    bound = settings.max_prefetch
    messages, max_bytes = settings.default_prefetch, None
    if name := next((name for name in _MESSAGE_CREDIT if name in headers), None):
        messages = whole_number(name, headers[name], 0, _MAX_CREDIT) or bound
    elif "credit" in headers:
        count, comma, size_bytes = headers["credit"].partition(",")
        messages = whole_number("credit", count, 1, _MAX_CREDIT)
        max_bytes = whole_number("credit", size_bytes, 1, _MAX_CREDIT) if comma else None
    elif "consumer-window-size" in headers:
        window_bytes = whole_number("consumer-window-size", headers["consumer-window-size"], -1, _MAX_CREDIT)
        messages = bound if window_bytes else 1
        max_bytes = window_bytes if window_bytes > 0 else None
    return Credit(min(messages, bound), max_waiting=settings.max_waiting, max_bytes=max_bytes)


# Durable subscriptions -----------------------------------------------------------------------------------------------


def asks_for_durable(headers: Mapping[str, str]) -> bool:
    """Whether a SUBSCRIBE wants a durable subscription, or an UNSUBSCRIBE wants one deleted."""
    if any(name in headers for name in _NAMES):
        return True
    said = [truth(name, headers[name]) for name in _DURABLE if name in headers]
    # RabbitMQ's clients may ask for one that ends with its last consumer, which is a transient one.
    if truth("auto-delete", headers.get("auto-delete", "false")):
        return False
    return any(said) or (_QUEUE_NAME in headers and not said)


def is_named(headers: Mapping[str, str]) -> bool:
    """Whether the frame gives a name, not merely an id."""
    return any(name in headers for name in (*_NAMES, _QUEUE_NAME))


def read_identity(headers: Mapping[str, str], pattern: Pattern | None, client_id: str | None) -> Identity | None:
    """The durable subscription that a frame names; None if its id alone, without a destination, does not say which.
    Raises PeerViolation if the frame does not name one."""
    for header in _NAMES:
        if header in headers:
            if client_id is None:
                raise PeerViolation(
                    "durable subscription without client-id",
                    f"{header!r} names a subscription of one client: give CONNECT a 'client-id' header",
                )
            return Identity(_OWNER, IdentityKind.NAMED, client_id, check_name(header, headers[header]))
    if _QUEUE_NAME in headers:
        return Identity(_OWNER, IdentityKind.NAMED, "", check_name(_QUEUE_NAME, headers[_QUEUE_NAME]))
    if "id" not in headers:
        raise PeerViolation("durable subscription without id", "it is known by its 'id' header, which is missing")
    name = check_name("id", headers["id"])
    if client_id is not None:
        return Identity(_OWNER, IdentityKind.NAMED, client_id, name)
    if pattern is None:
        return None
    return Identity(_OWNER, IdentityKind.ADDRESSED, pattern.key, name)


def find_by_name(name: str, known: Iterable[Identity], client_id: str | None) -> Identity:
    """The durable subscription of that name: this client's own, or else the only one there is."""
    found = [identity for identity in known if identity.name == name]
    own = [identity for identity in found if identity.kind is IdentityKind.NAMED and identity.scope == client_id]
    if len(own) == 1 or len(found) == 1:
        return (own or found)[0]
    if not found:
        raise PeerViolation("unknown durable subscription", f"there is none with the id {name!r}")
    listed = ", ".join(sorted(identity.key for identity in found[:10]))
    raise PeerViolation("ambiguous durable subscription", f"the id {name!r} is that of {len(found)}: {listed}")


# Where to begin -------------------------------------------------------------------------------------------------------


def read_start(headers: Mapping[str, str]) -> Start | None:
    """Where a SUBSCRIBE wants to begin; None if it does not say. Raises PeerViolation."""
    said = {header: _read(header, headers[header]) for header in _STARTS if header in headers}
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
