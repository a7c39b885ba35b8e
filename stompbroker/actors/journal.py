"""Writes batches to the store, one at a time, and completes their units.

The only writer. A failing store is tried again until it is back; units that the store can never take are refused to
their senders. Cancelling it between two batches loses nothing that was acknowledged; if it is cancelled within one, the
next start finds out whether that was written.
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
    from stompbroker.counting import LoopGauge
    from stompbroker.journal import Formed, Health, StoreJournal, StoreWriter
    from stompbroker.sessions import Dispatch

#: How long batches are formed and units completed between two checkpoints.
SLICE_S: Final = 0.001
#: How long to wait before trying a failing store again: at first, and at most.
FIRST_RETRY_S: Final = 0.1
LAST_RETRY_S: Final = 5.0
#: A store that takes this long over a batch counts as failing.
STALL_S: Final = 10.0
#: Pause after each checkpoint.
UPKEEP_PAUSE_S: Final = 0.05
#: How often the size of the database is measured, in batches.
MEASURE_EVERY: Final = 1000

log = structlog.get_logger()


class BaseRefused(Exception):
    """The store refuses what the broker itself has to write: a bug of ours, for which no client is blamed."""


async def run(journal: StoreJournal, writer: StoreWriter, dispatch: Dispatch, stretches: LoopGauge) -> None:
    """Write until cancelled. Raises StoreTaken when another broker has taken the store."""
    has_upkeep = False

    async def keep_up() -> None:
        nonlocal has_upkeep
        try:
            await writer.checkpoint()
        except StoreFailing as failure:
            log.warning("the store's write-ahead log cannot be shortened", reason=str(failure))
        # A checkpoint holds the writer off for moments; the pause is for clients.
        await trio.sleep(UPKEEP_PAUSE_S)
        has_upkeep = False

    async with trio.open_nursery() as nursery:
        nursery.start_soon(_watch, journal)
        while True:
            await journal.wait_for_work()
            await journal.company.wait()
            await _write_next(journal, writer, dispatch, stretches)
            if journal.health.state is StoreState.LOW_SPACE:
                await _make_room(journal, writer)
            elif writer.needs_checkpoint and not has_upkeep:
                has_upkeep = True
                nursery.start_soon(keep_up)


async def _write_next(journal: StoreJournal, writer: StoreWriter, dispatch: Dispatch, stretches: LoopGauge) -> None:
    """Write one batch. A function of its own, so that nothing refers to the batch afterwards."""
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
    """Returns when the batch is in the store, without the units that the store refuses."""
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
            # If the disk is full, a checkpoint may make room.
            with suppress(StoreFailing):
                await writer.checkpoint(truncate=True)
    journal.note_written(formed)
    _note_room(free_bytes, journal.health)


async def _make_room(journal: StoreJournal, writer: StoreWriter) -> None:
    """Only a checkpoint turns the messages that consumers have settled into free space."""
    with suppress(StoreFailing):  # the next batch will report it
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
    """Refuse the units that the store does not take, and take them out of the batch. Raises StoreFailing, with no unit
    refused yet."""

    formed.mute.clear()

    async def is_accepted(units: list[Unit]) -> bool:
        return await writer.would_accept(formed.with_only(units))

    if not await is_accepted([]):
        raise BaseRefused("the store refuses what no client has sent") from refusal
    accepted: list[Unit] = []
    # Halves, the first on top: each is tried together with the units accepted before it, on which it may depend.
    untried = [formed.units]
    while untried:
        units = untried.pop()
        if await is_accepted(accepted + units):
            accepted += units
        elif len(units) > 1:
            middle = len(units) // 2
            untried += [units[middle:], units[:middle]]
        elif units[0].told and units[0] not in formed.mute:
            formed.mute.add(units[0])
            untried.append(units)
    culprits = set(formed.units).difference(accepted)
    if culprits:
        log.error("the store refused what clients sent", units=len(culprits), reason=str(refusal))
    journal.refuse(formed, culprits, str(refusal))


async def _complete(units: list[Unit], journal: StoreJournal, dispatch: Dispatch, stretches: LoopGauge) -> None:
    """Make written units visible, and send what becomes ready at once."""
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
    """Report a store that hangs, which neither works nor raises an error."""
    while True:
        await trio.sleep(STALL_S / 10)
        waited_s = journal.writing.waited_s
        if waited_s >= STALL_S and journal.health.note_failing(f"it has not answered for {waited_s:.0f} s"):
            log.error("the store hangs; publishers to stored topics wait", waited_s=round(waited_s))
