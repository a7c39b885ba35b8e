"""Writes to a store without blocking the event loop: in a process of its own, or in a thread.

Law: an asynchronous front of a synchronous store, one batch at a time. If the process is lost, a thread takes over;
`recover` finds out whether its last batch was written, as after any failure.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, final

import structlog
import trio

from stompbroker.errors import OperatorError
from stompbroker.storage import HEAD, Store, StoreFailing, WritingProcess, answered, question

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from stompbroker.storage import Batch

#: Messages and ledger records that are encoded in the event loop, not in a thread: about 1 µs each.
FEW: Final = 500
#: Parts of a question given to the kernel at once: Linux takes no more.
MOST_PARTS: Final = 1024
_RECEIVE_BYTES: Final = 64 * 1024
#: How long the process may take to open the store, in seconds: it may hang.
ADOPT_S: Final = 10.0

T = TypeVar("T")

log = structlog.get_logger()


class Written(NamedTuple):
    free_bytes: int | None
    #: None unless it was asked for.
    stored_bytes: int | None


class _Process(NamedTuple):
    process: WritingProcess
    writes: _Line
    upkeep: _Line


@final
class StoreWriter:
    """Writes in a thread; or in a process, from when it adopts one until that is lost.

    Everything but `close` raises StoreFailing; a cancelled commit may or may not have been written.

    Invariants:
        the process and the store never both have a writing connection: `recover` opens one in the store only when the
        process is gone
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._process: _Process | None = None
        #: Whether `checkpoint` has something to do, as of the last commit.
        self.needs_checkpoint = False
        self._writing, self._tidying = trio.CapacityLimiter(1), trio.CapacityLimiter(1)

    async def adopt(self, process: WritingProcess) -> None:
        """Let the process write to our store, as ours. Raises OperatorError."""
        self._process = _Process(process, _Line(process.writes), _Line(process.upkeep))
        handed_over = self._store.hand_over()
        try:
            with trio.fail_after(ADOPT_S):
                await self._process.writes.ask(question("adopt", **handed_over))
            return
        except StoreFailing as failure:
            reason = str(failure)
        except trio.TooSlowError:
            reason = f"it has not answered within {ADOPT_S:g} s"
        try:
            await self._take_over(reason)
            await self.recover()
        except StoreFailing as last:
            raise OperatorError(f"Cannot take the store: {last}") from last

    async def commit(self, batch: Batch, *, measures: bool) -> Written:
        """Raises also StoreTaken and StoreRefused. After StoreFailing `recover` must be called."""
        free_bytes, self.needs_checkpoint, stored_bytes = await self._ask(Store.write, batch, measures=measures)
        return Written(free_bytes, stored_bytes)

    async def recover(self) -> int:
        """The number of the last batch there is. Raises also StoreTaken."""
        if self._process is not None and self._process.writes.is_lost:
            await self._take_over()
        return await self._ask(Store.recover)

    async def would_accept(self, batch: Batch) -> bool:
        return await self._ask(Store.would_accept, batch)

    async def checkpoint(self, *, truncate: bool = False) -> None:
        """Beside everything else; a failure says nothing about batches."""
        await self._ask(Store.checkpoint, truncate=truncate)

    async def free_bytes(self) -> int | None:
        return await self._ask(Store.free_bytes)

    async def close(self) -> None:
        """Have the process close the store, and end; it is killed if this is cancelled. Without a process, whoever has
        opened the store closes it."""
        if self._process is None:
            return
        process, writes, upkeep = self._process
        try:
            if not writes.is_lost:
                await self._ask(Store.close, is_sound=self._store.is_sound)
        except StoreFailing as failure:
            log.error("the process that writes to the store was lost at its end", reason=str(failure))
        except trio.Cancelled:
            process.kill()
            raise
        finally:
            writes.close()
            upkeep.close()

    async def _take_over(self, reason: str = "") -> None:
        """Let go of the process, and write in a thread from now on."""
        assert self._process is not None
        process, writes, upkeep = self._process
        writes.close()
        upkeep.close()
        how = await _in_thread(process.end, None)
        log.error("the process that writes to the store is lost; a thread does it from now on", reason=reason or how)
        self._process = None

    async def _ask(self, method: Callable[..., T], *batch: Batch, **rest: Any) -> T:
        """Have a method of the store called with a batch or none, in a thread or in the process."""
        is_upkeep = method is Store.checkpoint
        if self._process is None:
            limiter = self._tidying if is_upkeep else self._writing
            return await _in_thread(partial(getattr(self._store, method.__name__), *batch, **rest), limiter)
        line = self._process.upkeep if is_upkeep else self._process.writes
        asked = partial(question, method.__name__, *batch, **rest)
        answer: T = await line.ask(asked() if all(map(_is_small, batch)) else await _in_thread(asked, None))
        return answer


@final
class _Line:
    """A socket to the process: questions out, answers in, one at a time."""

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        self._socket = connected
        self._turn = trio.Lock()
        self._received = bytearray()
        #: Whether nothing may be asked any more: the process has ended, or an answer was not waited for.
        self.is_lost = False

    async def ask(self, parts: list[bytes]) -> Any:
        """The answer. Raises StoreFailing if the process is gone, or what the store has raised."""
        try:
            # Mostly free, and then without a checkpoint: the question leaves at once.
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
        except (OSError, trio.ClosedResourceError) as error:
            raise StoreFailing("The process that writes to the store has ended.") from error
        finally:
            self._turn.release()
        return answered(answer)

    async def _send(self, parts: list[bytes]) -> None:
        # Not trio's stream, which has a checkpoint: most questions fit into the socket's buffer.
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
    """So many bytes were sent."""
    count = 0
    for part in waiting:
        if len(part) > sent_bytes:
            waiting[count] = memoryview(part)[sent_bytes:]
            break
        sent_bytes -= len(part)
        count += 1
    del waiting[:count]


def _is_small(batch: Batch) -> bool:
    return sum(len(run.messages) for run in batch.messages) + sum(row.records for row in batch.ledger) <= FEW


async def _in_thread(call: Callable[[], T], limiter: trio.CapacityLimiter | None) -> T:
    # Abandoned on cancel: a store that hangs must not keep the broker from ending.
    return await trio.to_thread.run_sync(call, limiter=limiter, abandon_on_cancel=True)
