"""What a connection is still owed, as bytes.

Law: anybody may put, synchronously and in batches. It is sent as one buffer: at once, where somebody attends to the
flush queue and the kernel takes it, and by the writer otherwise, which takes everything and then says so. Bounded by
whoever puts: deliveries are made only while `has_room`, a client that lets receipts pile up is not read while it
`is_owing_too_much`, and everything is charged to the memory budget.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from stompbroker.signals import Signal

if TYPE_CHECKING:
    from collections.abc import Callable

    from stompbroker.memory_budget import MemoryBudget

__all__ = ["FlushQueue", "Outbox"]

#: Bytes after which no more deliveries are made. Twice what is sent at once keeps the writer busy while we render.
MAX_OUTBOX_BYTES: Final = 512 * 1024
#: The same while the memory budget is tight.
MAX_TIGHT_OUTBOX_BYTES: Final = 32 * 1024


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
        "_drained",
        "_emptied",
        "_filled",
        "_flush_queue",
        "_is_with_writer",
        "_parts",
        "_stalled",
        "_taken_answers_bytes",
        "_when_sent",
        "has_left",
        "is_closed",
        "send_now",
        "sent_bytes",
        "size_bytes",
    )

    def __init__(self, budget: MemoryBudget, drained: Signal, flush_queue: FlushQueue) -> None:
        self._budget = budget
        self._flush_queue = flush_queue
        #: Hands to the kernel what it takes at once, and says how much that was; None where that cannot be done.
        self.send_now: Callable[[bytes], int] | None = None
        #: Says whether the other end has closed, though we may still have to read what it said; None: nobody knows.
        self.has_left: Callable[[], bool] | None = None
        #: Whether the writer is at it, or was woken for what was left to it.
        self._is_with_writer = False
        #: Woken whenever something was sent.
        self._drained = drained
        self._parts: list[bytes] = []
        #: Whom to call when what was put has been handed to the kernel.
        self._when_sent: list[Callable[[], None]] = []
        self._stalled: dict[Callable[[], None], None] = {}
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

    def put_deliveries(self, data: bytes, when_sent: Callable[[], None] | None = None) -> None:
        """Owe the client a run of messages; `when_sent` is called when the kernel has them."""
        if not self.is_closed:
            if when_sent is not None:
                self._when_sent.append(when_sent)
            self._put(data)

    def _put(self, data: bytes) -> None:
        self._parts.append(data)
        self.size_bytes += len(data)
        self._budget.adjust(len(data))
        if self._flush_queue.is_attended and self.send_now is not None and not self._is_with_writer:
            self._flush_queue.put(self)
        else:
            self._filled.wake()

    def call_when_room(self, wake: Callable[[], None]) -> None:
        """Somebody has found no room: call it when there is some."""
        self._stalled[wake] = None

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
        data, when_sent = self.take()
        try:
            length = self.send_now(data)
        except OSError:
            length = 0  # the kernel has no room, or the writer will be told what is wrong
        if length == len(data):
            self.mark_sent(length, when_sent)
        else:
            # Copied, because a part of a buffer keeps all of it, and only what is owed is charged.
            self._leave(data[length:], when_sent, length)

    def _leave(self, rest: bytes, when_sent: list[Callable[[], None]], sent_bytes: int) -> None:
        """Only some of what was taken has been sent; the writer takes the rest, and what comes until then."""
        self._taken_answers_bytes = 0
        self._parts = [rest]
        self._when_sent = when_sent
        self._count_sent(sent_bytes)
        self._filled.wake()

    def wake_writer(self) -> None:
        self._filled.wake()

    def take(self) -> tuple[bytes, list[Callable[[], None]]]:
        """Everything put so far, as one buffer. It still counts as owed until `mark_sent`."""
        self._is_with_writer = True
        data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        when_sent = self._when_sent
        self._taken_answers_bytes = self._answers_bytes
        self._parts = []
        self._when_sent = []
        return data, when_sent

    def mark_sent(self, sent_bytes: int, when_sent: list[Callable[[], None]]) -> None:
        """The buffer last taken is in the kernel's hands."""
        self._is_with_writer = False
        self._answers_bytes -= self._taken_answers_bytes
        self._taken_answers_bytes = 0
        self._count_sent(sent_bytes)
        for call in when_sent:
            call()
        if not self.size_bytes:
            self._emptied.wake()
        if self._stalled:
            stalled, self._stalled = self._stalled, {}
            for wake in stalled:
                wake()

    def _count_sent(self, sent_bytes: int) -> None:
        self.size_bytes -= sent_bytes
        self.sent_bytes += sent_bytes
        self._drained.wake()
        self._budget.adjust(-sent_bytes)

    def close(self) -> None:
        """Nothing is owed any more; what was not sent is forgotten."""
        self.is_closed = True
        self._parts.clear()
        self._when_sent.clear()
        self._stalled.clear()
        self._budget.adjust(-self.size_bytes)
        self.size_bytes = 0
        self._answers_bytes = 0
        self._filled.wake()
        self._emptied.wake()
        self._drained.wake()


@final
class FlushQueue:
    """Outboxes that are sent from at the end of the stretch that fills them.

    While somebody attends, an outbox that is filled waits here instead of waking its writer, and whoever attends has it
    handed to the kernel before the next checkpoint. To wake a task costs more than the system call that it would make.

    Invariants:
        nobody waits unless it is attended
    """

    __slots__ = ("_waiting", "is_attended")

    def __init__(self) -> None:
        self._waiting: dict[Outbox, None] = {}
        self.is_attended = False

    def put(self, outbox: Outbox) -> None:
        assert self.is_attended
        self._waiting[outbox] = None

    def send(self) -> None:
        """Send what waits, as far as it goes at once; what does not is left to its writer."""
        waiting, self._waiting = self._waiting, {}
        try:
            for outbox in waiting:
                outbox.send_at_once()
        except BaseException:
            # A mistake with one connection must not leave the others waiting for a writer that nobody wakes.
            self._waiting |= waiting
            raise

    def leave(self) -> None:
        """Nobody attends any more."""
        self.is_attended = False
        waiting, self._waiting = self._waiting, {}
        for outbox in waiting:
            outbox.wake_writer()
