"""How long the event loop was kept from everybody else.

Law: a batch is the unit of unfairness, so the longest time an actor worked between two checkpoints is a promise to
watch: no stretch over 5 ms. The actors note their stretches themselves, once per batch; a trio instrument would see
every step of every task, and took 5 % of a busy broker's time.
"""

from __future__ import annotations

from time import perf_counter
from typing import final

__all__ = ["LoopGauge"]


@final
class LoopGauge:
    """Keeps the longest stretch since the start, and whose it was."""

    __slots__ = ("longest_actor", "longest_s")

    def __init__(self) -> None:
        self.longest_s = 0.0
        self.longest_actor = ""

    def note(self, actor: str, began_at_s: float) -> None:
        """`actor` has worked since `began_at_s`, by `perf_counter`, and comes to a checkpoint now."""
        stretch_s = perf_counter() - began_at_s
        if stretch_s > self.longest_s:
            self.longest_s = stretch_s
            self.longest_actor = actor
