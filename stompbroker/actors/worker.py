"""Serves one connection: reads its chunks into the session, writes the session's outbox.

Law: the only place where a client's bytes meet a stream. Two tasks, a reader and a writer, and a third while the client
is held back. Everything the client did is undone in `finally`, however the connection ended. A client's mistake
ends its own connection; a mistake of ours is logged here, at the session boundary, and ends that connection only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog
import trio

from stompbroker.transport import close_gently

if TYPE_CHECKING:
    from stompbroker.memory_budget import MemoryBudget
    from stompbroker.outbox import Outbox
    from stompbroker.sessions import Session
    from stompbroker.transport import ChunkSizes

__all__ = ["run"]

#: How long a client that is being disconnected may take to read what it is still owed.
FLUSH_S: Final = 10.0
#: A partial frame above this is not read on while memory is used up.
SMALL_PARTIAL_BYTES: Final = 64 * 1024
FIRST_CHUNK_BYTES: Final = 4 * 1024
FORGOTTEN_CHUNK_BYTES: Final = 64 * 1024

log = structlog.get_logger()


async def run(
    stream: trio.abc.Stream, session: Session, *, chunk_sizes: ChunkSizes, budget: MemoryBudget, block_timeout_s: float
) -> None:
    """Serve until the client or the session has had enough. Cancelling it drops the connection at once."""
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_write, stream, session)
            with trio.CancelScope() as reading:
                session.interrupt = reading.cancel
                await _read(stream, session, nursery, chunk_sizes, budget)
            # What came before the end still counts, as far as it can be applied in time.
            with trio.move_on_after(block_timeout_s):
                while session.is_held_back and session.ending is None:
                    await session.resumed.wait()
            if session.ending is not None:
                # A client stuck in its own send would never come to read what it is told.
                nursery.start_soon(_forget, stream)
            with trio.move_on_after(FLUSH_S):
                await session.outbox.wait_empty()
            nursery.cancel_scope.cancel()
        if session.ending is not None and not session.outbox.is_closed:
            await close_gently(stream)
    except Exception:
        log.exception("connection failed", connection=session.connection_id, peer=session.peer)
    finally:
        session.lose()
        await trio.aclose_forcefully(stream)


async def _read(
    stream: trio.abc.Stream, session: Session, nursery: trio.Nursery, chunk_sizes: ChunkSizes, budget: MemoryBudget
) -> None:
    """Until the client has closed, or the session has ended."""
    size = FIRST_CHUNK_BYTES
    is_resuming = False

    async def resume() -> None:
        nonlocal is_resuming
        await _resume(session)
        is_resuming = False

    try:
        while session.ending is None:
            chunk = bytes(await stream.receive_some(size))
            if not chunk:
                return
            size = chunk_sizes.next(size, len(chunk))
            while session.receive(chunk):
                chunk = b""
                await trio.lowlevel.checkpoint()
            if session.is_held_back and not is_resuming:
                is_resuming = True
                nursery.start_soon(resume)
            if not session.wants_more:
                await session.wait_wanting_more()
            while budget.is_used_up and session.partial_bytes > SMALL_PARTIAL_BYTES and session.ending is None:
                await budget.eased.wait()
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        return
    finally:
        chunk_sizes.leave(size)


async def _resume(session: Session) -> None:
    """Apply what is parked, as the topics that hold it back take messages again."""
    while session.is_held_back and session.ending is None:
        await session.wait_released()
        while session.resume():
            await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()


async def _forget(stream: trio.abc.Stream) -> None:
    """Read on, for nothing but to let the client finish what it is sending."""
    try:
        while await stream.receive_some(FORGOTTEN_CHUNK_BYTES):
            pass
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass


async def _write(stream: trio.abc.Stream, session: Session) -> None:
    """Send whatever the session owes, one joined buffer at a time. A buffer that was begun is finished, or the
    connection is given up: half a frame must never be followed by anything else."""
    outbox: Outbox = session.outbox
    try:
        while True:
            await outbox.wait_filled()
            if outbox.is_closed:
                return
            data, delivered = outbox.take()
            await stream.send_all(data)
            outbox.mark_sent(len(data), delivered)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        outbox.close()
        if session.ending is None:
            session.interrupt()
