"""Carries batches to the store, one at a time, and completes their units when they are written.

Law: the only writer. Nothing is given up: a batch is written, or tried again until the store is back, or until what the
store can never take has been told to those who sent it. Cancelling it between two batches loses nothing that was
acknowledged; in the middle of one, whether it was written is found out at the next start.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from time import perf_counter
from typing import TYPE_CHECKING, Final

import structlog
import trio

from stompbroker.changes import StoreState
from stompbroker.storage import StoreDamaged, StoreFailing, StoreRefused

if TYPE_CHECKING:
    from stompbroker.changes import Unit
    from stompbroker.journal import Formed, Health, StoreJournal, StoreWriter
    from stompbroker.loop_gauge import LoopGauge
    from stompbroker.sessions import Dispatch

__all__ = ["run"]

#: How long units are completed between two checkpoints.
SLICE_S: Final = 0.001
#: How long to wait before a store that failed is tried again: at first, and at most.
FIRST_RETRY_S: Final = 0.1
LAST_RETRY_S: Final = 5.0
#: How long a store may take over a batch before that counts as failing.
STALL_S: Final = 10.0
#: Time between two times that the write-ahead log is shortened or given room, and pages are given back.
UPKEEP_PAUSE_S: Final = 0.05
#: How often the size of the database is measured, in batches.
MEASURE_EVERY: Final = 1000

log = structlog.get_logger()


class BaseRefused(Exception):
    """The store does not take what the broker itself has to write: a bug of ours, which nobody else is blamed for."""


async def run(
    journal: StoreJournal,
    writer: StoreWriter,
    dispatch: Dispatch,
    stretches: LoopGauge,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Write until cancelled. Raises StoreTaken when the store belongs to somebody else."""
    is_looked_after = False

    async def look_after_log_beside() -> None:
        nonlocal is_looked_after
        await _look_after_log(writer)
        # It holds the writer off for moments; clients are to get the time in between.
        await trio.sleep(UPKEEP_PAUSE_S)
        is_looked_after = False

    async with trio.open_nursery() as nursery:
        nursery.start_soon(_watch, journal)
        task_status.started()
        while True:
            await journal.wait_for_work()
            await _write_next(journal, writer, dispatch, stretches)
            if journal.health.state is StoreState.LOW_SPACE:
                await _make_room(journal, writer)
            elif writer.needs_checkpoint and not is_looked_after:
                is_looked_after = True
                nursery.start_soon(look_after_log_beside)


async def _write_next(journal: StoreJournal, writer: StoreWriter, dispatch: Dispatch, stretches: LoopGauge) -> None:
    """One batch; nothing refers to it when it is done, however long there is no other."""
    formed = await _form(journal, stretches)
    await _write(formed, journal, writer)
    await _complete(formed.units, journal, dispatch, stretches)


async def _form(journal: StoreJournal, stretches: LoopGauge) -> Formed:
    began_at_s = perf_counter()
    steps = journal.form_in_steps()
    while True:
        try:
            next(steps)
        except StopIteration as last:
            stretches.note("journal", began_at_s)
            formed: Formed = last.value
            return formed
        if perf_counter() - began_at_s > SLICE_S:
            stretches.note("journal", began_at_s)
            await trio.lowlevel.checkpoint()
            began_at_s = perf_counter()


async def _write(formed: Formed, journal: StoreJournal, writer: StoreWriter) -> None:
    """Until the batch is in the store, as far as the store takes it."""
    delay_s = FIRST_RETRY_S
    is_outcome_known = True
    refusal: StoreRefused | None = None
    while True:
        try:
            if refusal is not None:
                await _leave_out_culprits(formed, refusal, journal, writer)
                refusal = None
            if not is_outcome_known and await writer.recover() == formed.batch.number:
                free_bytes = await writer.free_bytes()
            else:
                is_outcome_known = True
                measures = journal.batches % MEASURE_EVERY == 0
                free_bytes, stored_bytes = await writer.commit(formed.batch, measures=measures)
                if stored_bytes is not None:
                    journal.writing.stored_bytes = stored_bytes
            break
        except StoreRefused as error:
            refusal = error
        except StoreFailing as failure:
            is_outcome_known, refusal = False, None
            journal.writing.begin()
            if isinstance(failure, StoreDamaged):
                journal.health.note_damage(f"it cannot be written to: {failure}")
            if journal.health.note_failing(str(failure)):
                log.error("the store fails; publishers to stored topics wait", reason=str(failure))
            await trio.sleep(delay_s)
            delay_s = min(2 * delay_s, LAST_RETRY_S)
            # Perhaps it is full, and the log holds what could be room.
            with suppress(StoreFailing):
                await writer.checkpoint(truncate=True)
    journal.note_written(formed)
    _note_room(free_bytes, journal.health)


async def _make_room(journal: StoreJournal, writer: StoreWriter) -> None:
    """What consumers have settled is free only when the log that says so is not needed any more."""
    with suppress(StoreFailing):  # the next batch will tell
        await writer.checkpoint(truncate=True)
        _note_room(await writer.free_bytes(), journal.health)


def _note_room(free_bytes: int | None, health: Health) -> None:
    before = health.state
    health.note_room(free_bytes)
    if health.state is before:
        return
    if health.state is StoreState.LOW_SPACE:
        log.error("space is low; publishers to stored topics wait until consumers have made room", free=free_bytes)
    elif before is StoreState.LOW_SPACE:
        log.info("there is room again; publishers go on", free=free_bytes)
    else:
        log.info("the store works again; publishers go on")


async def _leave_out_culprits(
    formed: Formed, refusal: StoreRefused, journal: StoreJournal, writer: StoreWriter
) -> None:
    """Go on without the units that the store does not take. Raises StoreFailing, with nobody blamed yet."""

    async def is_accepted(units: list[Unit]) -> bool:
        return await writer.would_accept(formed.with_only(units))

    if not await is_accepted([]):
        raise BaseRefused("the store refuses what no client has sent") from refusal
    accepted: list[Unit] = []
    # Halves, the first on top: each is tried together with what was accepted before it, on which it may depend.
    untried = [formed.units]
    while untried:
        units = untried.pop()
        if await is_accepted(accepted + units):
            accepted += units
        elif len(units) > 1:
            middle = len(units) // 2
            untried += [units[middle:], units[:middle]]
    culprits = set(formed.units).difference(accepted)
    log.error("the store refused what clients sent", units=len(culprits), reason=str(refusal))
    journal.refuse(formed, culprits, str(refusal))


async def _complete(units: list[Unit], journal: StoreJournal, dispatch: Dispatch, stretches: LoopGauge) -> None:
    """What is written becomes visible, and leaves at once."""
    waiting = deque(units)
    while True:
        began_at_s = perf_counter()
        with dispatch:
            while waiting:
                journal.complete_one(waiting.popleft())
                if perf_counter() - began_at_s > SLICE_S:
                    break
            if not waiting:
                journal.finish()
        stretches.note("journal", began_at_s)
        if not waiting:
            return
        await trio.lowlevel.checkpoint()


async def _watch(journal: StoreJournal) -> None:
    """A store may neither work nor fail, but hang: then nobody else would say so."""
    while True:
        await trio.sleep(STALL_S / 10)
        waited_s = journal.writing.waited_s
        if waited_s >= STALL_S and journal.health.note_failing(f"it has not answered for {waited_s:.0f} s"):
            log.error("the store hangs; publishers to stored topics wait", waited_s=round(waited_s))


async def _look_after_log(writer: StoreWriter) -> None:
    try:
        await writer.checkpoint()
    except StoreFailing as failure:
        log.warning("the store's write-ahead log cannot be shortened", reason=str(failure))
