"""What a SUBSCRIBE asks for and which durable subscription a frame means, in every broker's dialect.

Law: headers in, a value out, or a PeerViolation that names the header and what is allowed. Other brokers' names for a
thing are taken where they mean that very thing. A durable subscription is known by

    activemq.subscriptionName, durable-subscription-name,      its name within the CONNECT's client-id
    durable-subscriber-name
    x-queue-name                                               its name, without a client-id
    durable:true or persistent:true, with an id                its id within the client-id; without one, within the
                                                               destination
    destination:/dsub/ID                                       its name or id, wherever
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from stompbroker.delivery import AckMode, Credit, Identity, IdentityKind, Pattern, parse_pattern
from stompbroker.errors import InvalidDestination, PeerViolation
from stompbroker.sessions.delivery_headers import read_ordering, read_wishes
from stompbroker.sessions.header_values import check_name, truth
from stompbroker.sessions.starting_points import read_start
from stompbroker.sessions.unsupported_headers import refuse_unsupported_in_subscribe

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from stompbroker.delivery import DeliveryWishes, Subscription
    from stompbroker.sessions.session_context import SessionSettings
    from stompbroker.sessions.starting_points import Start

__all__ = [
    "DSUB_PREFIX",
    "SubscribeRequest",
    "asks_for_durable",
    "find_by_name",
    "is_named",
    "read_identity",
    "read_pattern",
    "read_subscribe",
]

#: What other brokers' clients call the name of a durable subscription.
_NAMES: Final = ("activemq.subscriptionName", "durable-subscription-name", "durable-subscriber-name")
_QUEUE_NAME: Final = "x-queue-name"
_DURABLE: Final = ("durable", "persistent")

DSUB_PREFIX: Final = "/dsub/"
#: There is no login yet.
_OWNER: Final = ""

#: What other brokers' clients call the number of messages they want to have in flight.
_MESSAGE_CREDIT: Final = ("prefetch-count", "activemq.prefetchSize")
_NO_LOCAL: Final = ("no-local", "activemq.noLocal")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeRequest:
    name: str | None
    destination: str
    pattern: Pattern
    ack_mode: AckMode
    is_no_local: bool
    credit: Credit
    #: What it is known by when its client is gone; None for a transient subscription.
    identity: Identity | None
    is_ordered: bool
    wishes: DeliveryWishes
    start: Start | None


def read_subscribe(
    headers: Mapping[str, str],
    settings: SessionSettings,
    durable: Mapping[Identity, Subscription],
    client_id: str | None,
) -> SubscribeRequest:
    """Raises PeerViolation. `durable`: the durable subscriptions there are, one of which may be meant by its name."""
    refuse_unsupported_in_subscribe(headers)
    destination = headers["destination"]
    if destination.startswith(DSUB_PREFIX):
        identity: Identity | None = find_by_name(destination.removeprefix(DSUB_PREFIX), durable, client_id)
        assert identity is not None
        pattern = durable[identity].pattern
    else:
        pattern = read_pattern(destination)
        identity = read_identity(headers, pattern, client_id) if asks_for_durable(headers) else None
    ack_mode = _ack_mode(headers.get("ack", "auto"))
    credit, is_ordered = _credit(headers, settings), read_ordering(headers)
    if is_ordered:
        _check_ordered(headers, ack_mode, is_durable=identity is not None)
        # One in flight, and nothing new while one waits to be sent again.
        credit = Credit(1, max_waiting=1)
    return SubscribeRequest(
        name=headers.get("id"),
        destination=destination,
        pattern=pattern,
        ack_mode=ack_mode,
        is_no_local=any(truth(name, headers[name]) for name in _NO_LOCAL if name in headers),
        credit=credit,
        identity=identity,
        is_ordered=is_ordered,
        wishes=read_wishes(headers),
        start=read_start(headers),
    )


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


def read_pattern(destination: str) -> Pattern:
    try:
        return parse_pattern(destination)
    except InvalidDestination as error:
        raise PeerViolation("invalid destination", str(error)) from None


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

    def credit(messages: int, max_bytes: int | None = None) -> Credit:
        return Credit(min(messages, bound), max_waiting=settings.max_waiting, max_bytes=max_bytes)

    for name in _MESSAGE_CREDIT:
        if name in headers:
            return credit(_whole_number(name, headers[name], least=0) or bound)
    if "credit" in headers:
        messages, comma, size_bytes = headers["credit"].partition(",")
        wanted = _whole_number("credit", messages, least=1)
        return credit(wanted, _whole_number("credit", size_bytes, least=1) if comma else None)
    if "consumer-window-size" in headers:
        window_bytes = _whole_number("consumer-window-size", headers["consumer-window-size"], least=-1)
        if window_bytes == 0:
            return credit(1)
        return credit(bound, window_bytes if window_bytes > 0 else None)
    return credit(settings.default_prefetch)


def _whole_number(name: str, value: str, *, least: int) -> int:
    digits = value.removeprefix("-") if least < 0 else value
    if digits.isascii() and digits.isdigit() and len(digits) <= 10 and int(value) >= least:
        return int(value)
    raise PeerViolation(f"malformed header {name!r}", f"{value!r} is not a whole number of at least {least}")


# Durable subscriptions -----------------------------------------------------------------------------------------------


def asks_for_durable(headers: Mapping[str, str]) -> bool:
    """Whether a SUBSCRIBE wants a durable subscription, or an UNSUBSCRIBE wants one deleted."""
    if any(name in headers for name in _NAMES):
        return True
    said = [truth(name, headers[name]) for name in _DURABLE if name in headers]
    # RabbitMQ's clients may ask for one that goes with its last consumer, which is a transient one.
    if truth("auto-delete", headers.get("auto-delete", "false")):
        return False
    return any(said) or (_QUEUE_NAME in headers and not said)


def is_named(headers: Mapping[str, str]) -> bool:
    """Whether the frame gives a name, not merely an id."""
    return any(name in headers for name in (*_NAMES, _QUEUE_NAME))


def read_identity(headers: Mapping[str, str], pattern: Pattern | None, client_id: str | None) -> Identity | None:
    """What the durable subscription is known by; None if only its name is known: the frame gives no destination.

    Raises PeerViolation if the frame does not name it at all.
    """
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
