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
from stompbroker.delivery import AckMode, Consumer, Durability, IdentityKind, Leaving, parse_pattern
from stompbroker.errors import PeerViolation
from stompbroker.sessions.browsing import browser_of, read_browser
from stompbroker.sessions.starting_points import find_start
from stompbroker.sessions.stomp_sink import StompSink
from stompbroker.sessions.subscribe_headers import (
    DSUB_PREFIX,
    find_by_name,
    is_named,
    may_adopt,
    read_identity,
    read_subscribe,
)
from stompbroker.sessions.temporaries import is_own
from stompbroker.stomp import Version

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from stompbroker.changes import Lane
    from stompbroker.delivery import Identity, Subscription
    from stompbroker.sessions.client import Client, Consumers
    from stompbroker.sessions.outbox import Outbox
    from stompbroker.sessions.session_context import SessionContext
    from stompbroker.sessions.subscribe_headers import SubscribeRequest
    from stompbroker.sessions.temporaries import Temporaries

#: How often a subscription may be taken over within that time, from connections that are alive.
MAX_TAKE_OVERS: Final = 2
TAKE_OVER_WINDOW_NS: Final = 60 * NANOSECONDS


@final
@dataclass(slots=True, eq=False)
class Subscribing:
    _context: SessionContext
    _client: Client
    _consumers: Consumers
    _temporaries: Temporaries
    _outbox: Outbox
    _lane: Lane
    #: Whether this connection ever had a durable subscription, so that some of its answers may be unsaved.
    had_durable: bool = False

    def read(self, headers: Mapping[str, str]) -> SubscribeRequest:
        """What a SUBSCRIBE asks for. Raises PeerViolation if that is not allowed."""
        registry, destination = self._context.registry, headers["destination"]
        temporary = None
        if is_own(destination):
            temporary = self._temporaries.own("destination", destination, self._context.clock.now_ns()).destination
            self._stop_reading_replies(destination)
        is_browser, settings = read_browser(headers), self._context.settings
        request = read_subscribe(headers, settings, registry.durable, self._client, temporary, is_browser=is_browser)
        if is_browser:
            request.subscription.browser = browser_of(request.subscription, self._context.message_ids)
        self._consumers.check_may_open(request.subscription.name, request.subscription.destination)
        return request

    def to_replies(self, destination: str) -> SubscribeRequest:
        """For a client that gave a temporary destination as reply-to and did not subscribe. Raises PeerViolation."""
        self._consumers.check_may_open(destination, destination)
        headers = {"id": destination, "destination": destination}
        temporary = self._temporaries.own("destination", destination, self._context.clock.now_ns()).destination
        return read_subscribe(headers, self._context.settings, {}, self._client, temporary)

    def _stop_reading_replies(self, destination: str) -> None:
        """The client subscribes itself: what was done for it by `to_replies` ends."""
        consumer = self._consumers.find(destination, destination)
        if consumer is not None:
            self._consumers.drop(consumer)
            self._context.registry.leave([consumer], self._context.clock.now_ns())

    def open(self, request: SubscribeRequest, give_receipts: Callable[[], None]) -> Unit:
        """Claim the subscription; it begins, and the client gets its receipt, when the unit is completed."""
        registry = self._context.registry
        subscription, is_new = self._obtain(request)
        subscription.connection_id = self._client.connection_id
        subscription.connection_name = self._client.name
        subscription.peer = self._client.peer
        ordinal, version, wanted = self._consumers.next_ordinal, self._client.version, request.subscription
        sink = StompSink(
            self._outbox,
            self._client.disconnect,
            subscription_name=wanted.name,
            version=version,
            after_frame=self._context.settings.after_frame,
            store_id=self._context.message_ids.store_id,
            ordinal=ordinal,
            expects_acks=wanted.ack_mode is not AckMode.AUTO,
        )
        consumer = Consumer(
            subscription,
            ordinal=ordinal,
            sink=sink,
            credit=request.credit,
            queue=registry.ready,
            finds_by_message_id=version is not Version.V1_2,
            ack_mode=wanted.ack_mode,
            name=wanted.name,
            connection_id=self._client.connection_id,
            peer=self._client.peer,
            is_of_bridge=request.is_of_bridge,
            member=self._client.name if subscription.is_shared else None,
        )
        registry.claim(consumer, self._context.clock.now_ns())
        self._consumers.add(consumer, request.subscription.destination)

        def begin() -> None:
            if subscription.is_durable and subscription.is_closed:
                return  # the store has refused it in the meantime, and the client got an ERROR
            # Its receipt comes before its first message: the distributor does not run in between.
            now_ns = self._context.clock.now_ns()
            registry.begin(subscription, now_ns)
            if is_new and subscription.begins_with_values:
                subscription.greeting = registry.last_values.greeting(subscription.pattern)
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

    def is_of_all(self, headers: Mapping[str, str]) -> bool:
        """Whether an UNSUBSCRIBE names a group or a queue, which a client can only leave: others may need it."""
        opened = self._consumers.find(headers.get("id"), headers.get("destination"))
        identity = None if opened is None else opened.subscription.identity
        return not is_named(headers) and identity is not None and identity.is_shared_by_all

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
        attached = list(subscription.consumers)
        for consumer in attached:
            if consumer not in self._consumers:
                raise PeerViolation(
                    "durable subscription in use",
                    f"{subscription.key!r} is attached to {consumer.peer}; it can be deleted when that is gone",
                )
        for consumer in attached:
            self._consumers.drop(consumer)
        registry.leave(attached, self._context.clock.now_ns())
        return Unit(
            [Removed(subscription, registry)],
            then=give_receipts,
            refused=lambda reason: self._client.disconnect(PeerViolation("cannot be deleted", reason)),
            lane=self._lane,
        )

    def _find_to_delete(self, headers: Mapping[str, str]) -> Subscription:
        """The durable subscription that an UNSUBSCRIBE wants deleted. Raises PeerViolation if there is none."""
        durable = self._context.registry.durable
        destination = headers.get("destination")
        if destination is not None and destination.startswith(DSUB_PREFIX):
            return self._own(find_by_name(destination.removeprefix(DSUB_PREFIX), durable, self._client))
        pattern = None if destination is None else self._context.read_destination(destination, parse_pattern)
        identity = read_identity(headers, pattern, self._client)
        if identity is not None and identity in durable:
            return durable[identity]
        if not is_named(headers):
            # Only an id was given: this connection may know it, or else it must be unique.
            opened = self._consumers.find(headers.get("id"), destination)
            if opened is not None and opened.subscription.is_durable:
                return opened.subscription
            if identity is None:
                return self._own(find_by_name(headers["id"], durable, self._client))
        assert identity is not None
        raise PeerViolation("unknown durable subscription", f"there is none known as {identity.key!r}")

    def _own(self, identity: Identity) -> Subscription:
        """Raises PeerViolation if it belongs to nobody: only its owner may delete it, and SUBSCRIBE makes one."""
        if identity.owner != self._client.grant.user:
            raise PeerViolation(
                "durable subscription without owner",
                f"{identity.key!r} was made before there was login; SUBSCRIBE makes it yours, then you may delete it",
            )
        return self._context.registry.durable[identity]

    def _obtain(self, request: SubscribeRequest) -> tuple[Subscription, bool]:
        """The subscription, without a consumer, and whether it is new. Raises PeerViolation."""
        identity = request.identity
        if identity is None:
            request.subscription.starts_at = find_start(request.start, request.subscription, self._context)
            return request.subscription, True
        if identity.kind is IdentityKind.QUEUE:
            queue = self._context.queues.group(request.subscription.pattern, self._context.clock.now_ns())
            self._resume(queue, request.subscription)
            return queue, False
        if identity.kind is IdentityKind.GROUP:
            return self._obtain_group(request, identity)
        self._check_has_room()
        is_shared = request.subscription.is_shared
        if not is_shared and any(consumer.subscription.identity == identity for consumer in self._consumers):
            raise PeerViolation(
                "subscription exists",
                f"this connection has {identity.key!r} open under another id; UNSUBSCRIBE that first",
            )
        self._check_can_store("subscribe without durability")
        registry, own = self._context.registry, identity._replace(owner=self._client.grant.user)
        subscription = registry.durable.get(own)
        if subscription is None:
            subscription = self._find_to_adopt(own)
        if subscription is None:
            return self._create_durable(request, own), True
        self._resume(subscription, request.subscription)
        if subscription.identity != own:
            registry.adopt(subscription, own)
        return subscription, False

    def _check_can_store(self, advice: str) -> None:
        if not self._context.journal.can_store:
            raise PeerViolation(
                "no durable subscriptions", f'this broker keeps nothing (database = "memory"); {advice}'
            )

    def _obtain_group(self, request: SubscribeRequest, identity: Identity) -> tuple[Subscription, bool]:
        """The group, and whether it is new. Raises PeerViolation."""
        registry = self._context.registry
        found = registry.find_group(identity)
        if found is not None:
            if found.is_durable is request.is_transient:
                made, advice = (
                    ("it stays without members", "leave auto-delete out")
                    if found.is_durable
                    else ("it ends with its last member", "add auto-delete:true")
                )
                raise PeerViolation(
                    "group has another auto-delete",
                    f"{found.key!r} was made so that {made}; {advice}, or choose another name",
                )
            self._resume(found, request.subscription)
            return found, False
        if request.is_transient:
            subscription = request.subscription
            subscription.starts_at = find_start(request.start, request.subscription, self._context)
            registry.add_transient_group(subscription, identity)
            return subscription, True
        self._check_has_room()
        self._check_can_store("add auto-delete:true, and the group ends with its last member")
        return self._create_durable(request, identity), True

    def _find_to_adopt(self, own: Identity) -> Subscription | None:
        """One that belongs to nobody, and may become this user's. Raises PeerViolation if it may, but not yet."""
        registry = self._context.registry
        found = registry.durable.get(own._replace(owner=""))
        if found is None or not may_adopt(found, self._client):
            return None
        if not registry.can_adopt(found, own):
            raise PeerViolation(
                "durable subscription is being deleted", f"one known as {own.key!r} is about to go; try again"
            )
        return found

    def _create_durable(self, request: SubscribeRequest, identity: Identity) -> Subscription:
        registry, now_ns = self._context.registry, self._context.clock.now_ns()
        # Queues are bounded as topics are.
        count = sum(each.kind is not IdentityKind.QUEUE for each in registry.durable)
        if count >= self._context.settings.max_durable_subscriptions:
            raise PeerViolation(
                "too many durable subscriptions",
                f"there are {count}, which is all there may be (max_durable_subscriptions); those that "
                "nobody needs can be deleted with UNSUBSCRIBE, or by an operator",
            )
        subscription = request.subscription
        if subscription.pattern.is_exact:
            registry.topic(subscription.pattern, now_ns)  # raises if there are too many, before anything is done
        number = self._context.journal.next_subscription_id()
        subscription.durability = Durability(identity, number, created_at_ns=now_ns, last_seen_at_ns=now_ns)
        subscription.starts_at = find_start(request.start, request.subscription, self._context)
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
        if subscription.consumers and (subscription.is_shared or wanted.is_shared):
            _check_alike(subscription, wanted)
            return
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
        subscription.share(is_shared=wanted.is_shared, is_exclusive=wanted.is_exclusive)
        subscription.wishes = wanted.wishes

    def _check_has_room(self) -> None:
        if self._context.journal.is_overfull:
            why = self._context.journal.gate.why
            raise PeerViolation(
                "too much waits to be stored", f"{why}; durable subscriptions have to wait, try again later"
            )


def _check_alike(subscription: Subscription, wanted: Subscription) -> None:
    """Raise PeerViolation unless a newcomer wants of a group what its members have."""
    if subscription.is_shared is not wanted.is_shared:
        raise _asks_otherwise(subscription, "shared", "is shared" if wanted.is_shared else "is not shared")
    if subscription.is_exclusive is not wanted.is_exclusive:
        raise _asks_otherwise(subscription, "exclusive", "has one active member" if wanted.is_exclusive else "has not")
    if subscription.is_ordered is not wanted.is_ordered:
        raise _asks_otherwise(subscription, "ordering", "is ordered" if wanted.is_ordered else "is not ordered")
    if subscription.wishes != wanted.wishes:
        fields = sorted(
            {name for name, _ in subscription.wishes.changed.items() ^ wanted.wishes.changed.items()},
        )
        raise _asks_otherwise(subscription, "redelivery", f"treats failures so: {', '.join(fields)}")


def _asks_otherwise(subscription: Subscription, what: str, wanted: str) -> PeerViolation:
    """To be raised."""
    return PeerViolation(
        f"group has another {what}",
        f"you ask for one that {wanted}, but {subscription.key!r} was made otherwise and has members; ask for the "
        "same, choose another name, or wait until it has none",
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
