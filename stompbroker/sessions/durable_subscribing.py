"""How a connection comes by a durable subscription, and how one is deleted.

Law: synchronous; decides which connection gets a subscription, and what a unit has to make durable. The newest
connection wins. But two that keep taking it from each other are two instances with one identity, and then the newcomer
is refused. A connection that its client has closed does not count, even if it is still being read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from stompbroker.clock import NANOSECONDS
from stompbroker.delivery import Durability, Subscription
from stompbroker.errors import PeerViolation
from stompbroker.sessions.starting_points import find_start
from stompbroker.sessions.subscribe_headers import DSUB_PREFIX, find_by_name, is_named, read_identity, read_pattern

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stompbroker.delivery import Identity
    from stompbroker.sessions.session_context import SessionContext
    from stompbroker.sessions.subscribe_headers import SubscribeRequest

__all__ = ["Obtained", "find_to_delete", "obtain"]

#: How often a subscription may be taken over within that time, from connections that are alive.
MAX_TAKE_OVERS: Final = 2
TAKE_OVER_WINDOW_NS: Final = 60 * NANOSECONDS


class Obtained(NamedTuple):
    subscription: Subscription
    #: Whether it has to be stored before it counts.
    is_new: bool


def obtain(identity: Identity, request: SubscribeRequest, context: SessionContext, peer: str) -> Obtained:
    """The durable subscription that a SUBSCRIBE means, without a consumer: new, resumed, or taken from another.

    Raises PeerViolation. What a client may change with every SUBSCRIBE is changed; it is stored with the next write.
    """
    if not context.journal.can_store:
        raise PeerViolation(
            "no durable subscriptions", 'this broker keeps nothing (database = "memory"); subscribe without durability'
        )
    now_ns = context.clock.now_ns()
    subscription = context.registry.durable.get(identity)
    if subscription is None:
        _check_may_create(context)
        return Obtained(_create(identity, request, context, now_ns), True)
    if subscription.pattern != request.pattern:
        raise PeerViolation(
            "durable subscription has another destination",
            f"{identity.key!r} subscribes to {subscription.destination!r}, not to {request.destination!r}; to change "
            "that, delete it first with an UNSUBSCRIBE that carries the same headers, or choose another name",
        )
    if subscription.consumer is not None:
        _take_over(subscription, peer, now_ns)
        # The old connection has given it up by now; if it is still applying frames of its own, it is made to.
        if subscription.consumer is not None:
            context.registry.leave([subscription.consumer], now_ns)
    subscription.name = request.name
    subscription.ack_mode = request.ack_mode
    subscription.is_no_local = request.is_no_local
    subscription.is_ordered = request.is_ordered
    subscription.wishes = request.wishes
    return Obtained(subscription, False)


def _check_may_create(context: SessionContext) -> None:
    count = len(context.registry.durable)
    if count >= context.settings.max_durable_subscriptions:
        raise PeerViolation(
            "too many durable subscriptions",
            f"there are {count}, which is all there may be (max_durable_subscriptions); those that nobody needs can be "
            "deleted with UNSUBSCRIBE, or by an operator",
        )


def _create(identity: Identity, request: SubscribeRequest, context: SessionContext, now_ns: int) -> Subscription:
    subscription = Subscription(
        name=request.name,
        destination=request.destination,
        pattern=request.pattern,
        ack_mode=request.ack_mode,
        is_no_local=request.is_no_local,
        is_ordered=request.is_ordered,
        wishes=request.wishes,
        durability=Durability(
            identity, context.journal.next_subscription_id(), created_at_ns=now_ns, last_seen_at_ns=now_ns
        ),
    )
    if request.pattern.is_exact:
        context.registry.topic(request.pattern, now_ns)  # raises if there are too many, before anything is done
    subscription.starts_at = find_start(request.start, request.destination, request.pattern, context)
    context.registry.add_durable(subscription)
    return subscription


def _take_over(subscription: Subscription, peer: str, now_ns: int) -> None:
    durability, consumer = subscription.durability, subscription.consumer
    assert durability is not None
    assert consumer is not None
    since_ns = now_ns - TAKE_OVER_WINDOW_NS
    recent = [at_ns for at_ns in durability.taken_over_at_ns if at_ns > since_ns]
    # If its client has left, and only its last frames are still to be read or stored, this is a return.
    is_there = not consumer.sink.is_deserted
    if is_there and len(recent) >= MAX_TAKE_OVERS:
        raise PeerViolation(
            "durable subscription in use",
            f"{durability.identity.key!r} is attached to {subscription.peer}, and was taken over {len(recent)} times "
            f"within {TAKE_OVER_WINDOW_NS // NANOSECONDS} s: two clients use one name; give each its own",
        )
    durability.taken_over_at_ns = [*recent, now_ns] if is_there else recent
    consumer.sink.disconnect(
        PeerViolation(
            "durable subscription taken over",
            f"{durability.identity.key!r} was subscribed to by {peer}; one connection has it at a time, the newest",
        )
    )


def find_to_delete(
    headers: Mapping[str, str], open_here: Subscription | None, context: SessionContext, client_id: str | None
) -> Subscription:
    """The durable subscription that an UNSUBSCRIBE wants deleted; `open_here` is what its `id` means on the connection.

    Raises PeerViolation if there is none.
    """
    durable = context.registry.durable
    destination = headers.get("destination")
    if destination is not None and destination.startswith(DSUB_PREFIX):
        return durable[find_by_name(destination.removeprefix(DSUB_PREFIX), durable, client_id)]
    identity = read_identity(headers, None if destination is None else read_pattern(destination), client_id)
    if identity is not None and identity in durable:
        return durable[identity]
    if not is_named(headers):
        # Only its id was given, which this connection, or else everybody, may know it by.
        if open_here is not None and open_here.is_durable:
            return open_here
        if identity is None:
            return durable[find_by_name(headers["id"], durable, client_id)]
    assert identity is not None
    raise PeerViolation("unknown durable subscription", f"there is none known as {identity.key!r}")
