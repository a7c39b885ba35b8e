"""How long the event loop was kept from everybody else.

Law: a batch is the unit of unfairness, so the longest time one task ran without a checkpoint is a promise to watch: no
stretch over 5 ms. Measured around every step of every task, about a microsecond each; steps are per batch, not per
message.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, final

import trio

if TYPE_CHECKING:
    from trio.lowlevel import Task

__all__ = ["StretchGauge"]


@final
class StretchGauge(trio.abc.Instrument):
    """Keeps the longest stretch since the start, and whose it was."""

    def __init__(self) -> None:
        #: None until the first whole step: it is switched on in the middle of one.
        self._began_at: float | None = None
        self.longest_s = 0.0
        #: The name of the task that ran it.
        self.longest_task = ""

    def before_task_step(self, task: Task) -> None:
        self._began_at = perf_counter()

    def after_task_step(self, task: Task) -> None:
        if self._began_at is None:
            return
        stretch_s = perf_counter() - self._began_at
        if stretch_s > self.longest_s:
            self.longest_s = stretch_s
            self.longest_task = task.name
