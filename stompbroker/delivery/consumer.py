"""One connection's attachment to a subscription: how much it may get, what it is sent, how it answers.

Law: the only place that turns "there is something to read" into deliveries to a sink, and answered numbers into settled
or waiting offsets. Deliveries are numbered from 1 in the order they were sent, over all topics of the subscription;
"before", for cumulative answers, means a lower number.

Hot path: one run at a time. A run of messages is delivered at once, remembered as one entry and settled by range.

It is long because what is sent and what is answered share one numbering of deliveries.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, final

from stompbroker.delivery.failure import Refusal
from stompbroker.delivery.sent_runs import Part, SentRuns
from stompbroker.delivery.sink import NOWHERE, Deliveries
from stompbroker.delivery.subscription import AckMode
from stompbroker.ids import Offset
from stompbroker.ledger.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from stompbroker.delivery.reading import Reading
    from stompbroker.delivery.ready_queue import ReadyQueue
    from stompbroker.delivery.sink import Sink
    from stompbroker.delivery.subscription import Subscription

__all__ = ["Consumer", "Credit", "Unanswered"]

#: What is handed to the sink at once: the unit of fairness between consumers.
SLICE_MESSAGES: Final = 512
SLICE_BYTES: Final = 256 * 1024
#: The same for what goes again, each of which is looked at for itself.
SLICE_AGAIN: Final = 128


#: Readings remembered beyond twice the messages in flight.
SLACK: Final = 64


class Unanswered(NamedTuple):
    """Deliveries with a deadline, numbered first..last."""

    consumer: Consumer
    first: int
    last: int


@final
class Credit:
    """How much a consumer may have in flight, and how much may wait for redelivery before it gets nothing new."""

    __slots__ = ("max_bytes", "max_messages", "max_waiting")

    def __init__(self, max_messages: int, *, max_waiting: int, max_bytes: int | None = None) -> None:
        self.max_messages = max_messages
        self.max_waiting = max_waiting
        #: Only for clients that count in bytes (`consumer-window-size`, `credit:n,bytes`).
        self.max_bytes = max_bytes


@final
class Consumer:
    """
    Invariants:
        in_flight == how much is in flight to it, over the readings of its subscription
        every reading that something is in flight from to it is in `_served`
        nothing is sent unless `is_open`, and no answer counts unless it is or `is_answerable`
    """

    __slots__ = (
        "__weakref__",
        "_answered_up_to",
        "_has_deadlines",
        "_in_flight_bytes",
        "_queue",
        "_served",
        "_sizes",
        "borrowed",
        "credit",
        "expects_acks",
        "in_flight",
        "is_answerable",
        "is_cumulative",
        "is_open",
        "is_queued",
        "name",
        "ordinal",
        "sent",
        "sink",
        "subscription",
    )

    def __init__(
        self,
        subscription: Subscription,
        *,
        ordinal: int,
        sink: Sink,
        credit: Credit,
        queue: ReadyQueue[Consumer],
        finds_by_message_id: bool = False,
    ) -> None:
        """`finds_by_message_id`: its answers name messages, not delivery numbers."""
        self.subscription = subscription
        #: What its SUBSCRIBE said: its id, whether it answers, and whether an answer covers earlier deliveries too. The
        #: subscription may have been resumed since under another id or in another ack mode.
        self.name = subscription.name
        self.expects_acks = subscription.ack_mode is not AckMode.AUTO
        self.is_cumulative = subscription.ack_mode is AckMode.CLIENT
        #: Its number among the consumers of its connection, never used twice; part of the `ack` id.
        self.ordinal = ordinal
        self.sink = sink
        self.credit = credit
        self.in_flight = 0
        #: In flight, but acknowledged in an open transaction: it does not count against the credit.
        self.borrowed = 0
        self.is_queued = False
        #: From its SUBSCRIBE's receipt until it leaves its subscription.
        self.is_open = False
        #: Whether anything was ever sent to it that had to be answered within a time.
        self._has_deadlines = False
        #: Whether it has left, but of its own will: what it says about what it was sent still counts.
        self.is_answerable = False
        #: In `client` mode: nothing is in flight under a number up to this one.
        self._answered_up_to = 0
        #: For clients that count in bytes: the size of every message in flight, and of all of them.
        self._sizes: dict[tuple[Reading, int], int] = {}
        self._in_flight_bytes = 0
        self.sent: SentRuns[Reading] = SentRuns(finds_by_message_id=self.expects_acks and finds_by_message_id)
        self._queue = queue
        self._served: set[Reading] = set()

    # Readiness -------------------------------------------------------------------------------------------------------

    @property
    def _free_credit(self) -> int:
        """How many more messages it may have in flight.

        In `auto` mode that is a matter of the sink alone: what is in flight there is what has not left our hands yet,
        and counting messages as well would make it wait for each write before the next is delivered.
        """
        if self.subscription.is_paused:
            return 0
        if not self.expects_acks:
            return SLICE_MESSAGES
        if self.in_flight and (self.sink.is_memory_tight or self._is_out_of_bytes):
            # What is unacknowledged must be kept: while memory is tight it has to be answered before more is sent.
            return 0
        return self.credit.max_messages - self.in_flight + min(self.borrowed, self.in_flight)

    @property
    def _is_out_of_bytes(self) -> bool:
        return self.credit.max_bytes is not None and self._in_flight_bytes >= self.credit.max_bytes

    def open(self) -> None:
        """Begin to send."""
        self.is_open = True
        for reading in self.subscription.readings.values():
            if reading.has_more:
                self.subscription.offer(reading)
        self.wake()

    def close(self, *, is_answerable: bool = False) -> None:
        """It has left its subscription: nothing more is sent, and what is in flight is not its own any more."""
        self.is_open = False
        self.is_answerable = is_answerable
        self.sink = NOWHERE

    def oldest_in_flight(self) -> Part[Reading] | None:
        """What it was most likely working on: of what has left our hands the oldest that it has not answered."""
        if not self.expects_acks:
            return None
        for run in self.sent:
            if run.put_at_bytes >= self.sink.sent_bytes:
                break
            for start, stop in run.reading.cursor.unsettled(run.first_offset, run.first_offset + run.count):
                for offset in range(start, stop):
                    number = run.first_number + offset - run.first_offset
                    if run.reading.is_in_flight_to(self, offset, number):
                        return Part(run.reading, offset, offset + 1, run.sent_at_ns)
        return None

    def served(self) -> list[Reading]:
        """The readings that something may be in flight from to it."""
        return [reading for reading in self._served if reading.cursor.in_flight]

    def wake(self) -> None:
        """Something has changed that may let it receive: look, and queue up if so."""
        if self.is_open and self.subscription.to_read and not self.is_queued and self._free_credit > 0:
            if self.sink.has_room:
                self._queue.put(self)
            else:
                self.sink.call_when_room(self.wake)

    # Sending ---------------------------------------------------------------------------------------------------------

    def deliver_slice(self, now_ns: int) -> None:
        """Hand one slice to the sink, if there is credit, room and something to send; then queue up for the next."""
        limit = min(self._free_credit, SLICE_MESSAGES if self.credit.max_bytes is None else 1)
        if limit <= 0 or not self.is_open:
            return
        if not self.sink.has_room:
            self.sink.call_when_room(self.wake)
            return
        reading = self._next_reading()
        if reading is None:
            return
        if reading.cursor.free_count:
            self._deliver_again(reading, min(limit, SLICE_AGAIN), now_ns)
        else:
            self._deliver_new(reading, limit, now_ns)
        self._note_served(reading)
        if reading.missing is not None:
            self.subscription.to_read.remove(reading)
            reading.ask_for(reading.missing)
        if reading.topic.is_blocked:
            self._queue.note_moved(reading.topic)
        self.wake()

    def _note_served(self, reading: Reading) -> None:
        """Remember it while something may be in flight from it; those from which nothing is are cleared out."""
        self._served.add(reading)
        if len(self._served) > 2 * self.in_flight + SLACK:
            self._served = {served for served in self._served if served.cursor.in_flight}

    def _next_reading(self) -> Reading | None:
        """The reading whose turn it is: each gets a slice in turn."""
        only_again = self.expects_acks and self._room_to_wait <= 0
        if self.subscription.is_ordered:
            # Over all topics, also those that wait for a page.
            readings = self.subscription.readings.values()
            only_again = only_again or any(reading.cursor.free_count for reading in readings)
        return self.subscription.to_read.next(only_again=only_again)

    @property
    def _room_to_wait(self) -> int:
        """How many new messages may be sent: all that is in flight or pending may be refused, and then waits."""
        subscription = self.subscription
        return self.credit.max_waiting - subscription.waiting - subscription.pending - subscription.in_flight

    def _deliver_new(self, reading: Reading, limit: int, now_ns: int) -> None:
        if self.expects_acks:
            limit = min(limit, self._room_to_wait)
        first, messages = reading.take_new(self, limit, SLICE_BYTES, now_ns)
        if not messages:
            return
        count = len(messages)
        self.in_flight += count
        self.subscription.counters.delivered += count
        reading.topic.times.note_delivered(messages[0].published_at_ns, now_ns, count)
        first_number = self.sent.next_number
        deliveries = Deliveries(messages, first_number)
        if reading.topic.is_retaining:
            missing_before, reading.replay = reading.missing_before, None
            if missing_before is not None:
                reading.told_missing = first, missing_before
            deliveries = Deliveries(messages, first_number, first, missing_before)
        if not self.expects_acks and reading.topic.records is not None and not self.subscription.is_durable:
            # Now, while the messages are at hand; the log keeps nothing for it.
            reading.topic.records.sample_sent(reading, first, messages, now_ns)
        self._hand_over(reading, first, deliveries, now_ns)
        self._set_deadline(reading, first_number, now_ns)

    def _deliver_again(self, reading: Reading, limit: int, now_ns: int) -> None:
        first_number, count = self.sent.next_number, 0
        for offset, messages, failure, first_sent_ns in reading.take_again(self, limit, SLICE_BYTES, now_ns):
            number = self.sent.next_number
            reading.note_sent_again(offset, len(messages), number)
            deliveries = Deliveries(
                messages,
                number,
                offset if reading.topic.is_retaining else None,
                reading.missing_told_with(offset),
                is_again=True,
                failure=failure,
                first_sent_ns=first_sent_ns,
            )
            count += len(messages)
            self.in_flight += len(messages)
            self._hand_over(reading, offset, deliveries, now_ns)
        self.subscription.counters.delivered += count
        self.subscription.counters.redelivered += count
        if count:
            self._set_deadline(reading, first_number, now_ns)

    def _hand_over(self, reading: Reading, first: Offset, deliveries: Deliveries, now_ns: int) -> None:
        """In flight from now on, until it is answered, or in `auto` mode until it has left our hands."""
        messages, sink = deliveries.messages, self.sink
        if not self.expects_acks:
            sink.deliver(deliveries, partial(self._note_sent, reading, first, Offset(first + len(messages))))
            return
        put_at_bytes = sink.put_bytes
        self.sent.add(reading, first, messages, sent_at_ns=now_ns, put_at_bytes=put_at_bytes)
        sink.deliver(deliveries)
        if self.credit.max_bytes is not None:
            self._count_bytes(reading, first, sink.put_bytes - put_at_bytes)

    def _set_deadline(self, reading: Reading, first_number: int, now_ns: int) -> None:
        """What was just sent has to be answered in time, if the policy says so."""
        deadline_ns = reading.policy.ack_deadline_ns if self.expects_acks else 0
        if deadline_ns:
            self._has_deadlines = True
            numbers = Unanswered(self, first_number, self.sent.next_number - 1)
            reading.topic.deadlines.schedule(now_ns + deadline_ns, numbers)

    # Answers ---------------------------------------------------------------------------------------------------------

    def _note_sent(self, reading: Reading, start: Offset, stop: Offset) -> None:
        """`auto`: these deliveries have left our hands, and that settles them.

        Some may be settled already: by a late ACK of the consumer before this one.
        """
        if not self.is_open:
            return
        if reading.cursor.pending_count:
            unclaimed, pending = reading.split_pending(Part(reading, start, stop, 0))
            for part in pending:
                reading.defer_settling(part, partial(self._settle_sent, part))
            for part in unclaimed:
                self._settle_sent(part)
        else:
            self._settle_sent(Part(reading, start, stop, 0))
        self.wake()

    def _settle_sent(self, part: Part[Reading]) -> None:
        reading, start, stop, _ = part
        settlement = reading.settle_sent(start, stop)
        for holder, count in reading.owners.take_away([(start, stop)], settlement.in_flight):
            holder.in_flight -= count
        self.subscription.counters.acked += settlement.total

    def pass_deadline(self, first: int, last: int, now_ns: int) -> None:
        """The deliveries numbered first..last should have been answered by now: those that were not have failed."""
        for part in self._in_flight_between(first, last):
            deadline_ms = part.reading.policy.ack_deadline_ms
            reason = f"not acknowledged within {deadline_ms / 1000:g} s"
            self.set_aside([part], Refusal(now_ns, reason, is_overdue=True))

    def take_acknowledged(self, first: int, last: int) -> list[Part[Reading]]:
        """What an ACK of the deliveries numbered first..last means; it is answered from now on."""
        counters = self.subscription.counters
        if self.is_cumulative:
            answered = self._meant_between(self._answered_up_to + 1, last - 1)
            # The one that is named is meant whatever state it is in.
            answered += self.sent.parts(last, last + 1)
            answered += self._overdue_up_to(last - 1)
            self._answered_up_to = max(self._answered_up_to, last)
            counters.late += not answered
        else:
            answered = self.sent.parts(first, last + 1)
            # A number that no run holds any more was settled long ago.
            counters.late += last + 1 - first - sum(part.stop - part.start for part in answered)
            counters.late += self._sent_again_since(answered, last)
        return answered

    def _sent_again_since(self, answered: list[Part[Reading]], number: int) -> int:
        """How many of these were sent again, to another or under a number higher than that, and are in flight so."""
        return sum(
            part.reading.cursor.is_in_flight(offset) and not part.reading.is_in_flight_to(self, offset, number)
            for part in answered
            if part.reading.failures
            for offset in range(part.start, part.stop)
        )

    def take_refused(self, first: int, last: int) -> list[Part[Reading]]:
        """What NACKs of the deliveries numbered first..last mean, of which there is one if they are cumulative; they
        are answered from now on."""
        if self.is_cumulative:
            assert first == last
            refused = self._meant_between(self._answered_up_to + 1, last)
            self._answered_up_to = max(self._answered_up_to, last)
            return refused
        return [
            part
            for first_number, whole in self.sent.numbered_parts(first, last + 1)
            for part in self._not_sent_again_since(whole, first_number)
        ]

    @staticmethod
    def _not_sent_again_since(part: Part[Reading], first_number: int) -> Iterator[Part[Reading]]:
        """What was sent under the numbers from that one on, without what has been sent again since."""
        reading, start, stop, sent_at_ns = part
        for number, offset in enumerate(range(start, stop), first_number):
            if reading.was_sent_again(offset, after=number):
                if start < offset:
                    yield Part(reading, start, offset, sent_at_ns)
                start = offset + 1
        if start < stop:
            yield Part(reading, start, stop, sent_at_ns)

    def settle(self, parts: list[Part[Reading]], now_ns: int) -> None:
        """These messages are acknowledged, also if this consumer has left and they are on their way to another."""
        subscription = self.subscription
        if subscription.is_closed:
            return
        counters = subscription.counters
        if subscription.pending or subscription.is_leaving:
            parts = self._without_pending(parts, now_ns)
        for reading, start, stop, sent_at_ns in parts:
            settlement = reading.settle(start, stop, Outcome.ACKED, now_ns, sent_at_ns=sent_at_ns)
            reading.topic.times.note_acknowledged(sent_at_ns, now_ns, settlement.total)
            for holder, count in reading.owners.take_away([(start, stop)], settlement.in_flight):
                holder.give_up_in_flight(reading, [(start, stop)], count)
                if holder is not self:
                    holder.sent.forget_settled()
            subscription.waiting -= settlement.waiting
            counters.acked += settlement.total
            counters.late += stop - start - settlement.in_flight
        self.sent.forget_settled()
        subscription.wake()

    def _without_pending(self, parts: list[Part[Reading]], now_ns: int) -> list[Part[Reading]]:
        """What is not pending; the rest is acknowledged once more when that is decided."""
        found: list[Part[Reading]] = []
        for whole in parts:
            unclaimed, pending = whole.reading.split_pending(whole)
            found += unclaimed
            for part in pending:
                part.reading.defer_settling(part, partial(self.settle, [part], now_ns))
        return found

    def give_up_in_flight(self, reading: Reading, ranges: Iterable[tuple[int, int]], count: int) -> None:
        """So many of these were in flight to it and are not any more: their credit is free."""
        self.in_flight -= count
        if self._sizes:
            for start, stop in ranges:
                self._uncount_bytes(reading, start, stop)

    def take_back_in_flight(self, reading: Reading, ranges: list[tuple[int, int]], now_ns: int) -> None:
        """What was pending is in flight again, under the numbers it had, and has its whole time to be answered."""
        self.in_flight += sum(stop - start for start, stop in ranges)
        self._answered_up_to = 0
        self._note_served(reading)
        deadline_ns = reading.policy.ack_deadline_ns
        if deadline_ns:
            for first, last in self.sent.numbers_of(reading, ranges):
                reading.topic.deadlines.schedule(now_ns + deadline_ns, Unanswered(self, first, last))

    def set_aside(self, parts: list[Part[Reading]], refusal: Refusal, *, answers: int = 1) -> None:
        """These messages are refused, by so many answers. If this consumer has left, only those that nobody was sent
        since."""
        subscription = self.subscription
        if subscription.is_closed:
            return
        set_aside = 0
        for part in parts:
            count = part.reading.set_aside(part, refusal, holder=self if self.is_open else None)
            if self.is_open:
                self.give_up_in_flight(part.reading, [(part.start, part.stop)], count)
            set_aside += count
        subscription.waiting += set_aside
        if refusal.is_overdue:
            subscription.counters.overdue += set_aside
        else:
            subscription.counters.nacked += set_aside
            subscription.counters.late += max(0, answers - set_aside)
        self.sent.forget_settled()
        subscription.wake()

    def count_in_flight_between(self, first: int, last: int) -> int:
        """How many of the deliveries numbered first..last are in flight."""
        return sum(part.stop - part.start for part in self._in_flight_between(first, last))

    def _count_bytes(self, reading: Reading, offset: int, size_bytes: int) -> None:
        """For clients that count in bytes, who get one message at a time."""
        self._sizes[reading, offset] = size_bytes
        self._in_flight_bytes += size_bytes

    def _uncount_bytes(self, reading: Reading, start: int, stop: int) -> None:
        if self._sizes:
            for offset in range(start, stop):
                self._in_flight_bytes -= self._sizes.pop((reading, offset), 0)

    def _meant_between(self, first: int, last: int) -> list[Part[Reading]]:
        """What a cumulative answer means of the numbers first..last: what is in flight, or, once it has left, what was
        and nobody has settled or refused since."""
        if self.is_open:
            return self._in_flight_between(first, last)
        return [
            Part(reading, offset, offset + 1, sent_at_ns)
            for reading, start, stop, sent_at_ns in self.sent.parts(first, last + 1)
            for low, high in reading.cursor.unsettled(start, stop)
            for offset in range(low, high)
            if not reading.cursor.is_waiting(offset)
        ]

    def _in_flight_between(self, first: int, last: int) -> list[Part[Reading]]:
        """What is in flight under the numbers first..last. What waits was refused before, and what has been sent again
        since has a higher number: neither is meant."""
        found: list[Part[Reading]] = []
        for reading, start, stop, sent_at_ns in self.sent.parts(first, last + 1):
            for low, high in reading.cursor.unsettled(start, stop):
                if reading.is_all_in_flight and not reading.failures and reading.owners.is_alone(self):
                    found.append(Part(reading, low, high, sent_at_ns))
                    continue
                found.extend(
                    Part(reading, offset, offset + 1, sent_at_ns)
                    for offset in range(low, high)
                    if reading.is_in_flight_to(self, offset, last)
                )
        return found

    def _overdue_up_to(self, last: int) -> list[Part[Reading]]:
        """What was sent under the numbers up to `last` and is set aside only because it was not answered in time."""
        if not self._has_deadlines:
            return []
        return [
            Part(reading, offset, offset + 1, sent_at_ns)
            for reading, start, stop, sent_at_ns in self.sent.parts(1, last + 1)
            for offset, failure in reading.failures.items()
            if start <= offset < stop and failure.is_overdue and not reading.cursor.is_in_flight(offset)
        ]

    def check_invariants(self) -> None:
        readings = self.subscription.readings.values()
        for reading in readings:
            reading.check_invariants()
        assert self.in_flight == sum(reading.owners.count_of(self, reading.cursor) for reading in readings)
        assert self.subscription.waiting == sum(reading.cursor.waiting_count for reading in readings)
        assert self.subscription.pending == sum(reading.cursor.pending_count for reading in readings)
        self.subscription.to_read.check_invariants(readings)
        assert {reading for reading in readings if reading.owners.count_of(self, reading.cursor)} <= self._served
        assert self._in_flight_bytes == sum(self._sizes.values())
        self.sent.check_invariants()
