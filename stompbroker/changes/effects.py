"""What a unit on its way to the store will do.

Law: an effect is computed once. The journal writes it, the ledger records it, and `apply` makes it visible; or the
store refuses the unit, and `undo` takes back what the effect had claimed. Only COMMIT and dead-lettering claim
deliveries: other answers count at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from stompbroker.delivery import account_of, answering, appending, redelivery, withdrawing
from stompbroker.errors import PeerViolation
from stompbroker.ids import Offset
from stompbroker.ledger.outcome import Outcome
from stompbroker.message import size_of_all

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from stompbroker.commitlog import Claimed
    from stompbroker.delivery import Consumer, Failure, Part, Reading, Refusal, Registry, Subscription, Topic
    from stompbroker.ledger.settled import Settled
    from stompbroker.message import Message


class Effect:
    __slots__ = ()

    @property
    def is_stored(self) -> bool:
        """Whether it counts only when it is in the store."""
        return True

    @property
    def size_bytes(self) -> int:
        """What it keeps in memory while it waits."""
        return 0

    @property
    def readings(self) -> Iterable[Reading]:
        """Whose cursors it is written with."""
        return ()

    def reserve(self) -> None:
        """Its batch is being formed: take the offsets it needs."""

    def release(self) -> None:
        """Its batch is formed anew: give them back."""

    def apply(self, now_ns: int) -> None:
        """The unit is durable."""
        raise NotImplementedError

    def undo(self, now_ns: int, reason: str) -> None:
        """The store has refused the unit."""


@final
class Appended(Effect):
    """These messages are published to a topic."""

    __slots__ = ("first", "messages", "topic")

    def __init__(self, topic: Topic, messages: list[Message]) -> None:
        self.topic: Final = topic
        self.messages: Final = messages
        #: The first of their offsets, if the batch that is being formed writes them.
        self.first: Offset | None = None
        topic.pending_units += 1

    @property
    def is_stored(self) -> bool:
        return self.topic.is_stored or self.topic.log.has_reserved

    @property
    def size_bytes(self) -> int:
        return size_of_all(self.messages)

    def reserve(self) -> None:
        if self.topic.is_stored:
            self.first = self.topic.log.reserve(len(self.messages))

    def release(self) -> None:
        if self.first is not None:
            self.topic.log.cancel_reserved()
            self.first = None

    def apply(self, now_ns: int) -> None:
        self.topic.pending_units -= 1
        appending.append(self.topic, self.messages, now_ns, reserved=self.first)

    def undo(self, now_ns: int, reason: str) -> None:
        self.topic.pending_units -= 1


@final
class Purged(Effect):
    """These messages go, although somebody may not have settled them; they may be without their bodies."""

    __slots__ = ("messages", "topic")

    def __init__(self, topic: Topic, messages: Mapping[Offset, Message]) -> None:
        self.topic: Final = topic
        self.messages: Final = messages

    def apply(self, now_ns: int) -> None:
        withdrawing.purge(self.topic, self.messages, now_ns)


@final
class Created(Effect):
    """A durable subscription, which the registry has, begins."""

    __slots__ = ("_registry", "subscription")

    def __init__(self, subscription: Subscription, registry: Registry) -> None:
        self.subscription: Final = subscription
        self._registry: Final = registry

    def apply(self, now_ns: int) -> None:
        self._registry.begin(self.subscription, now_ns)

    def undo(self, now_ns: int, reason: str) -> None:
        consumers = list(self.subscription.consumers)  # perhaps of another connection by now
        for consumer in consumers:
            consumer.sink.disconnect(PeerViolation("cannot be stored", reason))
        self._registry.leave(consumers, now_ns)
        self._registry.remove_durable(self.subscription, now_ns)


@final
class Removed(Effect):
    """A durable subscription ends. From now on nobody can attach to it, unless the store refuses to let it go."""

    __slots__ = ("_registry", "outcome", "subscription")

    def __init__(self, subscription: Subscription, registry: Registry, outcome: Outcome = Outcome.UNSUBSCRIBED) -> None:
        """`outcome` is what becomes of what it has not settled. Nobody may be attached to it."""
        assert not subscription.consumers
        registry.forget_durable(subscription)
        self.subscription: Final = subscription
        self._registry: Final = registry
        self.outcome: Final = outcome

    @property
    def readings(self) -> Iterable[Reading]:
        return self.subscription.readings.values()

    def apply(self, now_ns: int) -> None:
        self._registry.remove_durable(self.subscription, now_ns)

    def undo(self, now_ns: int, reason: str) -> None:
        self._registry.remember_durable(self.subscription)


class PendingDeliveries(Effect):
    """Deliveries of one reading that are pending for one unit: nobody else touches them."""

    __slots__ = ("_held", "claimed", "reading")

    def __init__(self, reading: Reading, claimed: Claimed) -> None:
        subscription, in_flight = reading.subscription, claimed.in_flight_ranges
        self.reading: Final = reading
        self.claimed: Final = claimed
        #: What of it was in flight, and to which consumers.
        self._held: Final = reading.owners.split(in_flight)
        subscription.pending += claimed.total
        subscription.waiting -= len(claimed.waiting)
        for consumer, count in reading.owners.take_away(in_flight, claimed.in_flight):
            consumer.give_up_in_flight(reading, in_flight, count)
        subscription.wake()

    @property
    def is_stored(self) -> bool:
        return self.reading.subscription.is_durable

    @property
    def readings(self) -> Iterable[Reading]:
        return (self.reading,)

    def apply(self, now_ns: int) -> None:
        subscription = self.reading.subscription
        if not subscription.is_closed:
            subscription.pending -= self.claimed.total
            self._take_effect(now_ns)
            self._finish()

    def _take_effect(self, now_ns: int) -> None:
        raise NotImplementedError

    def undo(self, now_ns: int, reason: str) -> None:
        """Each delivery becomes what it would be by now."""
        reading, subscription = self.reading, self.reading.subscription
        if subscription.is_closed:
            return
        subscription.pending -= self.claimed.total
        subscription.waiting += len(self.claimed.waiting)
        back = {consumer: ranges for consumer, ranges in self._held if consumer.is_open}
        lost = [each for consumer, ranges in self._held if not consumer.is_open for each in ranges]
        reading.owners.expect_all(back, reading.cursor)
        reading.cursor.give_back(self.claimed, lost)
        self._schedule_again()
        for consumer, ranges in back.items():
            for start, stop in ranges:
                reading.owners.note(consumer, start, stop)
            consumer.take_back_in_flight(reading, ranges, now_ns)
        self._finish()

    def _schedule_again(self) -> None:
        redelivery.schedule_again(self.reading, self.claimed.waiting)

    def _finish(self) -> None:
        """It is decided: apply the answers that came meanwhile."""
        subscription = self.reading.subscription
        for consumer in subscription.consumers:
            consumer.sent.forget_settled()
        subscription.offer(self.reading)
        answering.repeat_deferred(self.reading)


@final
class SettledDeliveries(PendingDeliveries):
    """These deliveries are settled: acknowledged, or dead."""

    __slots__ = ("_sent_at_ns", "outcome", "records")

    def __init__(
        self, reading: Reading, claimed: Claimed, outcome: Outcome, records: list[Settled], sent_at_ns: int
    ) -> None:
        super().__init__(reading, claimed)
        self.outcome: Final = outcome
        #: For the ledger; none unless the subscription is durable.
        self.records: Final = records
        self._sent_at_ns: Final = sent_at_ns

    def _take_effect(self, now_ns: int) -> None:
        reading, count = self.reading, self.claimed.total
        reading.settle_claimed(self.claimed)
        if self.outcome is Outcome.ACKED:
            reading.subscription.counters.acked += count
            reading.topic.context.times.note_acknowledged(self._sent_at_ns, now_ns, count)
        else:
            reading.subscription.counters.dead += count

    def _schedule_again(self) -> None:
        if self.outcome is not Outcome.DEAD:  # `DeadLetters` decides when a dead letter is tried again
            super()._schedule_again()


@final
class SetAside(PendingDeliveries):
    """These deliveries have failed: each waits for its time."""

    __slots__ = ("failures",)

    def __init__(self, reading: Reading, claimed: Claimed, failures: Mapping[Offset, Failure]) -> None:
        super().__init__(reading, claimed)
        self.failures: Final = failures

    def _take_effect(self, now_ns: int) -> None:
        subscription, count = self.reading.subscription, self.claimed.total
        subscription.waiting += count
        redelivery.set_aside_claimed(self.reading, self.claimed, self.failures)
        subscription.counters.nacked += count


def claim_settled(
    reading: Reading, ranges: list[tuple[int, int]], outcome: Outcome, now_ns: int, sent_at_ns: int = 0
) -> SettledDeliveries:
    """These offsets, of which none is pending, will be settled; those that are in flight were sent then."""
    records: list[Settled] = []
    if reading.is_recorded:
        records = account_of(reading, ranges, outcome, now_ns, sent_at_ns)
    elif reading.topic.context.records is not None:
        reading.topic.context.records.sample(reading, ranges, outcome, now_ns, sent_at_ns)
    return SettledDeliveries(reading, reading.cursor.claim(ranges), outcome, records, sent_at_ns)


def claim_refused(part: Part[Reading], refusal: Refusal, *, holder: Consumer | None) -> SetAside | None:
    """What of these is in flight to `holder`, or free if there is none, will be set aside; None if nothing is."""
    reading, start, stop, sent_at_ns = part
    cursor, owners = reading.cursor, reading.owners
    offsets = [
        offset
        for offset in map(Offset, range(start, stop))
        if (cursor.is_free(offset) if holder is None else cursor.is_in_flight(offset) and owners.has(holder, offset))
    ]
    if not offsets:
        return None
    failures = redelivery.failures_after(reading, offsets, refusal, sent_at_ns)
    return SetAside(reading, reading.cursor.claim([(offset, offset + 1) for offset in offsets]), failures)
