"""Moves messages from topics to the outboxes of consumers that may receive.

Takes turns of `Dispatch` while a consumer is ready, with a checkpoint after each, and looks at deadlines and
redeliveries. Most messages are delivered by the actor that made them ready, in the same stretch; the rest is delivered
here. Cancelling it between two turns loses nothing: a message is in flight only once its bytes are in an outbox.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Final

import trio

from stompbroker.delivery import answering

if TYPE_CHECKING:
    from stompbroker.changes import DeadLetters
    from stompbroker.clock import Clock
    from stompbroker.counting import LoopGauge
    from stompbroker.delivery import ReadyQueue, Registry, Waiting
    from stompbroker.sessions import Dispatch

#: Redeliveries handled between two checkpoints; each takes 1 µs, and more if it is given up.
DUE_PER_TURN: Final = 128


async def run(
    registry: Registry, dispatch: Dispatch, dead_letters: DeadLetters, clock: Clock, stretches: LoopGauge
) -> None:
    """Deliver until cancelled."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_look_at_due, registry, dead_letters, clock, stretches)
        await _deliver(registry.ready, dispatch, stretches)


async def _deliver(ready: ReadyQueue, dispatch: Dispatch, stretches: LoopGauge) -> None:
    while True:
        await ready.wait()
        began_at_s = perf_counter()
        dispatch.take_turn()
        stretches.note("distributor", began_at_s)
        await trio.lowlevel.checkpoint()


async def _look_at_due(registry: Registry, dead_letters: DeadLetters, clock: Clock, stretches: LoopGauge) -> None:
    """Deliveries not answered in time have failed; waiting ones that are due become free, or are given up if their
    attempts are used up."""
    redeliveries, deadlines = registry.redeliveries, registry.deadlines
    while True:
        times = [due_ns for due_ns in (redeliveries.next_due_ns, deadlines.next_due_ns) if due_ns is not None]
        await redeliveries.changed.wait_until(min(times, default=None), clock)
        began_at_s = perf_counter()
        now_ns = clock.now_ns()
        for consumer, first, last in deadlines.take_due(now_ns, DUE_PER_TURN):
            answering.pass_deadline(consumer, first, last, now_ns)
        used_up: list[Waiting] = []
        for entry in redeliveries.take_due(now_ns, DUE_PER_TURN):
            if entry.reading.is_used_up(entry.offset):
                used_up.append(entry)
            else:
                answering.become_due(entry)
        dead_letters.give_up(used_up)
        stretches.note("distributor", began_at_s)
