"""What is still to be sent to connections: outboxes, and the turns that fill and flush them.

Law: synchronous, but for the writers' waiting. Everything put into an outbox is sent with one system call: at once, if
the flush queue is attended and the kernel has room, otherwise by the writer task. Those who put keep the bounds:
deliveries are made only while `has_room`, and a client with too many unread receipts is not read. All of it is charged
to the memory budget.

Hot path, guarded by `make bench` (topic 1→1, 1→50): small things are joined, and a large body is sent from where it is
(`buffers`), which `tests/sessions/test_hot_path_on_sockets.py` guards.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Final, final

from stompbroker.buffers import LARGE_BYTES, gathered, rest_of
from stompbroker.delivery import appending, sending
from stompbroker.signals import Signal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stompbroker.buffers import Buffer
    from stompbroker.clock import Clock
    from stompbroker.delivery import ReadyQueue
    from stompbroker.memory_budget import MemoryBudget

#: Bytes after which no more deliveries are made. What the writer has not sent leaves room to render the next slice.
MAX_OUTBOX_BYTES: Final = 512 * 1024
#: The same while the memory budget is tight.
MAX_TIGHT_OUTBOX_BYTES: Final = 32 * 1024
#: How long slices are handed out in one turn. One slice takes 0.1 to 0.5 ms.
TURN_S: Final = 0.001


@final
@dataclass(slots=True, eq=False)
class Outbox:
    """
    Invariants:
        size_bytes == bytes put and not yet reported as sent; these and _held_bytes are charged to the budget
        nothing is sent at once while the writer has, or is about to take, something to send: half a frame is followed
        by its other half, and the kernel is not offered again what it had no room for
    """

    _budget: MemoryBudget
    #: Woken whenever something was sent.
    _drained: Signal
    _flush_queue: FlushQueue
    #: Hands to the kernel what it takes at once, and returns how much that was; None if that cannot be done.
    send_now: Callable[..., int] | None = None
    #: Whether the client has closed, though we may still have to read what it sent; None if that is unknown.
    has_left: Callable[[], bool] | None = None
    #: Whether the writer is sending, or was woken to.
    _is_with_writer: bool = False
    _parts: list[Buffer] = field(default_factory=list)
    #: The part of a large body that was sent and is kept in memory, because the rest of it is not sent yet.
    _held_bytes: int = 0
    #: Called when the bytes put have been handed to the kernel.
    _when_sent: list[Callable[[], None]] = field(default_factory=list)
    _stalled: dict[Callable[[], None], None] = field(default_factory=dict)
    #: Wakes the writer.
    filled: Signal = field(default_factory=Signal)
    _emptied: Signal = field(default_factory=Signal)
    #: The part of size_bytes that is not deliveries, and how much of that was taken.
    _answers_bytes: int = 0
    _taken_answers_bytes: int = 0
    size_bytes: int = 0
    sent_bytes: int = 0
    is_closed: bool = False

    @property
    def put_bytes(self) -> int:
        return self.sent_bytes + self.size_bytes

    @property
    def is_memory_tight(self) -> bool:
        return self._budget.is_tight

    @property
    def has_room(self) -> bool:
        """Whether more deliveries may be put."""
        if self.size_bytes < MAX_TIGHT_OUTBOX_BYTES:
            return not self.is_closed
        return self.size_bytes < MAX_OUTBOX_BYTES and not self._budget.is_tight and not self.is_closed

    @property
    def room_bytes(self) -> int:
        return self._bound_bytes - self.size_bytes

    @property
    def _bound_bytes(self) -> int:
        return MAX_TIGHT_OUTBOX_BYTES if self._budget.is_tight else MAX_OUTBOX_BYTES

    @property
    def is_deserted(self) -> bool:
        """Whether the client has left."""
        return self.is_closed or (self.has_left is not None and self.has_left())

    @property
    def is_owing_too_much(self) -> bool:
        """Whether the client does not read its receipts: then nothing more is to be read from it."""
        return self._answers_bytes >= MAX_TIGHT_OUTBOX_BYTES and self._answers_bytes >= self._bound_bytes

    def put(self, data: bytes) -> None:
        """Put an answer: a receipt, an error, a heart-beat. Nothing happens once the outbox is closed."""
        if not self.is_closed:
            self._answers_bytes += len(data)
            self.put_deliveries([data])

    def put_deliveries(self, parts: Sequence[bytes], when_sent: Callable[[], None] | None = None) -> None:
        """Put a run of messages, or an answer; `when_sent` is called when the kernel has them."""
        if self.is_closed:
            return
        if when_sent is not None:
            self._when_sent.append(when_sent)
        self._parts += parts
        size_bytes = sum(map(len, parts))
        self.size_bytes += size_bytes
        self._budget.adjust(size_bytes)
        if self._flush_queue.is_attended and self.send_now is not None and not self._is_with_writer:
            self._flush_queue.put(self)
        else:
            self.filled.wake()

    def call_when_room(self, wake: Callable[[], None]) -> None:
        self._stalled[wake] = None

    async def wait_filled(self) -> None:
        while not self._parts and not self.is_closed:
            await self.filled.wait()

    async def wait_empty(self) -> None:
        """Until everything put has been sent, or given up."""
        while self.size_bytes:
            await self._emptied.wait()

    def send_at_once(self) -> None:
        """Hand to the kernel what it takes now, and leave the rest to the writer."""
        if self._is_with_writer or not self._parts or self.send_now is None:
            return
        parts, when_sent = self.take()
        try:
            length = self.send_now(*parts)
        except OSError:
            length = 0  # the kernel has no room, or the writer will be told what is wrong
        if length == self.size_bytes:
            self.mark_sent(length, when_sent)
        else:
            self._keep(parts, rest_of(parts, length))
            self._when_sent = when_sent
            self._taken_answers_bytes = 0
            self._count_sent(length)
            self.filled.wake()

    def _keep(self, parts: list[Buffer], rest: list[Buffer]) -> None:
        """What the kernel did not take. A view keeps all of its buffer in memory, so it is copied, unless that is more
        work than it frees memory: then what it keeps is charged."""
        owed_bytes = len(rest[0])
        sent_bytes = len(parts[-len(rest)]) - owed_bytes
        if sent_bytes:
            if owed_bytes < LARGE_BYTES or owed_bytes < sent_bytes:
                rest[0] = bytes(rest[0])
            else:
                self._hold(sent_bytes)
        self._parts = rest

    def _hold(self, size_bytes: int) -> None:
        self._budget.adjust(size_bytes - self._held_bytes)
        self._held_bytes = size_bytes

    def take(self) -> tuple[list[Buffer], list[Callable[[], None]]]:
        """Everything put so far, in order. It is counted in size_bytes until `mark_sent`."""
        self._is_with_writer = True
        parts = self._parts if len(self._parts) <= 1 else gathered(self._parts)
        when_sent = self._when_sent
        self._taken_answers_bytes = self._answers_bytes
        self._parts = []
        self._when_sent = []
        return parts, when_sent

    def mark_sent(self, sent_bytes: int, when_sent: list[Callable[[], None]]) -> None:
        """The kernel has what was taken last."""
        self._is_with_writer = False
        if self._held_bytes:
            self._hold(0)
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
        """Drop what was not sent, and take nothing more."""
        self.is_closed = True
        self._parts.clear()
        self._when_sent.clear()
        self._stalled.clear()
        self._hold(0)
        self._budget.adjust(-self.size_bytes)
        self.size_bytes = 0
        self._answers_bytes = 0
        self.filled.wake()
        self._emptied.wake()
        self._drained.wake()


@final
@dataclass(slots=True, eq=False)
class FlushQueue:
    """Outboxes to flush before the next checkpoint.

    While the queue is attended, a filled outbox is put here instead of waking its writer task, because waking a task
    costs more than the system call it would make.

    Invariants:
        it is empty unless it is attended
    """

    _waiting: dict[Outbox, None] = field(default_factory=dict)
    is_attended: bool = False

    @property
    def has_work(self) -> bool:
        return bool(self._waiting)

    def put(self, outbox: Outbox) -> None:
        assert self.is_attended
        self._waiting[outbox] = None

    def send(self) -> None:
        """Send from each outbox what the kernel takes now, and leave the rest to its writer."""
        waiting, self._waiting = self._waiting, {}
        try:
            for outbox in waiting:
                outbox.send_at_once()
        except BaseException:
            # A bug with one connection must not keep the writers of the others from being woken.
            self._waiting |= waiting
            raise

    def leave(self) -> None:
        """It is not attended any more: wake the writers of what is left."""
        self.is_attended = False
        waiting, self._waiting = self._waiting, {}
        for outbox in waiting:
            outbox.filled.wake()


@final
@dataclass(slots=True, eq=False)
class Dispatch:
    """Delivers in turns: ready consumers get a slice each, and the outboxes they fill are flushed.

    Topics are changed within a `with` block of it, which ends with a turn, so that messages leave before the next
    checkpoint and no task has to be woken. If consumers were ready before the block, it takes no turn but leaves
    delivery to the distributor: otherwise a hundred small publishers would each deliver for a millisecond from a long
    backlog before the first of them is read again.

    Invariants:
        the ready queue and the flush queue are attended exactly within a block or a turn; there is no await in either
        if a consumer is ready when a block begins, the distributor was woken
    """

    _ready: ReadyQueue
    _flush_queue: FlushQueue
    _clock: Clock
    #: Whether consumers were ready when the block began.
    _is_behind_others: bool = False

    def __enter__(self) -> None:
        self._is_behind_others = len(self._ready) > 0
        self._ready.is_attended = True
        self._flush_queue.is_attended = True

    def __exit__(self, _type: object, _error: object, _where: object) -> None:
        if not self._is_behind_others:
            self.take_turn()
            return
        try:
            self._flush_queue.send()
        finally:
            self._flush_queue.leave()
            self._ready.leave()

    def take_turn(self) -> None:
        """Deliver to ready consumers, one slice each, for TURN_S."""
        ready, flush_queue = self._ready, self._flush_queue
        ready.is_attended = flush_queue.is_attended = True
        try:
            if not (ready.has_work or flush_queue.has_work):
                return  # mostly after a SEND that waits for its commit
            now_ns = self._clock.now_ns()
            ends_at_s = perf_counter() + TURN_S
            while True:
                while ready.consumers:
                    sending.deliver_slice(ready.take(), now_ns)
                    if perf_counter() > ends_at_s:
                        break
                # This settles what was sent in `auto` mode, and may make room for more.
                flush_queue.send()
                if not ready.consumers or perf_counter() > ends_at_s:
                    break
            for topic in ready.take_moved():
                appending.try_to_unblock(topic, now_ns)
        finally:
            flush_queue.leave()
            ready.leave()
