"""What the headers of a SUBSCRIBE ask for, in every broker's dialect.

Law: headers in, a value out, or a PeerViolation that names the header and what is allowed. Other brokers'
names for a thing are taken where they mean that very thing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from stompbroker.delivery import AckMode, Credit, Pattern, parse_pattern
from stompbroker.errors import InvalidDestination, PeerViolation
from stompbroker.sessions.delivery_headers import read_ordering, read_wishes
from stompbroker.sessions.durable_headers import DSUB_PREFIX, asks_for_durable, find_by_name, read_identity
from stompbroker.sessions.header_values import truth
from stompbroker.sessions.starting_points import read_start
from stompbroker.sessions.unsupported_headers import refuse_unsupported_in_subscribe

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stompbroker.delivery import DeliveryWishes, Identity, Subscription
    from stompbroker.sessions.session_context import SessionSettings
    from stompbroker.sessions.starting_points import Start

__all__ = ["SubscribeRequest", "read_pattern", "read_subscribe"]

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
