"""What a client's frames gather before it becomes a unit of the journal: of one chunk, and in open transactions.

Law: keeps and joins; commands decide what is gathered, and when it is handed over.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

from stompbroker.changes import Answer, Appended, Unit, Verdict
from stompbroker.delivery import answering
from stompbroker.errors import PeerViolation
from stompbroker.stomp import weight_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from stompbroker.changes import Lane
    from stompbroker.delivery import Consumer, Refusal, Topic
    from stompbroker.message import Message
    from stompbroker.sessions.consumers import Named
    from stompbroker.stomp import Frame, Limits


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
class UnitBuilder:
    """What the frames of one chunk change; answers of neighbouring numbers are joined into ranges."""

    #: Messages by topic, each in the order they were sent. Written by `Publishing.gather`.
    publications: dict[Topic, list[Message]] = field(default_factory=dict)
    receipts: list[str] = field(default_factory=list)
    _answers: list[Answer] = field(default_factory=list)
    #: The range of acknowledgements being gathered.
    _acknowledging: Consumer | None = None
    _first: int = 0
    _last: int = 0

    def __bool__(self) -> bool:
        return bool(self.publications or self.receipts or self._answers or self._acknowledging)

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
        unit = Unit(
            [Appended(topic, messages) for topic, messages in self.publications.items()],
            self._answers,
            then=lambda: then(receipts),
            lane=lane,
            owes_receipt=bool(receipts),
        )
        self.publications = {}
        self.receipts = []
        self._answers = []
        return unit

    def _close_range(self) -> None:
        if self._acknowledging is not None:
            self._answers.append(Answer(self._acknowledging, Verdict.ACK, self._first, self._last))
            self._acknowledging = None
