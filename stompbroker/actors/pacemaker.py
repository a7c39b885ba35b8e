"""Runs the timers of all sessions: heart-beats both ways, and time limits.

One task for all: a task and a timer for each would cost an idle connection more than everything else it has.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from stompbroker.clock import Clock
    from stompbroker.counting import LoopGauge
    from stompbroker.sessions import SessionTimers

#: Sessions handled between two checkpoints; each takes a few microseconds.
SESSIONS_PER_TURN: Final = 256


async def run(timers: SessionTimers, clock: Clock, stretches: LoopGauge) -> None:
    """Keep time until cancelled."""
    while True:
        await timers.changed.wait_until(timers.next_at_ns, clock)
        now_ns = clock.now_ns()
        began_at_s = perf_counter()
        for session in timers.take_due(now_ns, SESSIONS_PER_TURN):
            again_at_ns = session.on_timer(now_ns)
            if again_at_ns is not None:
                timers.schedule(session, again_at_ns)
        stretches.note("pacemaker", began_at_s)
