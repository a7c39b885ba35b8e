"""What is kept of what one client sends: parked frames, open transactions, and what becomes a unit of the journal.

Law: counts, keeps and joins. Commands decide what is gathered and when it is handed over; the session parks frames and
gives the client up; the worker stops reading.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from stompbroker.changes import Answer, Appended, Numbered, Unit, ValueChanged, Verdict
from stompbroker.clock import NANOSECONDS
from stompbroker.delivery import answering
from stompbroker.errors import PeerViolation
from stompbroker.stomp import weight_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from stompbroker.changes import Effect, Lane, Producer
    from stompbroker.clock import Clock
    from stompbroker.delivery import Consumer, Gate, LastValues, Refusal, Topic
    from stompbroker.memory_budget import MemoryBudget
    from stompbroker.message import Message
    from stompbroker.sessions.client import Consumers, Named
    from stompbroker.sessions.outbox import Outbox
    from stompbroker.stomp import Frame, Limits

#: Bytes a connection may park while the memory budget is tight: parked frames of many connections can cause that.
MAX_TIGHT_BYTES: Final = 32 * 1024
#: Bytes of one client in the journal before no more is read from it. A few chunks, so that the next batch fills while
#: one is written.
MAX_LANE_BYTES: Final = 2 * 1024 * 1024


@final
@dataclass(slots=True, eq=False)
class Parking:
    """The frames of a connection that is held back, in order. A mistake of the client is parked like a frame, because
    its ERROR must not overtake what was sent before it.

    Invariants:
        size_bytes == what the parked frames weigh, and is charged to the budget
    """

    _budget: MemoryBudget
    _max_bytes: int
    _items: deque[Frame | PeerViolation] = field(default_factory=deque)
    size_bytes: int = 0

    def __len__(self) -> int:
        return len(self._items)

    @property
    def is_full(self) -> bool:
        size_bytes = self.size_bytes
        if not size_bytes:
            return False
        bound = min(self._max_bytes, MAX_TIGHT_BYTES) if self._budget.is_tight else self._max_bytes
        return size_bytes >= bound

    def put(self, item: Frame | PeerViolation) -> None:
        self._items.append(item)
        self._charge(0 if isinstance(item, PeerViolation) else weight_bytes(item))

    def put_back(self, items: list[Frame]) -> None:
        """Frames that were taken and could not be applied yet."""
        self._items.extendleft(reversed(items))
        self._charge(sum(map(weight_bytes, items)))

    def take(self, limit: int) -> list[Frame]:
        """The next frames, at most `limit`. Raises a parked PeerViolation if it is first."""
        frames: list[Frame] = []
        while self._items and len(frames) < limit:
            item = self._items[0]
            if isinstance(item, PeerViolation):
                if frames:
                    break
                try:
                    raise item
                finally:
                    del item  # its traceback keeps this frame, which would be a reference cycle
            frames.append(item)
            self._items.popleft()
        self._charge(-sum(map(weight_bytes, frames)))
        return frames

    def clear(self) -> None:
        self._items.clear()
        self._charge(-self.size_bytes)

    def _charge(self, difference_bytes: int) -> None:
        self.size_bytes += difference_bytes
        self._budget.adjust(difference_bytes)


@final
@dataclass(slots=True, eq=False)
class Intake:
    """
    Invariants:
        _stopped_since_ns is None exactly if there was room at the last `note`
    """

    _parking: Parking
    _lane: Lane
    _outbox: Outbox
    _timeout_ns: int
    #: Since when nothing is read, and how much the client had been sent then.
    _stopped_since_ns: int | None = None
    _sent_when_stopped: int = 0

    @property
    def has_room(self) -> bool:
        """False while the parking or the lane is full, or the client does not read its receipts."""
        return (
            not self._parking.is_full and self._lane.size_bytes < MAX_LANE_BYTES and not self._outbox.is_owing_too_much
        )

    @property
    def check_at_ns(self) -> int | None:
        """When to check again; None while there is room."""
        return None if self._stopped_since_ns is None else self._stopped_since_ns + self._timeout_ns

    def note(self, clock: Clock) -> bool:
        """Whether room has just run out. It is called for every chunk, so it reads the clock only then."""
        if self.has_room:
            self._stopped_since_ns = None
            return False
        if self._stopped_since_ns is not None:
            return False
        self._stop(clock.now_ns())
        return True

    def _stop(self, now_ns: int) -> None:
        self._stopped_since_ns = now_ns
        self._sent_when_stopped = self._outbox.sent_bytes

    def check(self, now_ns: int, held_by: Gate | None, consumers: Consumers) -> None:
        """Raise PeerViolation if reading has stopped for too long because of the client itself."""
        if self.check_at_ns is None or now_ns < self.check_at_ns:
            return
        if self._outbox.is_owing_too_much and self._outbox.sent_bytes == self._sent_when_stopped:
            raise PeerViolation(
                "receipts are not read",
                f"{self._outbox.size_bytes} bytes wait to be read by this client, and it took none of them for "
                f"{self._timeout_ns / NANOSECONDS:g} s; read what the broker sends",
            )
        in_flight = consumers.in_flight
        if self._parking.is_full and in_flight and held_by is not None and held_by.waits_for_consumers:
            raise PeerViolation(
                "held back too long",
                f"{held_by.why}, {self._parking.size_bytes} bytes of what this connection sent wait for "
                f"it, and {in_flight} deliveries to it are not acknowledged; acknowledge them, or "
                "publish on another connection",
            )
        self._stop(now_ns)


@final
@dataclass(slots=True, eq=False)
class Transaction:
    """The frames between BEGIN and COMMIT, and the deliveries that their ACKs and NACKs named."""

    begun_at_ns: int
    frames: list[Frame] = field(default_factory=list)
    size_bytes: int = 0
    #: What its ACKs and NACKs named, in their order: looked up when they came, so that COMMIT cannot fail halfway.
    deliveries: list[Named | None] = field(default_factory=list)
    #: What was acknowledged one by one.
    _acknowledged: set[Named] = field(default_factory=set)
    #: Up to which number deliveries were acknowledged cumulatively.
    _highest: dict[Consumer, int] = field(default_factory=dict)
    #: This transaction's part of `consumer.borrowed`.
    _borrowed: dict[Consumer, int] = field(default_factory=dict)

    def borrow(self, delivery: Named) -> None:
        """Free the credit of an acknowledged delivery before COMMIT. Otherwise a client that acknowledges in
        transactions larger than its prefetch would wait for itself."""
        consumer, number = delivery
        if consumer.is_cumulative:
            highest = self._highest.get(consumer, 0)
            count = answering.count_in_flight_between(consumer, highest + 1, number)
            self._highest[consumer] = max(highest, number)
        else:
            count = delivery not in self._acknowledged
            self._acknowledged.add(delivery)
        consumer.borrowed += count
        self._borrowed[consumer] = self._borrowed.get(consumer, 0) + count
        consumer.wake()

    def give_back(self) -> None:
        """The transaction has ended: its deliveries are settled now, or in flight again under the same ids."""
        for consumer, count in self._borrowed.items():
            consumer.borrowed -= count
            consumer.wake()


@final
@dataclass(slots=True, eq=False)
class Transactions:
    """The open transactions of one connection. An id may be used again once its transaction has ended.

    Invariants:
        size_bytes == sum of what the frames of all open transactions weigh
        there are at most max_transactions; each is within max_transaction_frames and max_transaction_bytes
        they are in the order in which they began
    """

    _limits: Limits
    open: dict[str, Transaction] = field(default_factory=dict)
    size_bytes: int = 0

    def begin(self, name: str, now_ns: int) -> None:
        if name in self.open:
            raise PeerViolation(
                "transaction already open",
                f"{name!r} has been begun and neither committed nor aborted; use another name",
            )
        if len(self.open) >= self._limits.max_transactions:
            raise PeerViolation(
                "too many transactions",
                f"{len(self.open)} are open on this connection, which is all it may have; COMMIT or ABORT one first",
            )
        self.open[name] = Transaction(now_ns)

    def find(self, name: str) -> Transaction:
        try:
            return self.open[name]
        except KeyError:
            known = ", ".join(repr(each) for each in list(self.open)[:8]) or "none"
            raise PeerViolation(
                "unknown transaction", f"{name!r} is not open on this connection; open are: {known}"
            ) from None

    def add(self, name: str, frame: Frame) -> Transaction:
        """Keep a SEND, ACK or NACK for COMMIT."""
        transaction = self.find(name)
        size_bytes = weight_bytes(frame)
        if len(transaction.frames) >= self._limits.max_transaction_frames:
            raise PeerViolation(
                "transaction too long",
                f"{name!r} holds {len(transaction.frames)} frames, which is all a transaction may hold; "
                "COMMIT more often",
            )
        if transaction.size_bytes + size_bytes > self._limits.max_transaction_bytes:
            raise PeerViolation(
                "transaction too large",
                f"{name!r} would hold more than {self._limits.max_transaction_bytes} bytes; COMMIT more often",
            )
        transaction.frames.append(frame)
        transaction.size_bytes += size_bytes
        self.size_bytes += size_bytes
        return transaction

    def end(self, name: str) -> Transaction:
        """COMMIT or ABORT."""
        transaction = self.find(name)
        del self.open[name]
        self.size_bytes -= transaction.size_bytes
        transaction.give_back()
        return transaction

    def clear(self) -> None:
        """The connection has ended: abort all of them."""
        for name in list(self.open):
            self.end(name)

    def check_invariants(self) -> None:
        assert self.size_bytes == sum(transaction.size_bytes for transaction in self.open.values())
        assert len(self.open) <= self._limits.max_transactions
        for transaction in self.open.values():
            assert transaction.size_bytes == sum(map(weight_bytes, transaction.frames))
            assert len(transaction.frames) <= self._limits.max_transaction_frames


@final
@dataclass(slots=True, eq=False)
class _Sent:
    """Messages to one topic, perhaps of a producer, which has numbered them."""

    topic: Topic
    messages: list[Message]
    producer: Producer | None
    numbers: list[int]
    #: Those of them that set the topic's last value, or take it away (false).
    values: list[tuple[Message, bool]] = field(default_factory=list)

    def effects(self, last_values: LastValues) -> list[Effect]:
        if self.producer is None:
            appended = Appended(self.topic, self.messages)
        else:
            appended = Numbered(self.topic, self.messages, producer=self.producer, numbers=self.numbers)
        if not self.values:
            return [appended]
        return [appended, ValueChanged(last_values, self.topic.destination, appended, self.values)]


@final
@dataclass(slots=True, eq=False)
class UnitBuilder:
    """What the frames of one chunk change; answers of neighbouring numbers are joined into ranges."""

    _last_values: LastValues
    #: Messages by topic, each in the order they were sent. Written by `Publishing.gather`.
    publications: dict[Topic, list[Message]] = field(default_factory=dict)
    #: The one of these that becomes its topic's last value, or takes that away (false).
    values: dict[Topic, tuple[Message, bool]] = field(default_factory=dict)
    #: What was sent before those, in a transaction with messages of a producer.
    _earlier: list[_Sent] = field(default_factory=list)
    receipts: list[str] = field(default_factory=list)
    _answers: list[Answer] = field(default_factory=list)
    #: The range of acknowledgements being gathered.
    _acknowledging: Consumer | None = None
    _first: int = 0
    _last: int = 0

    def __bool__(self) -> bool:
        return bool(self.publications or self._earlier or self.receipts or self._answers or self._acknowledging)

    def number(
        self, topic: Topic, message: Message, producer: Producer, number: int, *, sets_value: bool | None
    ) -> None:
        """This message of a producer is published if its number is not taken."""
        self._close_publications()
        last = self._earlier[-1] if self._earlier else None
        if last is None or last.topic is not topic or last.producer is not producer:
            last = _Sent(topic, [], producer, [])
            self._earlier.append(last)
        last.messages.append(message)
        last.numbers.append(number)
        if sets_value is not None:
            last.values.append((message, sets_value))

    def _close_publications(self) -> None:
        self._earlier += [
            _Sent(topic, messages, None, [], [self.values[topic]] if topic in self.values else [])
            for topic, messages in self.publications.items()
        ]
        self.publications, self.values = {}, {}

    def acknowledge(self, consumer: Consumer, first: int, last: int) -> None:
        """The deliveries numbered first..last are acknowledged."""
        if consumer is not self._acknowledging or first != self._last + 1:
            self._close_range()
            self._acknowledging = consumer
            self._first = first
        self._last = last

    def refuse(self, consumer: Consumer, first: int, last: int, refusal: Refusal) -> None:
        """The deliveries numbered first..last are refused; if the consumer's answers are cumulative, all up to last."""
        self._close_range()
        before = self._answers[-1] if self._answers else None
        if (
            before is not None
            and before.verdict is Verdict.NACK
            and before.consumer is consumer
            and before.last + 1 == first
            and before.refusal == refusal
            and not consumer.is_cumulative
        ):
            self._answers[-1] = before._replace(last=last)
        else:
            self._answers.append(Answer(consumer, Verdict.NACK, first, last, refusal))

    def take(self, lane: Lane, then: Callable[[list[str]], None]) -> Unit:
        """Everything gathered, as a unit; on completion `then` is called with the receipts to send."""
        self._close_range()
        receipts = self.receipts
        effects: list[Effect] = []
        if self._earlier or self.values:
            self._close_publications()
            effects += [effect for each in self._earlier for effect in each.effects(self._last_values)]
        effects += [Appended(topic, messages) for topic, messages in self.publications.items()]
        unit = Unit(
            effects,
            self._answers,
            then=lambda: then(receipts),
            lane=lane,
            owes_receipt=bool(receipts),
        )
        self.publications = {}
        self._earlier = []
        self.receipts = []
        self._answers = []
        return unit

    def _close_range(self) -> None:
        if self._acknowledging is not None:
            self._answers.append(Answer(self._acknowledging, Verdict.ACK, self._first, self._last))
            self._acknowledging = None
