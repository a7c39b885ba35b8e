"""What a connection is still owed, as bytes.

Law: anybody may put, synchronously and in batches. It is sent as one buffer: at once, where somebody attends to
departures and the kernel takes it, and by the writer otherwise, which takes everything and then says so. Bounded by
whoever puts: deliveries are made only while `has_room`, a client that lets receipts pile up is not read while it
`is_owing_too_much`, and everything is charged to the memory budget.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, final

from stompbroker.signals import Signal

if TYPE_CHECKING:
    from collections.abc import Callable

    from stompbroker.delivery import Consumer, Reading
    from stompbroker.departures import Departures
    from stompbroker.ids import Offset
    from stompbroker.memory_budget import MemoryBudget

__all__ = ["Delivered", "Outbox"]

#: Bytes after which no more deliveries are made. Twice what is sent at once keeps the writer busy while we render.
MAX_OUTBOX_BYTES: Final = 512 * 1024
#: The same while the memory budget is tight.
MAX_TIGHT_OUTBOX_BYTES: Final = 32 * 1024


class Delivered(NamedTuple):
    """A run of deliveries that is settled as soon as its bytes have been handed to the kernel (`ack:auto`)."""

    consumer: Consumer
    reading: Reading
    start: Offset
    stop: Offset


@final
class Outbox:
    """
    Invariants:
        size_bytes == bytes put and not yet reported as sent, and is charged to the budget
        nothing is sent at once while the writer has something to send, or is about to take it: half a frame is followed
        by its other half, and what the kernel had no room for is not offered again and again
    """

    __slots__ = (
        "_answers_bytes",
        "_budget",
        "_delivered",
        "_departures",
        "_drained",
        "_emptied",
        "_filled",
        "_is_with_writer",
        "_parts",
        "_stalled",
        "_taken_answers_bytes",
        "has_left",
        "is_closed",
        "send_now",
        "sent_bytes",
        "size_bytes",
    )

    def __init__(self, budget: MemoryBudget, drained: Signal, departures: Departures) -> None:
        self._budget = budget
        self._departures = departures
        #: Hands to the kernel what it takes at once, and says how much that was; None where that cannot be done.
        self.send_now: Callable[[bytes], int] | None = None
        #: Says whether the other end has closed, though we may still have to read what it said; None: nobody knows.
        self.has_left: Callable[[], bool] | None = None
        #: Whether the writer is at it, or was woken for what was left to it.
        self._is_with_writer = False
        #: Woken whenever something was sent.
        self._drained = drained
        self._parts: list[bytes] = []
        self._delivered: list[Delivered] = []
        self._stalled: dict[Consumer, None] = {}
        self._filled = Signal()
        self._emptied = Signal()
        #: Of size_bytes: what is not deliveries, and of that what the writer has taken.
        self._answers_bytes = 0
        self._taken_answers_bytes = 0
        self.size_bytes = 0
        self.sent_bytes = 0
        self.is_closed = False

    @property
    def put_bytes(self) -> int:
        """How many bytes were ever put."""
        return self.sent_bytes + self.size_bytes

    @property
    def is_memory_tight(self) -> bool:
        return self._budget.is_tight

    @property
    def has_room(self) -> bool:
        """Whether more deliveries may be put."""
        return self.size_bytes < self._bound_bytes and not self.is_closed

    @property
    def _bound_bytes(self) -> int:
        return MAX_TIGHT_OUTBOX_BYTES if self._budget.is_tight else MAX_OUTBOX_BYTES

    @property
    def is_deserted(self) -> bool:
        """Whether nobody is there any more who could read it."""
        return self.is_closed or (self.has_left is not None and self.has_left())

    @property
    def is_owing_too_much(self) -> bool:
        """Whether the client asks for receipts and does not read them: then nothing more is to be taken from it."""
        return self._answers_bytes >= self._bound_bytes

    def put(self, data: bytes) -> None:
        """Owe the client an answer: a receipt, an error, a heart-beat. Nothing happens once the outbox is closed."""
        if not self.is_closed:
            self._answers_bytes += len(data)
            self._put(data)

    def put_deliveries(self, data: bytes, delivered: Delivered | None = None) -> None:
        """Owe the client a run of messages; `delivered` if having sent them settles them."""
        if not self.is_closed:
            if delivered is not None:
                self._delivered.append(delivered)
            self._put(data)

    def _put(self, data: bytes) -> None:
        self._parts.append(data)
        self.size_bytes += len(data)
        self._budget.adjust(len(data))
        if self._departures.is_attended and self.send_now is not None and not self._is_with_writer:
            self._departures.put(self)
        else:
            self._filled.wake()

    def stall(self, consumer: Consumer) -> None:
        """Remember a consumer that has found no room, to be woken when there is some."""
        self._stalled[consumer] = None

    async def wait_filled(self) -> None:
        while not self._parts and not self.is_closed:
            await self._filled.wait()

    async def wait_empty(self) -> None:
        """Until everything put has been sent, or given up."""
        while self.size_bytes:
            await self._emptied.wait()

    def send_at_once(self) -> None:
        """Hand to the kernel what it takes now, and leave the rest to the writer."""
        if self._is_with_writer or not self._parts or self.send_now is None:
            return
        data, delivered = self.take()
        try:
            length = self.send_now(data)
        except OSError:
            length = 0  # the kernel has no room, or the writer will be told what is wrong
        if length == len(data):
            self.mark_sent(length, delivered)
        else:
            # Copied, because a part of a buffer keeps all of it, and only what is owed is charged.
            self._leave(data[length:], delivered, length)

    def _leave(self, rest: bytes, delivered: list[Delivered], sent_bytes: int) -> None:
        """Only some of what was taken has been sent; the writer takes the rest, and what comes until then."""
        self._taken_answers_bytes = 0
        self._parts = [rest]
        self._delivered = delivered
        self._count_sent(sent_bytes)
        self._filled.wake()

    def wake_writer(self) -> None:
        self._filled.wake()

    def take(self) -> tuple[bytes, list[Delivered]]:
        """Everything put so far, as one buffer. It still counts as owed until `mark_sent`."""
        self._is_with_writer = True
        data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        delivered = self._delivered
        self._taken_answers_bytes = self._answers_bytes
        self._parts = []
        self._delivered = []
        return data, delivered

    def mark_sent(self, sent_bytes: int, delivered: list[Delivered]) -> None:
        """The buffer last taken is in the kernel's hands."""
        self._is_with_writer = False
        self._answers_bytes -= self._taken_answers_bytes
        self._taken_answers_bytes = 0
        self._count_sent(sent_bytes)
        for consumer, reading, start, stop in delivered:
            consumer.settle_sent(reading, start, stop)
        if not self.size_bytes:
            self._emptied.wake()
        if self._stalled:
            stalled, self._stalled = self._stalled, {}
            for consumer in stalled:
                consumer.wake()

    def _count_sent(self, sent_bytes: int) -> None:
        self.size_bytes -= sent_bytes
        self.sent_bytes += sent_bytes
        self._drained.wake()
        self._budget.adjust(-sent_bytes)

    def close(self) -> None:
        """Nothing is owed any more; what was not sent is forgotten."""
        self.is_closed = True
        self._parts.clear()
        self._delivered.clear()
        self._stalled.clear()
        self._budget.adjust(-self.size_bytes)
        self.size_bytes = 0
        self._answers_bytes = 0
        self._filled.wake()
        self._emptied.wake()
        self._drained.wake()
