"""What a unit on its way to the store will do to deliveries.

Law: an effect is computed once and never changes: the offsets it speaks of are pending, so nobody else touches them.
The journal writes it, the ledger records it, and `apply` makes it visible; or the store refuses the unit, and `undo`
makes of each delivery what it would be by now. Only COMMIT and dead-lettering make effects: other answers
count at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from stompbroker.delivery import account_of, answering, redelivery
from stompbroker.ids import Offset
from stompbroker.ledger.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stompbroker.commitlog import Claimed
    from stompbroker.delivery import Consumer, Failure, Part, Reading, Refusal
    from stompbroker.ledger.settled import Settled

__all__ = ["Effect", "SetAside", "SettledDeliveries", "claim_refused", "claim_settled"]


class Effect:
    """Deliveries of one reading that are pending for one unit."""

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

    def apply(self, now_ns: int) -> None:
        """The unit is durable."""
        raise NotImplementedError

    def undo(self, now_ns: int) -> None:
        """The store has refused the unit."""
        subscription = self.reading.subscription
        if subscription.is_closed:
            return
        subscription.pending -= self.claimed.total
        subscription.waiting += len(self.claimed.waiting)
        reading = self.reading
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
        """It is decided: whoever has answered in the meantime is heard."""
        subscription = self.reading.subscription
        for consumer in subscription.consumers:
            consumer.sent.forget_settled()
        subscription.offer(self.reading)
        answering.repeat_deferred(self.reading)


@final
class SettledDeliveries(Effect):
    """These deliveries are settled."""

    __slots__ = ("_sent_at_ns", "outcome", "records")

    def __init__(
        self, reading: Reading, claimed: Claimed, outcome: Outcome, records: list[Settled], sent_at_ns: int
    ) -> None:
        super().__init__(reading, claimed)
        self.outcome: Final = outcome
        #: For the ledger; none unless the subscription is durable.
        self.records: Final = records
        self._sent_at_ns: Final = sent_at_ns

    def apply(self, now_ns: int) -> None:
        reading, count = self.reading, self.claimed.total
        subscription = reading.subscription
        if subscription.is_closed:
            return
        subscription.pending -= count
        reading.settle_claimed(self.claimed)
        if self.outcome is Outcome.ACKED:
            subscription.counters.acked += count
            reading.topic.context.times.note_acknowledged(self._sent_at_ns, now_ns, count)
        else:
            subscription.counters.dead += count
        self._finish()

    def _schedule_again(self) -> None:
        if self.outcome is not Outcome.DEAD:  # when a dead letter is tried again is up to whoever made it
            super()._schedule_again()


@final
class SetAside(Effect):
    """These deliveries have failed: each waits for its time."""

    __slots__ = ("failures",)

    def __init__(self, reading: Reading, claimed: Claimed, failures: Mapping[Offset, Failure]) -> None:
        super().__init__(reading, claimed)
        self.failures: Final = failures

    def apply(self, now_ns: int) -> None:
        subscription = self.reading.subscription
        if subscription.is_closed:
            return
        subscription.pending -= self.claimed.total
        subscription.waiting += self.claimed.total
        redelivery.set_aside_claimed(self.reading, self.claimed, self.failures)
        subscription.counters.nacked += self.claimed.total
        self._finish()


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
