"""Subscriptions: how far behind each is and what it has not settled; and what an operator may do to them.

Law: what changes something returns when that is durable, or at once where nothing has to be. Whoever is attached to a
subscription that is deleted or moved is disconnected, and told why.
"""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, final

from stompbroker.changes import Removed, StoreState, Unit
from stompbroker.clock import NANOSECONDS, iso_time
from stompbroker.control.explaining import describe_delivery
from stompbroker.control.kept import Place
from stompbroker.control.listing import LIST_PARAMS, Wanted, described, take_page
from stompbroker.control.request import (
    Completion,
    ControlError,
    NotFound,
    Unavailable,
    named_topic,
    optional_text,
    optional_truth,
)
from stompbroker.control.sampling import COUNTERS, counters_of
from stompbroker.delivery import withdrawing
from stompbroker.errors import PeerViolation
from stompbroker.ids import Offset
from stompbroker.sessions import StartKind, read_start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from stompbroker.changes import Journal
    from stompbroker.clock import Clock
    from stompbroker.control.kept import KeptMessages
    from stompbroker.control.looking import Looking
    from stompbroker.control.request import Methods
    from stompbroker.control.sampling import Sampler
    from stompbroker.delivery import Reading, Registry, Subscription

__all__ = ["SubscriptionMethods"]

#: Unsettled messages, and topics, that are listed with one subscription.
MAX_UNSETTLED: Final = 100
MAX_TOPICS: Final = 100


@final
class SubscriptionMethods:
    def __init__(
        self,
        registry: Registry,
        journal: Journal,
        kept: KeptMessages,
        sampler: Sampler,
        clock: Clock,
        *,
        looking: Looking,
    ) -> None:
        self._registry = registry
        self._looking = looking
        self._journal = journal
        self._kept = kept
        self._sampler = sampler
        self._clock = clock
        self._fields: Mapping[str, Callable[[Subscription], Any]] = {
            "key": lambda one: one.key,
            "backlog": lambda one: one.backlog,
            "in_flight": lambda one: _in_flight(one),
            "waiting": lambda one: one.waiting,
            "delivered": lambda one: one.counters.delivered,
            "rate": lambda one: self._rates(one)[0],
            "redelivered": lambda one: one.counters.redelivered,
            "dead": lambda one: one.counters.dead,
        }
        only = frozenset({"id"})
        self.methods: Methods = {
            "subscriptions": (self._list, LIST_PARAMS | {"durable", "topic"}),
            "subscription": (self._show, only),
            "pause_subscription": (self._pause, only),
            "resume_subscription": (self._resume, only),
            "move_subscription": (self._move, frozenset({"id", "to"})),
            "remove_subscription": (self._remove, only),
        }

    # Looking ---------------------------------------------------------------------------------------------------------

    async def _list(self, **params: Any) -> dict[str, Any]:
        wanted = Wanted.read(params, tuple(self._fields))
        durable = optional_truth("durable", params.get("durable"))
        name = optional_text("topic", params.get("topic"))
        topic = None if name is None else self._registry.topics.get(named_topic(name).key)
        chosen = [
            one
            for one in self._registry.subscriptions
            if durable in (None, one.is_durable) and (name is None or topic in one.readings)
        ]
        page = await take_page(
            wanted,
            chosen,
            lambda one: [one.public_id, one.key, one.destination],
            self._fields[wanted.field],
            self._looking,
        )
        return page.described("subscriptions", await self._describe_all(page.items))

    async def _show(self, id: object = None) -> dict[str, Any]:
        subscription = self._find(id)
        readings = list(islice(subscription.readings.values(), MAX_TOPICS))
        return {
            **await self._describe(subscription),
            "topics": [
                {
                    "topic": reading.topic.destination.key,
                    "ack_floor": reading.cursor.ack_floor,
                    "next_offset": reading.cursor.next_offset,
                    "end_offset": reading.topic.log.end_offset,
                    "backlog": reading.backlog,
                    "in_flight": reading.cursor.in_flight,
                    "waiting": reading.cursor.waiting_count,
                }
                for reading in readings
            ],
            "unsettled": [entry for reading in readings for entry in _unsettled(reading)][:MAX_UNSETTLED],
        }

    async def _describe(self, subscription: Subscription) -> dict[str, Any]:
        (described,) = await self._describe_all([subscription])
        return described

    async def _describe_all(self, subscriptions: list[Subscription]) -> list[dict[str, Any]]:
        oldest_ns = await self._oldest_unsettled_ns(subscriptions)
        return await described(lambda one: self._described(one, oldest_ns.get(one)), subscriptions, self._looking)

    def _described(self, subscription: Subscription, oldest_ns: int | None) -> dict[str, Any]:
        consumer, durability = subscription.consumer, subscription.durability
        rate, ack_rate = self._rates(subscription)
        backlog = subscription.backlog
        sent_ns = None if consumer is None else consumer.sent.oldest_sent_ns
        now_ns = self._clock.now_ns()
        return {
            "id": subscription.public_id,
            "key": subscription.key,
            "name": subscription.name,
            "client_id": None if durability is None else durability.identity.client_id,
            "durable_name": None if durability is None else durability.identity.name,
            "destination": subscription.destination,
            "kind": subscription.pattern.kind.value,
            "durable": subscription.is_durable,
            "ack": subscription.ack_mode.value,
            "ordered": subscription.is_ordered,
            "paused": subscription.is_paused,
            "connected": consumer is not None,
            "connection": subscription.connection_id if consumer is not None else None,
            "peer": subscription.peer if consumer is not None else None,
            "prefetch": None if consumer is None else consumer.credit.max_messages,
            "created_at": None if durability is None else iso_time(durability.created_at_ns),
            "last_seen_at": None if durability is None else iso_time(durability.last_seen_at_ns),
            "backlog": backlog,
            "lag_s": None if oldest_ns is None else round(max(0, now_ns - oldest_ns) / NANOSECONDS, 3),
            "in_flight": _in_flight(subscription),
            "waiting": subscription.waiting,
            **dict(zip(COUNTERS, counters_of(subscription.counters), strict=True)),
            "rate": round(rate, 1),
            "ack_rate": round(ack_rate, 1),
            "oldest_unacknowledged_at": None if sent_ns is None else iso_time(sent_ns),
            "drain_s": round(backlog / ack_rate, 1) if ack_rate > 0 else None,
        }

    async def _oldest_unsettled_ns(self, subscriptions: Iterable[Subscription]) -> dict[Subscription, int]:
        """When the oldest message was published that each has not settled; looked up in the first topics it reads. What
        the store cannot tell now is left out: those who ask while it fails want to see the rest."""
        places: dict[Subscription, list[Place]] = {}
        async with self._looking.at_once() as look:
            for one in subscriptions:
                first = islice(one.readings.values(), MAX_TOPICS)
                behind = [Place(reading.topic, reading.cursor.ack_floor) for reading in first if not reading.is_idle]
                places[one] = behind[:3]
                if look.is_over:
                    await look.pause()
        is_failing = self._journal.statistics().state is StoreState.FAILING
        known = await self._kept.first_published_ns(chain(*places.values()), asks_store=not is_failing)
        found = {one: [known[place] for place in behind if place in known] for one, behind in places.items()}
        return {one: min(times) for one, times in found.items() if times}

    def _rates(self, subscription: Subscription) -> tuple[float, ...]:
        flow = self._sampler.latest.subscriptions.get(subscription)
        return (0.0, 0.0) if flow is None else flow.rates

    def _find(self, public_id: object) -> Subscription:
        for subscription in self._registry.subscriptions:
            if subscription.public_id == public_id:
                return subscription
        raise NotFound(f"there is no subscription {public_id!r}")

    # Changing --------------------------------------------------------------------------------------------------------

    async def _pause(self, id: object = None) -> dict[str, Any]:
        subscription = self._find(id)
        subscription.is_paused = True
        return await self._describe(subscription)

    async def _resume(self, id: object = None) -> dict[str, Any]:
        subscription = self._find(id)
        subscription.resume()
        return await self._describe(subscription)

    async def _move(self, id: object = None, to: object = None) -> dict[str, Any]:
        """A durable subscription reads on from another place in its topic."""
        subscription = self._find(id)
        if not subscription.is_durable or not subscription.pattern.is_exact:
            raise ControlError("only a durable subscription to one topic can be moved")
        text = optional_text("to", to)
        try:
            start = read_start({"from": text or ""})
        except PeerViolation as violation:
            raise ControlError(f"to: {violation.detail}") from None
        assert start is not None
        self._check_store()
        if not subscription.has_begun:
            raise ControlError("it is only just being made; try again")
        (reading,) = subscription.readings.values()
        self._detach(subscription, "was moved by an operator")
        kept_from, end = reading.topic.collected_up_to, reading.topic.log.end_offset
        match start.kind:
            case StartKind.EARLIEST:
                position = kept_from
            case StartKind.LATEST:
                position = end
            case StartKind.OFFSET:
                position = Offset(min(start.offset, end))
            case _:
                since_ns = start.at_ns if start.kind is StartKind.TIME else self._clock.now_ns() - start.age_ns
                position = await self._kept.first_since(reading.topic, since_ns)
        while subscription.pending:
            # Its place is decided by units on their way; once they are stored, nothing holds it where it is.
            await self._journal.wait_idle()
        if subscription.is_closed or subscription.consumer is not None:
            raise ControlError("somebody attached to it, or deleted it, in the meantime; try again")
        # There is nothing below; and more may have been collected while we looked.
        position = max(position, reading.topic.collected_up_to)
        withdrawing.move_to(reading, position, self._clock.now_ns())
        await self._journal.wait_idle()
        return {"id": subscription.public_id, "offset": position, **await self._describe(subscription)}

    async def _remove(self, id: object = None) -> dict[str, Any]:
        """A durable subscription goes for good; whoever is attached to it, or has a transient one, is disconnected."""
        subscription = self._find(id)
        # A transient one is known by its consumer, and has none when it has gone.
        removed = {"id": subscription.public_id, "key": subscription.key, "backlog": subscription.backlog}
        if subscription.is_durable:
            self._check_store()
        self._detach(subscription, "was deleted by an operator")
        if subscription.is_durable and subscription.identity in self._registry.durable:
            completion = Completion(f"let {subscription.key!r} go")
            finish, refuse = completion.finish, completion.refuse
            self._journal.submit(Unit([Removed(subscription, self._registry)], then=finish, refused=refuse))
            await completion.wait()
        return removed

    def _check_store(self) -> None:
        """While the store fails, what must be durable would wait for it to come back. Where it is only full, what is
        deleted makes room. Raises Unavailable."""
        if self._journal.statistics().state is StoreState.FAILING:
            raise Unavailable(f"{self._journal.gate.why}; try again later")

    def _detach(self, subscription: Subscription, why: str) -> None:
        consumer = subscription.consumer
        if consumer is not None:
            consumer.sink.disconnect(
                PeerViolation(f"subscription {why.partition(' by ')[0]}", f"{subscription.key!r} {why}")
            )
            self._registry.leave([consumer], self._clock.now_ns())


def _in_flight(subscription: Subscription) -> int:
    return 0 if subscription.consumer is None else subscription.consumer.in_flight


def _unsettled(reading: Reading) -> list[dict[str, Any]]:
    """The first messages that were sent and are not settled, with what is known of each."""
    cursor = reading.cursor
    offsets = (
        Offset(offset)
        for start, stop in cursor.unsettled(cursor.ack_floor, cursor.next_offset)
        for offset in range(start, stop)
    )
    return [
        {"topic": reading.topic.destination.key, "offset": offset, **describe_delivery(reading, offset)}
        for offset in islice(offsets, MAX_UNSETTLED)
    ]
