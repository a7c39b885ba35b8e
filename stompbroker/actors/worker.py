"""Serves one connection: reads its chunks into the session, writes the session's outbox.

Law: the only place where a client's bytes meet its transport. Two tasks, a reader and a writer, and a third while the
client is held back. Everything the client did is undone in `finally`, however the connection ended. A client's mistake
ends its own connection; a mistake of ours is logged here, at the session boundary, and ends that connection only.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Final, final

import trio

from stompbroker.errors import PeerViolation
from stompbroker.sessions import SMALL_PARTIAL_BYTES
from stompbroker.transport import FAIR_BYTES, ChunkSize

if TYPE_CHECKING:
    from stompbroker.log_throttle import LogThrottle
    from stompbroker.loop_gauge import LoopGauge
    from stompbroker.memory_budget import MemoryBudget
    from stompbroker.sessions import Dispatch, Outbox, Session
    from stompbroker.transport import Traffic, Transport

__all__ = ["WorkerContext", "run"]

#: How long a client that is being disconnected may take to read what it is still owed.
FLUSH_S: Final = 10.0
#: How often we look whether a client that we do not read from is still there.
LOOK_S: Final = 5.0
FORGOTTEN_CHUNK_BYTES: Final = 64 * 1024


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerContext:
    """What all workers of a broker share."""

    traffic: Traffic
    budget: MemoryBudget
    dispatch: Dispatch
    stretches: LoopGauge
    throttle: LogThrottle
    #: How long a client that is held back, or waits for memory, is waited for.
    block_timeout_s: float


async def run(transport: Transport, session: Session, context: WorkerContext) -> None:
    """Serve until the client or the session has had enough. Cancelling it drops the connection at once."""
    session.outbox.send_now, session.outbox.has_left = transport.send_now, transport.has_left
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_write, transport, session)
            with trio.CancelScope() as reading:
                session.interrupt = reading.cancel
                await _read(transport, session, context, nursery)
            # What came before the end still counts, as far as it can be applied in time.
            with trio.move_on_after(context.block_timeout_s):
                while session.is_unfinished and session.ending is None:
                    await session.resumed.wait()
            if session.ending is not None:
                # A client stuck in its own send would never come to read what it is told.
                nursery.start_soon(_forget, transport)
            with trio.move_on_after(FLUSH_S):
                await session.outbox.wait_empty()
            nursery.cancel_scope.cancel()
        if session.ending is not None and not session.outbox.is_closed:
            await transport.finish()
    except Exception as error:
        context.throttle.log(
            "error",
            "connection failed",
            (session.host, type(error).__name__),
            exc_info=True,
            connection=session.connection_id,
            peer=session.peer,
        )
    finally:
        session.lose()
        await transport.close()


async def _read(transport: Transport, session: Session, context: WorkerContext, nursery: trio.Nursery) -> None:
    """Until the client has closed, or the session has ended."""
    chunk_size = ChunkSize(context.traffic)
    is_resuming = False

    async def resume() -> None:
        nonlocal is_resuming
        await _resume(session)
        is_resuming = False

    try:
        while session.ending is None:
            size_bytes = min(chunk_size.size_bytes, FAIR_BYTES) if context.budget.is_tight else chunk_size.size_bytes
            chunk = await transport.receive_some(size_bytes)
            if not chunk:
                return
            chunk_size.note(len(chunk))
            sent_bytes = session.outbox.sent_bytes
            await _apply(chunk, session, context)
            if session.outbox.sent_bytes == sent_bytes:
                transport.note_unanswered(len(chunk), sent_bytes)
            if session.is_held_back and not is_resuming:
                is_resuming = True
                nursery.start_soon(resume)
            if not session.wants_more:
                await _wait_wanting_more(transport, session)
            if context.budget.is_used_up and session.partial_bytes > SMALL_PARTIAL_BYTES:
                await _wait_for_memory(session, context)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        return


async def _wait_wanting_more(transport: Transport, session: Session) -> None:
    """Until the session takes more. Raises BrokenResourceError if the client is gone: only a receive would tell."""
    while session.ending is None and not session.wants_more:
        with trio.move_on_after(LOOK_S):
            await session.wait_wanting_more()
        if transport.is_reset():
            raise trio.BrokenResourceError


async def _apply(chunk: bytes, session: Session, context: WorkerContext) -> None:
    """Apply all frames of a chunk, with a checkpoint between batches of them, and send at once what becomes ready."""
    while True:
        began_at_s = perf_counter()
        with context.dispatch:
            has_more = session.receive(chunk)
        rest_s = session.take_rest_s()
        context.stretches.note("worker", began_at_s)
        if rest_s:
            await trio.sleep(rest_s)
        if not has_more:
            return
        chunk = b""
        await trio.lowlevel.checkpoint()


async def _wait_for_memory(session: Session, context: WorkerContext) -> None:
    """A large body has come in part, and memory is used up, perhaps by such parts: give it up after a while."""
    session.is_waiting_for_memory = True
    with trio.move_on_after(context.block_timeout_s) as waiting:
        while context.budget.is_tight:
            await context.budget.eased.wait()
    session.is_waiting_for_memory = False
    if waiting.cancelled_caught:
        session.fail(
            PeerViolation(
                "out of memory",
                f"{session.partial_bytes} bytes of a frame were received, and for {context.block_timeout_s:g} s there "
                "was no memory for the rest; try again later",
            )
        )


async def _resume(session: Session) -> None:
    """Apply what is parked, as the topics that hold it back take messages again."""
    while session.is_held_back and session.ending is None:
        await session.wait_released()
        while session.resume():
            await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()


async def _forget(transport: Transport) -> None:
    """Read and drop, so that the client can finish what it is sending."""
    try:
        while await transport.receive_some(FORGOTTEN_CHUNK_BYTES):
            pass
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass


async def _write(transport: Transport, session: Session) -> None:
    """Send whatever the session owes, one joined buffer at a time. A buffer that was begun is finished, or the
    connection is given up: half a frame must never be followed by anything else."""
    outbox: Outbox = session.outbox
    try:
        while True:
            await outbox.wait_filled()
            if outbox.is_closed:
                return
            data, when_sent = outbox.take()
            await transport.send_all(data)
            outbox.mark_sent(len(data), when_sent)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        # Reading goes on: what the client sent before it went may still be on its way to us, and counts.
        outbox.close()
