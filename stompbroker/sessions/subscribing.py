"""SUBSCRIBE and UNSUBSCRIBE of one connection.

Law: synchronous; claims and gives up subscriptions at once, and says as a unit what has to become durable before the
client is told. Which durable subscription is meant, and who gets it, is said in `durable_subscribing`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from stompbroker.changes import Created, Removed, Unit
from stompbroker.delivery import AckMode, Consumer, Leaving, Subscription
from stompbroker.errors import PeerViolation
from stompbroker.sessions.durable_subscribing import Obtained, find_to_delete, obtain
from stompbroker.sessions.starting_points import find_start
from stompbroker.sessions.stomp_sink import StompSink
from stompbroker.sessions.subscribe_headers import read_subscribe
from stompbroker.stomp import Version

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from stompbroker.changes import Lane
    from stompbroker.sessions.client import Client
    from stompbroker.sessions.consumers import Consumers
    from stompbroker.sessions.outbox import Outbox
    from stompbroker.sessions.session_context import SessionContext
    from stompbroker.sessions.subscribe_headers import SubscribeRequest

__all__ = ["Subscribing"]


@final
class Subscribing:
    __slots__ = ("_client", "_consumers", "_context", "_lane", "_outbox", "had_durable")

    def __init__(
        self,
        context: SessionContext,
        client: Client,
        consumers: Consumers,
        outbox: Outbox,
        lane: Lane,
    ) -> None:
        self._context = context
        self._client = client
        self._consumers = consumers
        self._outbox = outbox
        self._lane = lane
        #: Whether this connection ever had a durable subscription: then what it did may be unsaved.
        self.had_durable = False

    def read(self, headers: Mapping[str, str]) -> SubscribeRequest:
        """What a SUBSCRIBE asks for. Raises PeerViolation if it may not."""
        registry = self._context.registry
        request = read_subscribe(headers, self._context.settings, registry.durable, self._client.client_id)
        self._consumers.check_may_open(request.name, request.destination)
        return request

    def open(self, request: SubscribeRequest, give_receipts: Callable[[], None]) -> Unit:
        """Claim the subscription; it begins, and the client is told, when the unit is completed."""
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
        self._consumers.add(consumer, request.destination)

        def begin() -> None:
            if subscription.is_durable and subscription.is_closed:
                return  # the store has refused it in the meantime, and the client is told so
            # Its receipt comes before its first message: the distributor does not run in between.
            now_ns = self._context.clock.now_ns()
            registry.begin(subscription, now_ns)
            registry.open(consumer, now_ns)
            give_receipts()

        unit = Unit(then=begin, lane=self._lane)
        if subscription.is_durable:
            self.had_durable = True
            # Somebody else may just be making it.
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
        """Give up a durable subscription for good; it is gone when the unit is completed. Raises PeerViolation."""
        self._check_has_room()
        registry = self._context.registry
        opened = self._consumers.find(headers.get("id"), headers.get("destination"))
        open_here = None if opened is None else opened.subscription
        subscription = find_to_delete(headers, open_here, self._context, self._client.client_id)
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

    def _obtain(self, request: SubscribeRequest) -> Obtained:
        if request.identity is not None:
            self._check_has_room()
            if any(consumer.subscription.identity == request.identity for consumer in self._consumers):
                raise PeerViolation(
                    "subscription exists",
                    f"this connection has {request.identity.key!r} open under another id; UNSUBSCRIBE that first",
                )
            return obtain(request.identity, request, self._context, self._client.peer)
        subscription = Subscription(
            name=request.name,
            destination=request.destination,
            pattern=request.pattern,
            ack_mode=request.ack_mode,
            is_no_local=request.is_no_local,
            wishes=request.wishes,
        )
        subscription.starts_at = find_start(request.start, request.destination, request.pattern, self._context)
        return Obtained(subscription, True)

    def _check_has_room(self) -> None:
        if self._context.journal.is_overfull:
            why = self._context.journal.gate.why
            raise PeerViolation(
                "too much waits to be stored", f"{why}; durable subscriptions have to wait, try again later"
            )
