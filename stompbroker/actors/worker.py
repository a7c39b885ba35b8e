"""Serves one connection: reads chunks into the session, and writes the session's outbox.

Two tasks, a reader and a writer, and a third while the client is held back. A client's mistake ends its connection; a
bug of ours is logged here, at the session boundary, and ends that connection only.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Final, final

import trio

from stompbroker.access import LoginRefused
from stompbroker.errors import PeerViolation
from stompbroker.sessions import SMALL_PARTIAL_BYTES
from stompbroker.transport import FAIR_BYTES, ChunkSize

if TYPE_CHECKING:
    from stompbroker.access import Authenticator
    from stompbroker.counting import LoopGauge
    from stompbroker.log_throttle import LogThrottle
    from stompbroker.memory_budget import MemoryBudget
    from stompbroker.sessions import Dispatch, Outbox, Session
    from stompbroker.transport import Traffic, Transport

#: How long a client that is being disconnected may take to read its outbox, in seconds.
FLUSH_S: Final = 10.0
#: How often we look whether a client that we do not read from is still there, in seconds.
LOOK_S: Final = 5.0
#: The same while its login waits for its turn: a hash takes 30 ms, and others are in line.
LOGIN_LOOK_S: Final = 0.5
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
    authenticator: Authenticator
    #: How long we wait for a client that is held back, or that waits for memory.
    block_timeout_s: float


async def run(transport: Transport, session: Session, context: WorkerContext) -> None:
    """Serve until the client or the session ends. Cancelling it drops the connection at once."""
    session.outbox.send_now, session.outbox.has_left = transport.send_now, transport.has_left
    session.probe, transport.on_sign_of_life = transport.probe, session.note_life
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_write, transport, session, context.dispatch)
            with trio.CancelScope() as reading:
                session.interrupt = reading.cancel
                await _read(transport, session, context, nursery)
            # Frames that came before the end still count, as far as they can be applied in time.
            with trio.move_on_after(context.block_timeout_s):
                while session.is_unfinished and session.ending is None:
                    await session.resumed.wait()
            if session.ending is not None:
                # A client that is stuck in its own send would never read our ERROR.
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
        transport.forget_owner()  # otherwise the two would keep each other
        await transport.close()


async def _read(transport: Transport, session: Session, context: WorkerContext, nursery: trio.Nursery) -> None:
    """Read until the client has closed, or the session has ended."""
    chunk_size = ChunkSize(context.traffic)
    is_resuming = False

    async def resume() -> None:
        """Apply parked frames as the topics that hold them back take messages again."""
        nonlocal is_resuming
        while session.is_held_back and session.ending is None:
            await session.wait_released()
            while session.resume():
                await trio.lowlevel.checkpoint()
            await trio.lowlevel.checkpoint()
        is_resuming = False

    try:
        while session.ending is None:
            size_bytes = chunk_size.within_body(session.awaited_bytes)
            if context.budget.is_tight:
                size_bytes = min(size_bytes, FAIR_BYTES)
            chunk = await transport.receive_some(size_bytes)
            if not chunk:
                return
            chunk_size.note(len(chunk))
            sent_bytes = session.outbox.sent_bytes
            await _apply(chunk, transport, session, context)
            if session.outbox.sent_bytes == sent_bytes and not session.is_owed_receipt:
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
    """Wait until the session takes more. Raises BrokenResourceError if the client is gone, which otherwise only a
    receive would tell."""
    while session.ending is None and not session.wants_more:
        with trio.move_on_after(LOOK_S):
            await session.wait_wanting_more()
        if transport.is_reset():
            raise trio.BrokenResourceError


async def _apply(chunk: bytes, transport: Transport, session: Session, context: WorkerContext) -> None:
    """Apply all frames of a chunk, with a checkpoint between batches, and send at once what becomes ready."""
    while True:
        # Again after each pause: meanwhile the user may have sent more on another connection.
        while (rest_s := session.debt_s()) > 0:
            await _pause(rest_s, transport, session, context)
        began_at_s = perf_counter()
        with context.dispatch:
            has_more = session.receive(chunk)
        rest_s = session.take_rest_s()
        context.stretches.note("worker", began_at_s)
        if rest_s:
            await _pause(rest_s, transport, session, context)
        if session.credentials is not None:
            await _log_in(transport, session, context.authenticator)
            has_more = True  # there may be frames behind CONNECT
        if not has_more:
            return
        chunk = b""
        await trio.lowlevel.checkpoint()


async def _pause(rest_s: float, transport: Transport, session: Session, context: WorkerContext) -> None:
    """Read nothing for so long. Raises BrokenResourceError if the client is gone: it must not keep its place."""
    session.is_paused = True
    left_at_s: float | None = None
    ends_at_s = trio.current_time() + rest_s
    while session.ending is None and (now_s := trio.current_time()) < ends_at_s:
        if transport.has_left() and left_at_s is None:
            left_at_s = now_s  # what it sent before that still counts, if it can be read soon
        if transport.is_reset() or (left_at_s is not None and now_s - left_at_s > context.block_timeout_s):
            raise trio.BrokenResourceError
        with trio.move_on_after(min(LOOK_S, ends_at_s - now_s)):
            await session.resumed.wait()
    session.read_again()


async def _log_in(transport: Transport, session: Session, authenticator: Authenticator) -> None:
    """Have its credentials checked; nothing is read from the client meanwhile. Raises BrokenResourceError if it leaves
    first: then nobody waits behind it, and nothing is hashed for it."""
    assert session.credentials is not None
    async with trio.open_nursery() as checking:
        checking.start_soon(_cancel_when_left, transport, checking.cancel_scope)
        try:
            grant = await authenticator.check(session.credentials, session.await_check)
        except LoginRefused as refused:
            session.refuse(refused)
        else:
            session.admit(grant)
        checking.cancel_scope.cancel()
    if session.credentials is not None and session.ending is None:
        raise trio.BrokenResourceError


async def _cancel_when_left(transport: Transport, scope: trio.CancelScope) -> None:
    while True:
        # First: a script may close its side at once, and read what comes.
        await trio.sleep(LOGIN_LOOK_S)
        if transport.has_left():
            scope.cancel()


async def _wait_for_memory(session: Session, context: WorkerContext) -> None:
    """Wait with the rest of a large body while memory is used up, perhaps by such bodies; give up after a while."""
    session.is_paused = True
    with trio.move_on_after(context.block_timeout_s) as waiting:
        while context.budget.is_tight:
            await context.budget.eased.wait()
    session.read_again()
    if waiting.cancelled_caught:
        session.fail(
            PeerViolation(
                "out of memory",
                f"{session.partial_bytes} bytes of a frame were received, and for {context.block_timeout_s:g} s there "
                "was no memory for the rest; try again later",
            )
        )


async def _forget(transport: Transport) -> None:
    """Read and drop, so that the client can finish what it is sending."""
    try:
        while await transport.receive_some(FORGOTTEN_CHUNK_BYTES):
            pass
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass


async def _write(transport: Transport, session: Session, dispatch: Dispatch) -> None:
    """Send the outbox, all that is in it at a time, and deliver to those who have waited for that. What was begun is
    finished, or the connection ends: half a frame must never be followed by anything else."""
    outbox: Outbox = session.outbox
    try:
        while True:
            await outbox.wait_filled()
            if outbox.is_closed:
                return
            parts, when_sent = outbox.take()
            await transport.send_all(*parts)
            with dispatch:
                outbox.mark_sent(sum(map(len, parts)), when_sent)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        # Reading goes on: frames that the client sent before it left may still arrive, and count.
        outbox.close()
