"""What a connection is still owed, as bytes.

Law: anybody may put, synchronously and in batches; one writer takes everything at once, sends it as one buffer, and
then says so. Bounded by whoever puts: deliveries are made only while `has_room`, a client that lets receipts pile up
is not read while it `is_owing_too_much`, and everything is charged to the memory budget.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, final

from stompbroker.signals import Signal

if TYPE_CHECKING:
    from stompbroker.ids import Offset
    from stompbroker.memory_budget import MemoryBudget
    from stompbroker.topics import Consumer, Reading

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
    """

    __slots__ = (
        "_answers_bytes",
        "_budget",
        "_delivered",
        "_drained",
        "_emptied",
        "_filled",
        "_parts",
        "_stalled",
        "_taken_answers_bytes",
        "is_closed",
        "sent_bytes",
        "size_bytes",
    )

    def __init__(self, budget: MemoryBudget, drained: Signal) -> None:
        self._budget = budget
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

    def take(self) -> tuple[bytes, list[Delivered]]:
        """Everything put so far, as one buffer. It still counts as owed until `mark_sent`."""
        data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        delivered = self._delivered
        self._taken_answers_bytes = self._answers_bytes
        self._parts = []
        self._delivered = []
        return data, delivered

    def mark_sent(self, sent_bytes: int, delivered: list[Delivered]) -> None:
        """The buffer last taken is in the kernel's hands."""
        self.size_bytes -= sent_bytes
        self.sent_bytes += sent_bytes
        self._answers_bytes -= self._taken_answers_bytes
        self._taken_answers_bytes = 0
        self._drained.wake()
        self._budget.adjust(-sent_bytes)
        for consumer, reading, start, stop in delivered:
            consumer.settle_sent(reading, start, stop)
        if not self.size_bytes:
            self._emptied.wake()
        if self._stalled:
            stalled, self._stalled = self._stalled, {}
            for consumer in stalled:
                consumer.wake()

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
