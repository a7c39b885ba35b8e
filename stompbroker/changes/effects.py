"""What a unit on its way to the store will do.

Law: an effect is computed once. The journal writes it, the ledger records it, and `apply` makes it visible; or the
store refuses the unit, and `undo` takes back what the effect had claimed. Only COMMIT and dead-lettering claim
deliveries: other answers count at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

from stompbroker.delivery import account_of, answering, appending, withdrawing
from stompbroker.errors import PeerViolation
from stompbroker.ids import Offset
from stompbroker.ledger.records import Outcome
from stompbroker.message import size_of_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from stompbroker.commitlog import Claimed
    from stompbroker.counting import Totals
    from stompbroker.delivery import (
        Consumer,
        Failure,
        LastValue,
        LastValues,
        Part,
        Pattern,
        Reading,
        Refusal,
        Registry,
        Subscription,
        Topic,
        Untold,
    )
    from stompbroker.ledger.records import Settled
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


@dataclass(slots=True, eq=False)
class Appended(Effect):
    """These messages are published to a topic."""

    topic: Topic
    messages: list[Message]
    #: The first of their offsets, if the batch that is being formed writes them.
    first: Offset | None = None

    def __post_init__(self) -> None:
        self.topic.pending_units += 1

    @property
    def is_stored(self) -> bool:
        topic = self.topic
        return topic.is_stored or topic.log.reserved_end > topic.log.end_offset

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
        if self.messages:
            appending.append(self.topic, self.messages, now_ns, reserved=self.first)

    def undo(self, now_ns: int, reason: str) -> None:
        self.topic.pending_units -= 1


@final
@dataclass(slots=True, eq=False)
class Told(Appended):
    """Publishers are told what became of their messages. A unit may lose it, and do the rest."""

    _totals: Totals = field(kw_only=True)
    _note_lost: Callable[[str, int, str], None] = field(kw_only=True)

    def apply(self, now_ns: int) -> None:
        self._totals.outcomes_told += len(self.messages)
        Appended.apply(self, now_ns)

    def lose(self, reason: str) -> None:
        """The store does not take it."""
        self.topic.pending_units -= 1
        self._note_lost(self.topic.destination.key, len(self.messages), reason)


@final
@dataclass(slots=True, eq=False)
class ValueChanged(Effect):
    """A topic gets another last value, or has none any more."""

    values: LastValues
    destination: Pattern
    #: What is published with it, and which of those messages set the value or take it away (false): the last of them
    #: that is published counts, since a producer may have repeated some. Nothing takes the value away.
    _appended: Appended | None = None
    _said: list[tuple[Message, bool]] = field(default_factory=list)
    #: What is taken away, unless there is another value by then; None for any.
    expired: LastValue | None = None

    @property
    def is_void(self) -> bool:
        if self.expired is not None:
            return self.values.get(self.destination.key) is not self.expired
        return self._appended is not None and self._last_said is None

    @property
    def message(self) -> Message | None:
        """The value from now on; None if there is none."""
        last = self._last_said
        return last[0] if last is not None and last[1] else None

    @property
    def _last_said(self) -> tuple[Message, bool] | None:
        published = () if self._appended is None else self._appended.messages
        return next((said for said in reversed(self._said) if said[0] in published), None)

    @property
    def is_stored(self) -> bool:
        return self.values.is_stored

    def apply(self, now_ns: int) -> None:
        if self.is_void:
            return
        message = self.message
        if message is None:
            self.values.remove(self.destination.key)
        else:
            self.values.set(self.destination, message)


@final
@dataclass(slots=True, eq=False)
class Purged(Effect):
    """These messages go, although somebody may not have settled them; they may be without their bodies."""

    topic: Topic
    messages: Mapping[Offset, Message]

    def apply(self, now_ns: int) -> None:
        withdrawing.purge(self.topic, self.messages, now_ns)


@final
@dataclass(slots=True, eq=False)
class Created(Effect):
    """A durable subscription, which the registry has, begins."""

    subscription: Subscription
    _registry: Registry

    def apply(self, now_ns: int) -> None:
        self._registry.begin(self.subscription, now_ns)

    def undo(self, now_ns: int, reason: str) -> None:
        consumers = list(self.subscription.consumers)  # perhaps of another connection by now
        for consumer in consumers:
            consumer.sink.disconnect(PeerViolation("cannot be stored", reason))
        self._registry.leave(consumers, now_ns)
        self._registry.remove_durable(self.subscription, now_ns)


@final
@dataclass(slots=True, eq=False)
class Removed(Effect):
    """A durable subscription ends. From now on nobody can attach to it, unless the store refuses to let it go."""

    #: Nobody may be attached to it.
    subscription: Subscription
    _registry: Registry
    #: What becomes of what it has not settled.
    outcome: Outcome = Outcome.UNSUBSCRIBED

    def __post_init__(self) -> None:
        assert not self.subscription.consumers
        self._registry.forget_durable(self.subscription)

    @property
    def readings(self) -> Iterable[Reading]:
        return self.subscription.readings.values()

    def apply(self, now_ns: int) -> None:
        self._registry.remove_durable(self.subscription, now_ns)

    def undo(self, now_ns: int, reason: str) -> None:
        self._registry.remember_durable(self.subscription)


@dataclass(slots=True, eq=False)
class PendingDeliveries(Effect):
    """Deliveries of one reading that are pending for one unit: nobody else touches them."""

    reading: Reading
    claimed: Claimed
    #: What of it was in flight, and to which consumers.
    _held: list[tuple[Consumer, list[tuple[int, int]]]] = field(init=False)

    def __post_init__(self) -> None:
        reading, claimed = self.reading, self.claimed
        subscription, in_flight = reading.subscription, claimed.in_flight_ranges
        self._held = reading.owners.split(in_flight)
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
        answering.schedule_again(self.reading, self.claimed.waiting)

    def _finish(self) -> None:
        """It is decided: apply the answers that came meanwhile."""
        subscription = self.reading.subscription
        for consumer in subscription.consumers:
            consumer.sent.forget_settled()
        subscription.offer(self.reading)
        answering.repeat_deferred(self.reading)


@final
@dataclass(slots=True, eq=False)
class SettledDeliveries(PendingDeliveries):
    """These deliveries are settled: acknowledged, or dead."""

    outcome: Outcome
    #: For the ledger; none unless the subscription is durable.
    records: list[Settled]
    #: For publishers that ask; the journal makes effects of them when it forms the batch.
    untold: list[Untold]
    _sent_at_ns: int

    @property
    def size_bytes(self) -> int:
        return size_of_all([each.message for each in self.untold])

    def _take_effect(self, now_ns: int) -> None:
        reading, count = self.reading, self.claimed.total
        reading.settle_claimed(self.claimed)
        reading.tell(self.untold)
        if self.outcome is Outcome.ACKED:
            reading.subscription.counters.acked += count
            reading.topic.context.times.note_acknowledged(self._sent_at_ns, now_ns, count)
        else:
            reading.subscription.counters.dead += count

    def _schedule_again(self) -> None:
        if self.outcome is not Outcome.DEAD:  # `DeadLetters` decides when a dead letter is tried again
            answering.schedule_again(self.reading, self.claimed.waiting)


@final
@dataclass(slots=True, eq=False)
class SetAside(PendingDeliveries):
    """These deliveries have failed: each waits for its time."""

    failures: Mapping[Offset, Failure]

    def _take_effect(self, now_ns: int) -> None:
        subscription, count = self.reading.subscription, self.claimed.total
        subscription.waiting += count
        answering.set_aside_claimed(self.reading, self.claimed, self.failures)
        subscription.counters.nacked += count


def claim_settled(
    reading: Reading,
    ranges: list[tuple[int, int]],
    outcome: Outcome,
    now_ns: int,
    sent_at_ns: int = 0,
    member: str | None = None,
) -> SettledDeliveries:
    """These offsets, of which none is pending, will be settled; those that are in flight were sent then."""
    records: list[Settled] = []
    if reading.is_recorded:
        records = account_of(reading, ranges, outcome, now_ns, sent_at_ns, member)
    elif reading.topic.context.records is not None:
        reading.topic.context.records.sample(reading, ranges, outcome, now_ns, sent_at_ns, member)
    untold = reading.outcomes(ranges, outcome, was_sent=sent_at_ns > 0)
    if untold:
        reading.topic.context.telling.is_in_units = True
    return SettledDeliveries(reading, reading.claim(ranges), outcome, records, untold, sent_at_ns)


def claim_refused(consumer: Consumer, part: Part, refusal: Refusal) -> SetAside | None:
    """What of these is in flight to this consumer, or free if it has left, will be set aside; None if nothing is."""
    reading, start, stop, sent_at_ns = part
    cursor, owners = reading.cursor, reading.owners
    offsets = [
        offset
        for offset in map(Offset, range(start, stop))
        if (
            cursor.is_in_flight(offset) and owners.has(consumer, offset) if consumer.is_open else cursor.is_free(offset)
        )
    ]
    if not offsets:
        return None
    failures = answering.failures_after(reading, offsets, refusal, sent_at_ns, consumer)
    return SetAside(reading, reading.cursor.claim([(offset, offset + 1) for offset in offsets]), failures)
