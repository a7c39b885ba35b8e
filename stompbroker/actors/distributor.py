"""Moves messages from topics to the outboxes of consumers that may receive.

Law: takes ready consumers in turn, gives each a slice, and checks in with the event loop after a written time.
Cancelling it between two slices loses nothing: a message is in flight only once its bytes are in an outbox.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Final

import trio

from stompbroker.clock import NANOSECONDS

if TYPE_CHECKING:
    from stompbroker.clock import Clock
    from stompbroker.stretches import StretchGauge
    from stompbroker.topics import DeadLetters, ReadyQueue, Registry, Waiting

__all__ = ["run"]

#: How long slices are handed out between two checkpoints. One slice takes 0.1 to 0.5 ms.
TURN_S: Final = 0.001
#: Redeliveries made ready between two checkpoints; each takes 1 µs, and one that is given up more.
DUE_PER_TURN: Final = 128


async def run(
    registry: Registry,
    dead_letters: DeadLetters,
    clock: Clock,
    stretches: StretchGauge,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Deliver until cancelled."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_look_at_due, registry, dead_letters, clock, stretches)
        task_status.started()
        await _deliver(registry.ready, clock, stretches)


async def _deliver(ready: ReadyQueue, clock: Clock, stretches: StretchGauge) -> None:
    while True:
        await ready.wait()
        began_at_s = perf_counter()
        now_ns = clock.now_ns()
        while len(ready):
            ready.take().deliver_slice(now_ns)
            if perf_counter() - began_at_s > TURN_S:
                break
        ready.try_to_unblock_moved(clock.now_ns())
        stretches.note("distributor", began_at_s)
        await trio.lowlevel.checkpoint()


async def _look_at_due(registry: Registry, dead_letters: DeadLetters, clock: Clock, stretches: StretchGauge) -> None:
    """Wait for the earliest time, and look at whatever is due: what was not answered in time has failed, what waits
    goes again, and what is not tried again is given up."""
    redeliveries, deadlines = registry.redeliveries, registry.deadlines
    while True:
        times = [due_ns for due_ns in (redeliveries.next_due_ns, deadlines.next_due_ns) if due_ns is not None]
        if not times:
            await redeliveries.changed.wait()
            continue
        with trio.move_on_after(max(0.0, (min(times) - clock.now_ns()) / NANOSECONDS)):
            await redeliveries.changed.wait()
        began_at_s = perf_counter()
        now_ns = clock.now_ns()
        for consumer, first, last in deadlines.take_due(now_ns, DUE_PER_TURN):
            consumer.pass_deadline(first, last, now_ns)
        used_up: list[Waiting] = []
        for entry in redeliveries.take_due(now_ns, DUE_PER_TURN):
            if entry.reading.is_used_up(entry.offset):
                used_up.append(entry)
            else:
                entry.reading.become_due(entry.offset)
        dead_letters.give_up(used_up)
        stretches.note("distributor", began_at_s)
