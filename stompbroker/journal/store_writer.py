"""How the journal has a store written to without waiting for it in the event loop.

Law: asynchronous fronts of a synchronous store, one batch at a time. There are two that behave alike: one writes in a
thread, the other in a process of its own. If that process is lost, a thread takes over; whether its last batch was
written is found out as after any failure.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar, final

import structlog
import trio

from stompbroker.errors import OperatorError
from stompbroker.storage import HEAD, Question, StoreFailing, answered, encode, question

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from stompbroker.storage import Batch, Encoded, Store, WritingProcess

__all__ = ["ProcessWriter", "StoreWriter", "ThreadWriter", "Written"]

#: Messages and records of the ledger that are encoded within the event loop: about 1 µs each.
FEW: Final = 500
#: Parts of a question that are given to the kernel at once; Linux takes no more.
MOST_PARTS: Final = 1024
_RECEIVE_BYTES: Final = 64 * 1024
#: How long the process may take to open the store, in seconds. A start must not wait for one that hangs.
ADOPT_S: Final = 10.0

T = TypeVar("T")

log = structlog.get_logger()


class Written(NamedTuple):
    """What is known of a store behind a batch."""

    free_bytes: int | None
    #: None unless it was asked for.
    stored_bytes: int | None


class StoreWriter(Protocol):
    """Whoever is cancelled leaves a batch behind of which nobody knows whether it was written."""

    @property
    def needs_checkpoint(self) -> bool:
        """Whether `checkpoint` has something to do."""

    async def commit(self, batch: Batch, *, measures: bool) -> Written:
        """Raises StoreTaken, StoreRefused, or StoreFailing: then `recover` must be called."""

    async def recover(self) -> int:
        """The number of the last batch there is. Raises StoreTaken or StoreFailing."""

    async def would_accept(self, batch: Batch) -> bool:
        """Raises StoreFailing."""

    async def checkpoint(self, *, truncate: bool = False) -> None:
        """Beside everything else. Raises StoreFailing, which says nothing about batches."""

    async def free_bytes(self) -> int | None:
        """Raises StoreFailing."""

    async def close(self) -> None:
        """Nothing is written any more."""


@final
class ThreadWriter:
    """Writes in a thread."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._writing, self._tidying = trio.CapacityLimiter(1), trio.CapacityLimiter(1)

    @property
    def needs_checkpoint(self) -> bool:
        return self._store.needs_checkpoint

    async def commit(self, batch: Batch, *, measures: bool) -> Written:
        def commit() -> Written:
            self._store.commit(batch)
            return Written(self._store.free_bytes(), self._store.stored_bytes() if measures else None)

        return await _in_thread(commit, self._writing)

    async def recover(self) -> int:
        return await _in_thread(self._store.recover, self._writing)

    async def would_accept(self, batch: Batch) -> bool:
        return await _in_thread(partial(self._store.would_accept, batch), self._writing)

    async def checkpoint(self, *, truncate: bool = False) -> None:
        await _in_thread(partial(self._store.checkpoint, truncate=truncate), self._tidying)

    async def free_bytes(self) -> int | None:
        return await _in_thread(self._store.free_bytes, self._writing)

    async def close(self) -> None:
        """The store is closed by whoever has opened it."""


@final
class ProcessWriter:
    """Writes in a process of its own, which was forked for it, and in a thread once that is lost.

    Invariants:
        the process and the store never both have a writing connection: `recover` opens one in the store only when the
        process is gone
    """

    def __init__(self, process: WritingProcess, store: Store) -> None:
        self._process = process
        self._store = store
        self._instead: ThreadWriter | None = None
        self._writes = _Line(process.writes)
        self._upkeep = _Line(process.upkeep)
        self.needs_checkpoint = False

    async def adopt(self) -> None:
        """Let it write to our store, as ours. Raises OperatorError."""
        token = self._store.hand_over()
        try:
            with trio.fail_after(ADOPT_S):
                await self._asked(self._writes, question(Question.ADOPT, file=self._store.where, token=token))
        except StoreFailing as failure:
            await self._go_on_without(str(failure))
        except trio.TooSlowError:
            await self._go_on_without(f"it has not answered within {ADOPT_S:g} s")

    async def _go_on_without(self, reason: str) -> None:
        try:
            await self._take_over(reason)
            await self.recover()
        except StoreFailing as last:
            raise OperatorError(f"Cannot take the store: {last}") from last

    async def commit(self, batch: Batch, *, measures: bool) -> Written:
        if self._instead is not None:
            written = await self._instead.commit(batch, measures=measures)
            self.needs_checkpoint = self._instead.needs_checkpoint
            return written
        answer = await self._asked(self._writes, question(Question.COMMIT, await _encoded(batch), measures=measures))
        free_bytes, self.needs_checkpoint, stored_bytes = answer
        return Written(free_bytes, stored_bytes)

    async def recover(self) -> int:
        if self._instead is None and self._writes.is_lost:
            await self._take_over()
        if self._instead is not None:
            return await self._instead.recover()
        last_batch: int = await self._asked(self._writes, question(Question.RECOVER))
        return last_batch

    async def would_accept(self, batch: Batch) -> bool:
        if self._instead is not None:
            return await self._instead.would_accept(batch)
        accepts: bool = await self._asked(self._writes, question(Question.WOULD_ACCEPT, await _encoded(batch)))
        return accepts

    async def checkpoint(self, *, truncate: bool = False) -> None:
        if self._instead is not None:
            await self._instead.checkpoint(truncate=truncate)
        else:
            await self._asked(self._upkeep, question(Question.CHECKPOINT, truncate=truncate))

    async def free_bytes(self) -> int | None:
        if self._instead is not None:
            return await self._instead.free_bytes()
        free_bytes: int | None = await self._asked(self._writes, question(Question.FREE_BYTES))
        return free_bytes

    async def close(self) -> None:
        """Have it close the store, and end. It is killed if that takes longer than somebody waits."""
        if self._instead is not None:
            return
        try:
            if not self._writes.is_lost:
                await self._asked(self._writes, question(Question.CLOSE, is_sound=self._store.is_sound))
        except StoreFailing as failure:
            log.error("the process that writes to the store was lost at its end", reason=str(failure))
        except trio.Cancelled:
            self._process.kill()
            raise
        finally:
            self._writes.close()
            self._upkeep.close()

    async def _take_over(self, reason: str = "") -> None:
        """Let go of the process, and write in a thread from now on."""
        self._writes.close()
        self._upkeep.close()
        how = await _in_thread(self._process.end, None)
        log.error("the process that writes to the store is lost; a thread does it from now on", reason=reason or how)
        self._instead = ThreadWriter(self._store)

    async def _asked(self, line: _Line, parts: list[bytes]) -> Any:
        try:
            return answered(await line.ask(parts))
        except (OSError, trio.ClosedResourceError) as error:
            raise StoreFailing("The process that writes to the store has ended.") from error


@final
class _Line:
    """A socket to the process: questions out, answers in, one at a time."""

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        self._socket = connected
        self._turn = trio.Lock()
        self._received = bytearray()
        #: Whether it must not be asked any more: the process has ended, or nobody waited for an answer.
        self.is_lost = False

    async def ask(self, parts: list[bytes]) -> bytes:
        """Raises OSError or ClosedResourceError when there is nobody who could answer."""
        try:
            # Mostly it is free, and then there is no checkpoint: what is asked leaves in the stretch that asks.
            self._turn.acquire_nowait()
        except trio.WouldBlock:
            await self._turn.acquire()
        try:
            if self.is_lost:
                raise trio.ClosedResourceError
            self.is_lost = True
            await self._send(parts)
            (size_bytes,) = HEAD.unpack(await self._receive(HEAD.size))
            answer = await self._receive(size_bytes)
            self.is_lost = False
        finally:
            self._turn.release()
        return answer

    async def _send(self, parts: list[bytes]) -> None:
        # Not trio's stream: most questions fit into the socket's buffer, and leave without a checkpoint.
        waiting: list[bytes | memoryview] = list(parts)
        while True:
            with suppress(BlockingIOError):
                _take_off(waiting, self._socket.sendmsg(waiting[:MOST_PARTS]))
            if not waiting:
                return
            await trio.lowlevel.wait_writable(self._socket)

    async def _receive(self, size_bytes: int) -> bytes:
        while len(self._received) < size_bytes:
            await trio.lowlevel.wait_readable(self._socket)
            chunk = self._socket.recv(_RECEIVE_BYTES)
            if not chunk:
                raise trio.ClosedResourceError
            self._received += chunk
        found = bytes(self._received[:size_bytes])
        del self._received[:size_bytes]
        return found

    def close(self) -> None:
        if self._socket.fileno() != -1:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()


def _take_off(waiting: list[bytes | memoryview], sent_bytes: int) -> None:
    """So many bytes of it are sent."""
    count = 0
    for part in waiting:
        if len(part) > sent_bytes:
            waiting[count] = memoryview(part)[sent_bytes:]
            break
        sent_bytes -= len(part)
        count += 1
    del waiting[:count]


async def _encoded(batch: Batch) -> Encoded:
    count = sum(len(run.messages) for run in batch.messages) + sum(row.records for row in batch.ledger)
    if count <= FEW:
        return encode(batch)
    return await _in_thread(partial(encode, batch), None)


async def _in_thread(call: Callable[[], T], limiter: trio.CapacityLimiter | None) -> T:
    # A store that hangs must not keep the broker from ending.
    return await trio.to_thread.run_sync(call, limiter=limiter, abandon_on_cancel=True)
