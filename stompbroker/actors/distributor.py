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
    from stompbroker.topics import ReadyQueue, Redeliveries, Registry

__all__ = ["run"]

#: How long slices are handed out between two checkpoints. One slice takes 0.1 to 0.5 ms.
TURN_S: Final = 0.001
#: Redeliveries made ready between two checkpoints.
DUE_PER_TURN: Final = 512


async def run(
    registry: Registry,
    clock: Clock,
    stretches: StretchGauge,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Deliver until cancelled."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_release_due, registry.redeliveries, clock)
        task_status.started()
        await _deliver(registry.ready, clock, stretches)


async def _deliver(ready: ReadyQueue, clock: Clock, stretches: StretchGauge) -> None:
    while True:
        await ready.wait()
        began_at_s = perf_counter()
        while len(ready):
            ready.take().deliver_slice()
            if perf_counter() - began_at_s > TURN_S:
                break
        ready.try_to_unblock_moved(clock.now_ns())
        stretches.note("distributor", began_at_s)
        await trio.lowlevel.checkpoint()


async def _release_due(redeliveries: Redeliveries, clock: Clock) -> None:
    """Wait for the earliest redelivery, and let go whatever is due."""
    while True:
        due_ns = redeliveries.next_due_ns
        if due_ns is None:
            await redeliveries.changed.wait()
            continue
        with trio.move_on_after(max(0.0, (due_ns - clock.now_ns()) / NANOSECONDS)):
            await redeliveries.changed.wait()
        for reading, offset in redeliveries.take_due(clock.now_ns(), DUE_PER_TURN):
            reading.become_due(offset)
