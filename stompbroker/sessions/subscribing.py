"""SUBSCRIBE and UNSUBSCRIBE of one connection.

Law: synchronous. Claims and gives up subscriptions at once, and returns a unit of what has to become durable before the
client gets its receipt. A durable subscription belongs to its newest connection; but if two clients keep taking it from
each other, the newcomer is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from stompbroker.changes import Created, Removed, Unit
from stompbroker.clock import NANOSECONDS
from stompbroker.delivery import AckMode, Consumer, Durability, Leaving, Replay, parse_pattern
from stompbroker.errors import PeerViolation
from stompbroker.ids import Offset
from stompbroker.sessions.headers import read_destination
from stompbroker.sessions.outbox import StompSink
from stompbroker.sessions.subscribe_headers import (
    DSUB_PREFIX,
    StartKind,
    find_by_name,
    is_named,
    read_identity,
    read_subscribe,
)
from stompbroker.stomp import Version

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from stompbroker.changes import Lane
    from stompbroker.delivery import Identity, Subscription
    from stompbroker.sessions.client import Client, Consumers
    from stompbroker.sessions.outbox import Outbox
    from stompbroker.sessions.session_context import SessionContext
    from stompbroker.sessions.subscribe_headers import SubscribeRequest

#: How often a subscription may be taken over within that time, from connections that are alive.
MAX_TAKE_OVERS: Final = 2
TAKE_OVER_WINDOW_NS: Final = 60 * NANOSECONDS


@final
@dataclass(slots=True, eq=False)
class Subscribing:
    _context: SessionContext
    _client: Client
    _consumers: Consumers
    _outbox: Outbox
    _lane: Lane
    #: Whether this connection ever had a durable subscription, so that some of its answers may be unsaved.
    had_durable: bool = False

    def read(self, headers: Mapping[str, str]) -> SubscribeRequest:
        """What a SUBSCRIBE asks for. Raises PeerViolation if that is not allowed."""
        registry = self._context.registry
        request = read_subscribe(headers, self._context.settings, registry.durable, self._client.client_id)
        self._consumers.check_may_open(request.subscription.name, request.subscription.destination)
        return request

    def open(self, request: SubscribeRequest, give_receipts: Callable[[], None]) -> Unit:
        """Claim the subscription; it begins, and the client gets its receipt, when the unit is completed."""
        registry = self._context.registry
        subscription, is_new = self._obtain(request)
        subscription.connection_id = self._client.connection_id
        subscription.connection_name = self._client.name
        subscription.peer = self._client.peer
        ordinal, version = self._consumers.next_ordinal, self._client.version
        sink = StompSink(
            self._outbox,
            self._client.disconnect,
            subscription_name=subscription.name,
            version=version,
            after_frame=self._context.settings.after_frame,
            ordinal=ordinal,
            expects_acks=subscription.ack_mode is not AckMode.AUTO,
        )
        consumer = Consumer(
            subscription,
            ordinal=ordinal,
            sink=sink,
            credit=request.credit,
            queue=registry.ready,
            finds_by_message_id=version is not Version.V1_2,
        )
        registry.claim(consumer, self._context.clock.now_ns())
        self._consumers.add(consumer, request.subscription.destination)

        def begin() -> None:
            if subscription.is_durable and subscription.is_closed:
                return  # the store has refused it in the meantime, and the client got an ERROR
            # Its receipt comes before its first message: the distributor does not run in between.
            now_ns = self._context.clock.now_ns()
            registry.begin(subscription, now_ns)
            registry.open(consumer, now_ns)
            give_receipts()

        unit = Unit(then=begin, lane=self._lane)
        if subscription.is_durable:
            self.had_durable = True
            # Another connection may be creating it just now.
            unit.needs_order = not subscription.has_begun
            if is_new:
                unit.effects.append(Created(subscription, registry))
        return unit

    def close(self, headers: Mapping[str, str]) -> bool:
        """A plain UNSUBSCRIBE; True if the subscription stays, without this connection. Raises PeerViolation."""
        consumer = self._consumers.remove(headers.get("id"), headers.get("destination"))
        self._context.registry.leave([consumer], self._context.clock.now_ns(), leaving=Leaving.UNSUBSCRIBED)
        return consumer.subscription.is_durable

    def delete(self, headers: Mapping[str, str], give_receipts: Callable[[], None]) -> Unit:
        """Delete a durable subscription; it is gone when the unit is completed. Raises PeerViolation."""
        self._check_has_room()
        registry = self._context.registry
        subscription = self._find_to_delete(headers)
        consumer = subscription.consumer
        if consumer is not None:
            if consumer not in self._consumers:
                raise PeerViolation(
                    "durable subscription in use",
                    f"{subscription.key!r} is attached to {subscription.peer}; it can be deleted when that is gone",
                )
            self._consumers.drop(consumer)
            registry.leave([consumer], self._context.clock.now_ns())
        return Unit(
            [Removed(subscription, registry)],
            then=give_receipts,
            refused=lambda reason: self._client.disconnect(PeerViolation("cannot be deleted", reason)),
            lane=self._lane,
        )

    def _find_to_delete(self, headers: Mapping[str, str]) -> Subscription:
        """The durable subscription that an UNSUBSCRIBE wants deleted. Raises PeerViolation if there is none."""
        durable, client_id = self._context.registry.durable, self._client.client_id
        destination = headers.get("destination")
        if destination is not None and destination.startswith(DSUB_PREFIX):
            return durable[find_by_name(destination.removeprefix(DSUB_PREFIX), durable, client_id)]
        pattern = None if destination is None else read_destination(destination, parse_pattern)
        identity = read_identity(headers, pattern, client_id)
        if identity is not None and identity in durable:
            return durable[identity]
        if not is_named(headers):
            # Only an id was given: this connection may know it, or else it must be unique.
            opened = self._consumers.find(headers.get("id"), destination)
            if opened is not None and opened.subscription.is_durable:
                return opened.subscription
            if identity is None:
                return durable[find_by_name(headers["id"], durable, client_id)]
        assert identity is not None
        raise PeerViolation("unknown durable subscription", f"there is none known as {identity.key!r}")

    def _obtain(self, request: SubscribeRequest) -> tuple[Subscription, bool]:
        """The subscription, without a consumer, and whether it is new. Raises PeerViolation."""
        identity = request.identity
        if identity is None:
            request.subscription.starts_at = _find_start(request, self._context)
            return request.subscription, True
        self._check_has_room()
        if any(consumer.subscription.identity == identity for consumer in self._consumers):
            raise PeerViolation(
                "subscription exists",
                f"this connection has {identity.key!r} open under another id; UNSUBSCRIBE that first",
            )
        if not self._context.journal.can_store:
            raise PeerViolation(
                "no durable subscriptions",
                'this broker keeps nothing (database = "memory"); subscribe without durability',
            )
        subscription = self._context.registry.durable.get(identity)
        if subscription is None:
            return self._create_durable(request, identity), True
        self._resume(subscription, request.subscription)
        return subscription, False

    def _create_durable(self, request: SubscribeRequest, identity: Identity) -> Subscription:
        registry, now_ns = self._context.registry, self._context.clock.now_ns()
        if len(registry.durable) >= self._context.settings.max_durable_subscriptions:
            raise PeerViolation(
                "too many durable subscriptions",
                f"there are {len(registry.durable)}, which is all there may be (max_durable_subscriptions); those that "
                "nobody needs can be deleted with UNSUBSCRIBE, or by an operator",
            )
        subscription = request.subscription
        if subscription.pattern.is_exact:
            registry.topic(subscription.pattern, now_ns)  # raises if there are too many, before anything is done
        number = self._context.journal.next_subscription_id()
        subscription.durability = Durability(identity, number, created_at_ns=now_ns, last_seen_at_ns=now_ns)
        subscription.starts_at = _find_start(request, self._context)
        registry.add_durable(subscription)
        return subscription

    def _resume(self, subscription: Subscription, wanted: Subscription) -> None:
        """Take an existing durable subscription, from another connection if necessary, and change what a SUBSCRIBE may
        change; that is stored with the next write."""
        if subscription.pattern != wanted.pattern:
            raise PeerViolation(
                "durable subscription has another destination",
                f"{subscription.key!r} subscribes to {subscription.destination!r}, not to {wanted.destination!r}; to "
                "change that, delete it first with an UNSUBSCRIBE with the same headers, or choose another name",
            )
        if subscription.consumer is not None:
            now_ns = self._context.clock.now_ns()
            _take_over(subscription, self._client.peer, now_ns)
            # The old connection has left it by now, unless it is applying frames of its own.
            if subscription.consumer is not None:
                self._context.registry.leave([subscription.consumer], now_ns)
        subscription.name = wanted.name
        subscription.ack_mode = wanted.ack_mode
        subscription.is_no_local = wanted.is_no_local
        subscription.is_ordered = wanted.is_ordered
        subscription.wishes = wanted.wishes

    def _check_has_room(self) -> None:
        if self._context.journal.is_overfull:
            why = self._context.journal.gate.why
            raise PeerViolation(
                "too much waits to be stored", f"{why}; durable subscriptions have to wait, try again later"
            )


def _take_over(subscription: Subscription, peer: str, now_ns: int) -> None:
    """Disconnect the client that has the subscription. Raises PeerViolation if that has happened too often."""
    durability, consumer = subscription.durability, subscription.consumer
    assert durability is not None
    assert consumer is not None
    since_ns = now_ns - TAKE_OVER_WINDOW_NS
    recent = [at_ns for at_ns in durability.taken_over_at_ns if at_ns > since_ns]
    # If its client has left, and only its last frames are still to be read or stored, this is a reconnect.
    is_there = not consumer.sink.outlet.is_deserted
    if is_there and len(recent) >= MAX_TAKE_OVERS:
        raise PeerViolation(
            "durable subscription in use",
            f"{subscription.key!r} is attached to {subscription.peer}, and was taken over {len(recent)} times "
            f"within {TAKE_OVER_WINDOW_NS // NANOSECONDS} s: two clients use one name; give each its own",
        )
    durability.taken_over_at_ns = [*recent, now_ns] if is_there else recent
    consumer.sink.disconnect(
        PeerViolation(
            "durable subscription taken over",
            f"{subscription.key!r} was subscribed to by {peer}; one connection has it at a time, the newest",
        )
    )


def _find_start(request: SubscribeRequest, context: SessionContext) -> Replay | None:
    """The offset to begin at; None if the subscription begins with the next message. Raises PeerViolation.

    A time is looked up among the marks of what is retained; messages between the mark and the time are skipped when
    they are read.
    """
    start, pattern = request.start, request.subscription.pattern
    if start is None or start.kind is StartKind.LATEST:
        return None
    if not pattern.is_exact:
        raise PeerViolation(
            "replay needs one topic",
            f"{request.subscription.destination!r} is a pattern; where to begin (`from`) can be said for one topic "
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
