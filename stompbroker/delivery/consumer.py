"""One connection's attachment to a subscription: how much it may get, and what it has in flight.

Law: state and credit only. Deliveries are numbered from 1 in the order they were sent, over all topics of the
subscription. `sending` hands messages to the sink, `answering` takes the answers.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, InitVar, dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, final

from stompbroker.delivery.sent_runs import Part, SentRuns
from stompbroker.delivery.sink import NOWHERE
from stompbroker.delivery.subscription import AckMode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stompbroker.delivery.queues import ReadyQueue
    from stompbroker.delivery.reading import Reading
    from stompbroker.delivery.sink import Sink
    from stompbroker.delivery.subscription import Subscription
    from stompbroker.delivery.topic import Topic

#: The most messages that are handed to a sink at once: the unit of fairness between consumers.
SLICE_MESSAGES: Final = 512
#: Readings remembered beyond twice the messages in flight.
SLACK: Final = 64


class Unanswered(NamedTuple):
    """Deliveries with a deadline, numbered first..last."""

    consumer: Consumer
    first: int
    last: int


@final
@dataclass(slots=True)
class Credit:
    """How much a consumer may have in flight, and how much may wait for redelivery before it gets nothing new."""

    max_messages: int
    _: KW_ONLY
    max_waiting: int
    #: Only for clients that count in bytes (`consumer-window-size`, `credit:n,bytes`).
    max_bytes: int | None = None


@final
@dataclass(slots=True, weakref_slot=True, eq=False, repr=False)
class Consumer:
    """
    Invariants:
        in_flight == how much is in flight to it, over the readings of its subscription
        every reading that something is in flight from to it is in `_served`
        nothing is sent unless `is_open`, and no answer counts unless it is or `is_answerable`
    """

    subscription: Subscription
    _: KW_ONLY
    #: Its number among the consumers of its connection, never used twice; part of the `ack` id.
    ordinal: int
    sink: Sink
    credit: Credit
    queue: ReadyQueue[Consumer, Topic]
    #: Whether its answers name messages, not delivery numbers.
    finds_by_message_id: InitVar[bool] = False
    #: From its own SUBSCRIBE; a later one may resume the subscription under another id or in another ack mode.
    name: str | None = field(init=False)
    expects_acks: bool = field(init=False)
    is_cumulative: bool = field(init=False)
    sent: SentRuns[Reading] = field(init=False)
    in_flight: int = 0
    #: In flight, but acknowledged in an open transaction: these use no credit.
    borrowed: int = 0
    is_queued: bool = False
    #: From when its SUBSCRIBE is durable until it leaves.
    is_open: bool = False
    #: Whether it was ever sent anything with a deadline.
    has_deadlines: bool = False
    #: Whether it left by UNSUBSCRIBE: its answers still count.
    is_answerable: bool = False
    #: In `client` mode: nothing is in flight under a number up to this one.
    answered_up_to: int = 0
    #: For clients that count in bytes: the size of every message in flight, and of all of them.
    _sizes: dict[tuple[Reading, int], int] = field(default_factory=dict)
    _in_flight_bytes: int = 0
    _served: set[Reading] = field(default_factory=set)

    def __post_init__(self, finds_by_message_id: bool) -> None:
        self.name = self.subscription.name
        self.expects_acks = self.subscription.ack_mode is not AckMode.AUTO
        self.is_cumulative = self.subscription.ack_mode is AckMode.CLIENT
        self.sent = SentRuns(finds_by_message_id=self.expects_acks and finds_by_message_id)

    # Readiness -------------------------------------------------------------------------------------------------------

    @property
    def free_credit(self) -> int:
        """How many more messages it may have in flight. In `auto` mode only the room in the sink counts: otherwise it
        would wait for each write before the next slice."""
        if self.subscription.is_paused:
            return 0
        if not self.expects_acks:
            return SLICE_MESSAGES
        if self.in_flight and (self.sink.is_memory_tight or self._is_out_of_bytes):
            # Unacknowledged messages stay in memory: while that is tight they must be answered first.
            return 0
        return self.credit.max_messages - self.in_flight + min(self.borrowed, self.in_flight)

    @property
    def _is_out_of_bytes(self) -> bool:
        return self.credit.max_bytes is not None and self._in_flight_bytes >= self.credit.max_bytes

    @property
    def room_to_wait(self) -> int:
        """How many new messages may be sent so that, if all are refused, not too many wait."""
        subscription = self.subscription
        return self.credit.max_waiting - subscription.waiting - subscription.pending - subscription.in_flight

    def open(self) -> None:
        """Begin to send."""
        self.is_open = True
        for reading in self.subscription.readings.values():
            if reading.has_more:
                self.subscription.offer(reading)
        self.wake()

    def close(self, *, is_answerable: bool = False) -> None:
        """It has left its subscription: nothing more is sent to it."""
        self.is_open = False
        self.is_answerable = is_answerable
        self.sink = NOWHERE

    def oldest_in_flight(self) -> Part[Reading] | None:
        """The oldest delivery that reached the kernel and is not answered: most likely what it was working on."""
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
        """The readings that it may have something in flight from."""
        return [reading for reading in self._served if reading.cursor.in_flight]

    def wake(self) -> None:
        """Queue up if it may receive something now."""
        if self.is_open and self.subscription.to_read and not self.is_queued and self.free_credit > 0:
            if self.sink.has_room:
                self.queue.put(self)
            else:
                self.sink.call_when_room(self.wake)

    # In flight --------------------------------------------------------------------------------------------------------

    def note_served(self, reading: Reading) -> None:
        """It was sent something from this reading. Readings that have nothing in flight are cleared out at times."""
        self._served.add(reading)
        if len(self._served) > 2 * self.in_flight + SLACK:
            self._served = {served for served in self._served if served.cursor.in_flight}

    def give_up_in_flight(self, reading: Reading, ranges: Iterable[tuple[int, int]], count: int) -> None:
        """`count` of these were in flight to it and are not any more: their credit is free."""
        self.in_flight -= count
        if self._sizes:
            for start, stop in ranges:
                for offset in range(start, stop):
                    self._in_flight_bytes -= self._sizes.pop((reading, offset), 0)

    def take_back_in_flight(self, reading: Reading, ranges: list[tuple[int, int]], now_ns: int) -> None:
        """What was pending is in flight again, under its old numbers, with a new deadline."""
        self.in_flight += sum(stop - start for start, stop in ranges)
        self.answered_up_to = 0
        self.note_served(reading)
        deadline_ns = reading.policy.ack_deadline_ns
        if deadline_ns:
            for first, last in self.sent.numbers_of(reading, ranges):
                reading.topic.context.deadlines.schedule(now_ns + deadline_ns, Unanswered(self, first, last))

    def count_bytes(self, reading: Reading, offset: int, size_bytes: int) -> None:
        """For clients that count in bytes: these get one message at a time."""
        self._sizes[reading, offset] = size_bytes
        self._in_flight_bytes += size_bytes

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
