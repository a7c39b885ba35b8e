"""One connection's attachment to a subscription: how much it may get, what it has in flight, and which delivery number
was which message.

Law: state and credit only. Deliveries are numbered from 1 in the order they were sent, over all topics of the
subscription. `sending` hands messages to the sink, `answering` takes the answers. Hot path: deliveries in a row are one
entry.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import KW_ONLY, InitVar, dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, final

from stompbroker.delivery.sink import NOWHERE
from stompbroker.delivery.subscription import AckMode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from stompbroker.delivery.reading import Reading
    from stompbroker.delivery.sink import Sink
    from stompbroker.delivery.subscription import ReadyQueue, Subscription
    from stompbroker.ids import ConnectionId, Offset
    from stompbroker.message import Message

#: The most messages that are handed to a sink at once: the unit of fairness between consumers.
SLICE_MESSAGES: Final = 512
#: Runs are cleared when there are this many beyond twice what was left after the last clearing, and readings when there
#: are this many beyond twice the messages in flight.
SLACK: Final = 64
#: Beyond so many runs, those are forgotten whose messages have all been sent again since; a late answer to one of them
#: settles nothing. More than prefetch and max_waiting need by default.
MAX_RUNS: Final = 32 * 1024


class Part(NamedTuple):
    """The messages of one reading at [start, stop), and when they were sent."""

    reading: Reading
    start: int
    stop: int
    sent_at_ns: int


@final
@dataclass(slots=True, eq=False)
class Run:
    """Deliveries in a row: number `first_number + i` is the message at `first_offset + i` of one topic."""

    first_number: int
    reading: Reading
    first_offset: Offset
    count: int
    sent_at_ns: int
    #: How many bytes its connection had been owed before, ever.
    put_at_bytes: int

    @property
    def is_settled(self) -> bool:
        return self.reading.cursor.is_settled(self.first_offset, self.first_offset + self.count)

    @property
    def is_superseded(self) -> bool:
        """Whether everything unsettled in it has been sent again under a higher number."""
        return all(
            self.reading.was_sent_again(offset, after=self.first_number + self.count - 1)
            for start, stop in self.reading.cursor.unsettled(self.first_offset, self.first_offset + self.count)
            for offset in range(start, stop)
        )


@final
@dataclass(slots=True, eq=False)
class SentRuns:
    """Which delivery number, and for STOMP 1.0 and 1.1 which message id, was which message. The cursors know what is
    settled.

    Invariants:
        runs are sorted by number and do not overlap
        a number below next_number that no run holds was settled, or superseded long ago
    """

    finds_by_message_id: InitVar[bool]
    _by_message_id: dict[bytes, int] | None = field(init=False)
    _runs: list[Run] = field(default_factory=list)
    _firsts: list[int] = field(default_factory=list)
    _clear_at: int = SLACK
    #: Together with the consumer it is the `ack` id on the wire.
    next_number: int = 1

    def __post_init__(self, finds_by_message_id: bool) -> None:
        self._by_message_id = {} if finds_by_message_id else None

    def was_given(self, number: int) -> bool:
        return 0 < number < self.next_number

    def number_of(self, message_id: bytes) -> int | None:
        """The number under which a message was last sent."""
        assert self._by_message_id is not None
        return self._by_message_id.get(message_id)

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    def add(
        self, reading: Reading, first: Offset, messages: Sequence[Message], *, sent_at_ns: int, put_at_bytes: int
    ) -> None:
        """These messages, from offset `first` on, have been sent under the next numbers."""
        if self._by_message_id is not None:
            for number, message in enumerate(messages, self.next_number):
                self._by_message_id[message.message_id] = number
        self._runs.append(Run(self.next_number, reading, first, len(messages), sent_at_ns, put_at_bytes))
        self._firsts.append(self.next_number)
        self.next_number += len(messages)

    def take_numbers(self, count: int) -> int:
        """The first of the next numbers, for deliveries that settle nothing: an answer to one of them is late."""
        first = self.next_number
        self.next_number += count
        return first

    def parts(self, first: int, stop: int) -> list[Part]:
        """What was sent under the numbers first..stop-1."""
        return [part for _, part in self.numbered_parts(first, stop)]

    def numbered_parts(self, first: int, stop: int) -> list[tuple[int, Part]]:
        """The same, each with the number of its first delivery."""
        found: list[tuple[int, Part]] = []
        for index in range(max(bisect_right(self._firsts, first) - 1, 0), len(self._runs)):
            run = self._runs[index]
            if run.first_number >= stop:
                break
            low = max(first, run.first_number)
            high = min(stop, run.first_number + run.count)
            if low < high:
                to_offset = run.first_offset - run.first_number
                found.append((low, Part(run.reading, low + to_offset, high + to_offset, run.sent_at_ns)))
        return found

    def numbers_of(self, reading: Reading, ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """The numbers, first and last, under which messages were sent. Looks at all runs."""
        found: list[tuple[int, int]] = []
        for run in self._runs if ranges else ():
            for start, stop in ranges if run.reading is reading else ():
                low, high = max(start, run.first_offset), min(stop, run.first_offset + run.count)
                if low < high:
                    to_number = run.first_number - run.first_offset
                    found.append((low + to_number, high - 1 + to_number))
        return found

    def sent_at_ns(self, reading: Reading, offset: int) -> int | None:
        """When a message was last sent. Looks at all runs."""
        for run in reversed(self._runs):
            if run.reading is reading and run.first_offset <= offset < run.first_offset + run.count:
                return run.sent_at_ns
        return None

    @property
    def oldest_sent_ns(self) -> int | None:
        """When the oldest unsettled delivery was sent."""
        return next((run.sent_at_ns for run in self._runs if not run.is_settled), None)

    def is_unsettled(self, number: int) -> bool:
        parts = self.parts(number, number + 1)
        return any(not part.reading.cursor.is_settled(part.start, part.stop) for part in parts)

    def forget_settled(self) -> None:
        """Drop settled runs: those at the front at once, others when they have piled up."""
        settled = 0
        while settled < len(self._runs) and self._runs[settled].is_settled:
            settled += 1
        if settled:
            del self._runs[:settled], self._firsts[:settled]
        if len(self._runs) + len(self._by_message_id or ()) <= self._clear_at:
            return
        self._runs = [run for run in self._runs if not run.is_settled]
        if len(self._runs) > MAX_RUNS:
            self._runs = [run for run in self._runs if not run.is_superseded]
        self._firsts = [run.first_number for run in self._runs]
        if self._by_message_id is not None:
            self._by_message_id = {
                message_id: number for message_id, number in self._by_message_id.items() if self.is_unsettled(number)
            }
        self._clear_at = 2 * (len(self._runs) + len(self._by_message_id or ())) + SLACK

    def check_invariants(self) -> None:
        assert self._firsts == [run.first_number for run in self._runs]
        stops = [run.first_number + run.count for run in self._runs]
        assert all(stop <= first for stop, first in zip(stops, [*self._firsts, self.next_number][1:], strict=True))


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
    queue: ReadyQueue
    #: Whether its answers name messages, not delivery numbers.
    finds_by_message_id: InitVar[bool] = False
    #: From its own SUBSCRIBE; others may attach under another id or in another ack mode. None: the subscription's.
    ack_mode: InitVar[AckMode | None] = None
    name: str | None = None
    #: The connection it belongs to, and its address, for people.
    connection_id: ConnectionId | None = None
    peer: str = ""
    #: Whether it is told where each message is in this broker's store.
    is_of_bridge: bool = False
    #: If it is a member of a group: its connection's name as a publisher, by which the ledger knows it.
    member: str | None = None
    expects_acks: bool = field(init=False)
    is_cumulative: bool = field(init=False)
    #: Whether what it is handed is settled by that: nobody would be sent it again, whatever becomes of its connection.
    settles_at_once: bool = field(init=False)
    sent: SentRuns = field(init=False)
    in_flight: int = 0
    #: Deliveries, redeliveries among them.
    delivered: int = 0
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

    def __post_init__(self, finds_by_message_id: bool, ack_mode: AckMode | None) -> None:
        ack_mode = ack_mode or self.subscription.ack_mode
        self.name = self.subscription.name if self.name is None else self.name
        self.expects_acks = ack_mode is not AckMode.AUTO
        self.is_cumulative = ack_mode is AckMode.CLIENT
        subscription = self.subscription
        self.settles_at_once = not (self.expects_acks or subscription.is_durable or subscription.is_shared)
        self.sent = SentRuns(self.expects_acks and finds_by_message_id)

    # Readiness -------------------------------------------------------------------------------------------------------

    @property
    def free_credit(self) -> int:
        """How many more messages it may have in flight. In `auto` mode only the room in the sink counts: otherwise it
        would wait for each write before the next slice. A member of a group has its credit in every mode: it must not
        hoard what others could work on."""
        subscription = self.subscription
        if subscription.is_paused or (subscription.is_exclusive and subscription.consumer is not self):
            return 0
        if not self.expects_acks:
            return self.credit.max_messages - self.in_flight if subscription.is_shared else SLICE_MESSAGES
        max_bytes = self.credit.max_bytes
        is_out_of_bytes = max_bytes is not None and self._in_flight_bytes >= max_bytes
        if self.in_flight and (self.sink.outlet.is_memory_tight or is_out_of_bytes):
            # Unacknowledged messages stay in memory: while that is tight they must be answered first.
            return 0
        return self.credit.max_messages - self.in_flight + min(self.borrowed, self.in_flight)

    @property
    def room_to_wait(self) -> int:
        """How many new messages may be sent so that, if all are refused, not too many wait."""
        subscription = self.subscription
        return self.credit.max_waiting - subscription.waiting - subscription.pending - subscription.in_flight

    def open(self) -> None:
        is_first = not any(each.is_open for each in self.subscription.consumers)
        self.is_open = True
        if is_first:  # others know what there is to read
            for reading in self.subscription.readings.values():
                if reading.has_more:
                    self.subscription.offer(reading)
        self.wake()

    def close(self, *, is_answerable: bool = False) -> None:
        """It has left its subscription: nothing more is sent to it."""
        self.is_open = False
        self.is_answerable = is_answerable
        self.sink = NOWHERE

    def oldest_in_flight(self) -> Part | None:
        """The oldest delivery that reached the kernel and is not answered: most likely what it was working on."""
        if not self.expects_acks:
            return None
        for run in self.sent:
            if run.put_at_bytes >= self.sink.outlet.sent_bytes:
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
        """Queue up if it may receive something now; called at times when it may."""
        subscription = self.subscription
        has_more = subscription.to_read.readings or subscription.browser or subscription.greeting
        if not has_more or self.is_queued or not self.is_open or self.free_credit <= 0:
            return
        outlet = self.sink.outlet
        if outlet.has_room:
            self.queue.put(self)
        else:
            outlet.call_when_room(self.wake)

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
