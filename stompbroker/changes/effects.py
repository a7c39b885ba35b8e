"""What a unit on its way to the store will do to deliveries.

Law: an effect is computed once and never changes: the offsets it speaks of are pending, so nobody else touches them.
The journal writes it, the ledger records it, and `apply` makes it visible; or the store refuses the unit, and `undo`
makes of each delivery what it would be by now. Only COMMIT and dead-lettering make effects: other answers
count at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from stompbroker.delivery import account_of
from stompbroker.ids import Offset
from stompbroker.ledger.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stompbroker.commitlog import Claimed
    from stompbroker.delivery import Failure, Part, Reading, Refusal
    from stompbroker.ledger.settled import Settled

__all__ = ["Effect", "SetAside", "SettledDeliveries", "claim_refused", "claim_settled"]


class Effect:
    """Deliveries of one reading that are pending for one unit."""

    __slots__ = ("_holder", "claimed", "reading")

    def __init__(self, reading: Reading, claimed: Claimed) -> None:
        subscription = reading.subscription
        self.reading: Final = reading
        self.claimed: Final = claimed
        #: The consumer that some of it was in flight to.
        self._holder: Final = subscription.consumer
        subscription.pending += claimed.total
        subscription.waiting -= len(claimed.waiting)
        if subscription.consumer is not None:
            subscription.consumer.give_up_in_flight(reading, claimed)

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
        consumer = subscription.consumer
        is_in_flight = consumer is not None and consumer is self._holder
        self.reading.cursor.give_back(self.claimed, is_in_flight=is_in_flight)
        self._schedule_again()
        if consumer is not None and is_in_flight:
            consumer.take_back_in_flight(self.reading, self.claimed, now_ns)
        self._finish()

    def _schedule_again(self) -> None:
        self.reading.schedule_again(self.claimed.waiting)

    def _finish(self) -> None:
        """It is decided: whoever has answered in the meantime is heard."""
        consumer = self.reading.subscription.consumer
        if consumer is not None:
            consumer.sent.forget_settled()
            consumer.offer(self.reading)
        self.reading.repeat_deferred()


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
            reading.topic.times.note_acknowledged(self._sent_at_ns, now_ns, count)
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
        self.reading.set_aside_claimed(self.claimed, self.failures)
        subscription.counters.nacked += self.claimed.total
        self._finish()


def claim_settled(
    reading: Reading, ranges: list[tuple[int, int]], outcome: Outcome, now_ns: int, sent_at_ns: int = 0
) -> SettledDeliveries:
    """These offsets, of which none is pending, will be settled; those that are in flight were sent then."""
    records: list[Settled] = []
    if reading.is_recorded:
        records = account_of(reading, ranges, outcome, now_ns, sent_at_ns)
    elif reading.topic.records is not None:
        reading.topic.records.sample(reading, ranges, outcome, now_ns, sent_at_ns)
    return SettledDeliveries(reading, reading.cursor.claim(ranges), outcome, records, sent_at_ns)


def claim_refused(part: Part, refusal: Refusal, *, is_in_flight: bool) -> SetAside | None:
    """What of these is in flight, or else free, will be set aside; None if nothing is."""
    reading, start, stop, sent_at_ns = part
    is_meant = reading.cursor.is_in_flight if is_in_flight else reading.cursor.is_free
    offsets = [offset for offset in map(Offset, range(start, stop)) if is_meant(offset)]
    if not offsets:
        return None
    failures = reading.failures_after(offsets, refusal, sent_at_ns)
    return SetAside(reading, reading.cursor.claim([(offset, offset + 1) for offset in offsets]), failures)
