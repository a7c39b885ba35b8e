"""Ends the process at a moment, whatever it is doing: stopped and woken up, asleep with the machine, or stuck.

Law: for a process that must do nothing more from then on, not even say goodbye to its clients. The kernel's timer
interrupts the main thread before the next instruction of ours, so that what was stopped sends nothing when it is woken
up; an event loop looks at the clock after each wait, since that timer does not count while the machine sleeps.
"""

from __future__ import annotations

import math
import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self, final

import trio
from trio.abc import Instrument

from stompbroker.storage import boottime_s

if TYPE_CHECKING:
    from types import FrameType

#: The shortest time a timer can be set to, in seconds: 0 would turn it off.
_SOON_S: Final = 0.000_001


@final
@dataclass(slots=True, eq=False)
class ProcessDeadline(Instrument):
    """Within its block, in the main thread. It costs a look at the clock in each round of the event loop, and nothing
    before there is a moment."""

    sentence: str
    exit_code: int
    #: By `boottime_s`; infinite: there is none.
    at_s: float = math.inf

    def __enter__(self) -> Self:
        signal.signal(signal.SIGALRM, self._on_alarm)
        return self

    def __exit__(self, *_: object) -> None:
        self.move(math.inf)

    def move(self, at_s: float) -> None:
        """`math.inf` takes it away."""
        if (self.at_s == math.inf) != (at_s == math.inf):
            change = trio.lowlevel.remove_instrument if at_s == math.inf else trio.lowlevel.add_instrument
            change(self)
        self.at_s = at_s
        signal.setitimer(signal.ITIMER_REAL, 0 if at_s == math.inf else max(at_s - boottime_s(), _SOON_S))

    def after_io_wait(self, timeout: float) -> None:
        if boottime_s() > self.at_s:
            self._end()

    def _on_alarm(self, _number: int, _frame: FrameType | None) -> None:
        if boottime_s() >= self.at_s:
            self._end()
        else:  # it was moved meanwhile, or the two clocks do not run alike
            self.move(self.at_s)

    def _end(self) -> None:
        # Nothing of ours may run any more: no handlers, no buffers.
        os.write(2, f"{self.sentence}\n".encode())
        os._exit(self.exit_code)
