"""What a SUBSCRIBE asks for and which durable subscription a frame means, in every broker's dialect.

Law: headers in, a value out, or a PeerViolation that names the header and what is allowed. Other brokers' headers are
accepted where they mean exactly the same. A durable subscription is known by

    activemq.subscriptionName, durable-subscription-name,      its name within the CONNECT's client-id
    durable-subscriber-name
    x-queue-name                                               its name, without a client-id
    durable:true or persistent:true, with an id                its id within the client-id; without one, within the
                                                               destination
    destination:/dsub/ID                                       its name or id, wherever

A group, whose members share its messages, is known by `group` within the destination; a durable name with `shared:true`
is one, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from stompbroker.access import Right
from stompbroker.delivery import (
    AckMode,
    Credit,
    DestinationKind,
    Identity,
    IdentityKind,
    Pattern,
    Subscription,
    WhenUsedUp,
    parse_pattern,
    queue_identity,
)
from stompbroker.errors import PeerViolation
from stompbroker.sessions.bridging import is_for_bridge
from stompbroker.sessions.headers import (
    UNSUPPORTED_IN_SUBSCRIBE,
    check_name,
    read_destination,
    read_ordering,
    read_wishes,
    refuse_unsupported,
    truth,
    whole_number,
)
from stompbroker.sessions.starting_points import STARTS, Start, read_start

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stompbroker.sessions.client import Client
    from stompbroker.sessions.session_context import SessionSettings

#: Other brokers' headers for the name of a durable subscription.
_NAMES: Final = ("activemq.subscriptionName", "durable-subscription-name", "durable-subscriber-name")
_QUEUE_NAME: Final = "x-queue-name"
_DURABLE: Final = ("durable", "persistent")

DSUB_PREFIX: Final = "/dsub/"

#: Other brokers' headers for the number of messages in flight.
_MESSAGE_CREDIT: Final = ("prefetch-count", "activemq.prefetchSize")
#: Larger numbers of messages or bytes are mistakes.
_MAX_CREDIT: Final = 9_999_999_999
_NO_LOCAL: Final = ("no-local", "activemq.noLocal")
_GROUP: Final = "group"
#: Headers for one active member of a group at a time.
_EXCLUSIVE: Final = ("exclusive", "activemq.exclusive", "single-active", "x-single-active-consumer")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeRequest:
    #: As it will be if it is new, without its durability.
    subscription: Subscription
    credit: Credit
    #: None for a transient subscription that is not shared.
    identity: Identity | None
    #: Whether a group ends with its last member.
    is_transient: bool
    start: Start | None
    #: Whether a bridge wants to be told where messages are in the store.
    is_of_bridge: bool = False


def read_subscribe(
    headers: Mapping[str, str],
    settings: SessionSettings,
    durable: Mapping[Identity, Subscription],
    client: Client,
    temporary: Pattern | None = None,
    is_browser: bool = False,
) -> SubscribeRequest:
    """Raises PeerViolation. `durable`: the existing durable subscriptions; the frame may name one of them. `temporary`:
    what its destination means if that is a temporary one of the client's own. A browser does not join its queue."""
    refuse_unsupported(headers, UNSUPPORTED_IN_SUBSCRIBE)
    pattern, identity = _read_place(headers, settings, durable, client, temporary, is_browser=is_browser)
    is_transient = _GROUP in headers and truth("auto-delete", headers.get("auto-delete", "false"))
    is_shared = _is_shared(headers, identity)
    is_exclusive = _is_exclusive(headers, is_shared=is_shared)
    is_no_local = any(truth(name, headers[name]) for name in _NO_LOCAL if name in headers)
    if is_no_local and is_shared:
        raise PeerViolation(
            "no-local contradicts sharing", "the members of a group get each other's messages; leave no-local out"
        )
    ack_mode = _ack_mode(headers.get("ack", "auto"))
    credit, is_ordered = _credit(headers, settings, is_shared=is_shared), read_ordering(headers)
    if is_ordered:
        is_durable = identity is not None and not is_transient
        _check_ordered(headers, ack_mode, is_durable=is_durable, is_shared=is_shared)
        # One in flight, and nothing new while one waits to be sent again.
        credit = Credit(1, max_waiting=1)
    subscription = Subscription(
        name=headers.get("id"),
        destination=headers["destination"],
        pattern=pattern,
        ack_mode=ack_mode,
        is_no_local=is_no_local,
        is_ordered=is_ordered,
        is_shared=is_shared,
        # Two members at once have no order.
        is_exclusive=is_exclusive or (is_shared and is_ordered),
        wishes=read_wishes(headers),
    )
    return SubscribeRequest(
        subscription=subscription,
        credit=credit,
        identity=identity,
        is_transient=is_transient,
        start=read_start(headers),
        is_of_bridge=is_for_bridge(headers, client, settings),
    )


def _read_place(
    headers: Mapping[str, str],
    settings: SessionSettings,
    durable: Mapping[Identity, Subscription],
    client: Client,
    temporary: Pattern | None,
    *,
    is_browser: bool,
) -> tuple[Pattern, Identity | None]:
    """Which topics it means, and the subscription that is kept, if one is. Raises PeerViolation."""
    destination = headers["destination"]
    if temporary is not None:
        if _GROUP in headers or asks_for_durable(headers):
            raise PeerViolation(
                "temporary destination contradicts durability",
                f"{destination!r} ends with this connection; leave group and the durable headers out",
            )
        return temporary, None
    if destination.startswith(DSUB_PREFIX):
        identity = find_by_name(destination.removeprefix(DSUB_PREFIX), durable, client)
        pattern = durable[identity].pattern
        client.check_allowed(Right.READ, pattern, destination)
        return pattern, identity
    pattern = read_destination(destination, parse_pattern, is_bare_queue=settings.is_bare_queue)
    client.check_allowed(Right.READ, pattern, destination)
    if pattern.kind is DestinationKind.QUEUE:
        return pattern, None if is_browser else _read_queue(headers, pattern)
    if _GROUP in headers:
        return pattern, _read_group(headers, pattern)
    _check_kept(headers)
    return pattern, read_identity(headers, pattern, client) if asks_for_durable(headers) else None


def _read_queue(headers: Mapping[str, str], pattern: Pattern) -> Identity:
    """Raises PeerViolation. Durability is ignored: a queue is kept in any case."""
    for header in (_GROUP, *STARTS):
        if header in headers:
            reason = "its consumers share it anyway" if header == _GROUP else "it is read from where others stopped"
            raise PeerViolation(f"{header!r} is not for queues", f"{pattern}: {reason}; leave the header out")
    if headers.get("when-used-up") == WhenUsedUp.EVICT.value:
        raise PeerViolation(
            "'when-used-up' is not for queues", "evict would delete the queue; use dead-letter or discard"
        )
    return queue_identity(pattern)


def _read_group(headers: Mapping[str, str], pattern: Pattern) -> Identity:
    """Raises PeerViolation."""
    name = check_name(_GROUP, headers[_GROUP])
    for header in (*_NAMES, _QUEUE_NAME):
        if header in headers:
            raise PeerViolation(
                f"group contradicts {header!r}",
                f"both name a subscription that is kept: a group by {_GROUP}:{name}, one with {header} by that, which "
                "can be shared with shared:true; leave one of them out",
            )
    for header in _DURABLE:
        if not truth(header, headers.get(header, "true")):
            raise PeerViolation(
                f"group contradicts {header}:false",
                "a group is kept while it has no members; add auto-delete:true to have it end with its last member",
            )
    return Identity("", IdentityKind.GROUP, pattern.key, name)


def _check_kept(headers: Mapping[str, str]) -> None:
    for header in _NAMES:
        if header in headers and truth("auto-delete", headers.get("auto-delete", "false")):
            raise PeerViolation(
                f"auto-delete:true contradicts {header!r}",
                "a durable subscription is kept until it is deleted; leave one of them out, or join a group:NAME",
            )


def _is_shared(headers: Mapping[str, str], identity: Identity | None) -> bool:
    """Whether several consumers may attach, each for a part of the messages. Raises PeerViolation."""
    if identity is not None and identity.kind is IdentityKind.QUEUE:
        return True
    is_said = truth("shared", headers.get("shared", "false"))
    if is_said and identity is None:
        raise PeerViolation(
            "shared:true without a name",
            "several connections share a subscription by its name: add group:NAME, or a durable name",
        )
    return is_said or _GROUP in headers


def _is_exclusive(headers: Mapping[str, str], *, is_shared: bool) -> bool:
    for header in _EXCLUSIVE:
        if truth(header, headers.get(header, "false")):
            if not is_shared:
                raise PeerViolation(
                    f"{header}:true without a group",
                    "subscribers stand by for each other in a group or at a queue: add group:NAME, or leave it out",
                )
            return True
    return False


def _check_ordered(headers: Mapping[str, str], ack_mode: AckMode, *, is_durable: bool, is_shared: bool) -> None:
    if not is_durable:
        raise PeerViolation(
            "ordering:strict needs a durable subscription", "its order must outlive its connection; add durable:true"
        )
    for name in _EXCLUSIVE:
        if is_shared and not truth(name, headers.get(name, "true")):
            raise PeerViolation(
                f"ordering:strict contradicts {name!r}", f"two members at once have no order; leave {name} out"
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


def _credit(headers: Mapping[str, str], settings: SessionSettings, *, is_shared: bool) -> Credit:
    """How much the client wants in flight. More than `max_prefetch` is taken as `max_prefetch`: clients write "as many
    as possible" as a large number, and RabbitMQ's 0 means the same."""
    bound = settings.max_prefetch
    messages, max_bytes = settings.group_prefetch if is_shared else settings.default_prefetch, None
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


def read_identity(headers: Mapping[str, str], pattern: Pattern | None, client: Client) -> Identity | None:
    """The durable subscription that a frame names; None if its id alone, without a destination, does not say which.
    Raises PeerViolation if the frame does not name one."""
    owner, client_id = client.grant.user, client.client_id
    for header in _NAMES:
        if header in headers:
            if client_id is None:
                raise PeerViolation(
                    "durable subscription without client-id",
                    f"{header!r} names a subscription of one client: give CONNECT a 'client-id' header",
                )
            return Identity(owner, IdentityKind.NAMED, client_id, check_name(header, headers[header]))
    if _QUEUE_NAME in headers:
        return Identity(owner, IdentityKind.NAMED, "", check_name(_QUEUE_NAME, headers[_QUEUE_NAME]))
    if "id" not in headers:
        raise PeerViolation("durable subscription without id", "it is known by its 'id' header, which is missing")
    name = check_name("id", headers["id"])
    if client_id is not None:
        return Identity(owner, IdentityKind.NAMED, client_id, name)
    if pattern is None:
        return None
    return Identity(owner, IdentityKind.ADDRESSED, pattern.key, name)


def may_adopt(subscription: Subscription, client: Client) -> bool:
    """Whether it belongs to nobody, because it was made when there was no login, and its messages may be read by this
    client's user: then it becomes that user's own."""
    identity = subscription.identity
    is_nobodys = identity is not None and not identity.owner and not identity.is_shared_by_all
    return is_nobodys and client.grant.allows(Right.READ, subscription.pattern)


def find_by_name(name: str, known: Mapping[Identity, Subscription], client: Client) -> Identity:
    """The durable subscription of that name: under this client's id, or else the only one its user has or may adopt."""
    owner, client_id = client.grant.user, client.client_id
    named = [identity for identity in known if identity.name == name and not identity.is_shared_by_all]
    found = [identity for identity in named if identity.owner == owner]
    found = found or [identity for identity in named if may_adopt(known[identity], client)]
    own = [identity for identity in found if identity.kind is IdentityKind.NAMED and identity.scope == client_id]
    if len(own) == 1 or len(found) == 1:
        return (own or found)[0]
    if not found:
        raise PeerViolation("unknown durable subscription", f"there is none with the id {name!r}")
    listed = ", ".join(sorted(identity.key for identity in found[:10]))
    raise PeerViolation("ambiguous durable subscription", f"the id {name!r} is that of {len(found)}: {listed}")
