"""Counts and measures that the hot path may afford: plain numbers, changed once per run or batch."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from operator import add
from time import perf_counter
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

#: Sequences to mypyc, which takes a constant that is a tuple of floats for one that was not set.
_BELOW_1_S: Final[Sequence[float]] = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5)
SECONDS_BOUNDS: Final[Sequence[float]] = (*_BELOW_1_S, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0)
COUNT_BOUNDS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)


@final
class Histogram:
    """
    Invariants:
        counts[i] is how many values were above bounds[i - 1] and at most bounds[i]; the last one is for the rest
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        #: The sum of all values.
        self.total = 0.0

    def add(self, value: float, times: int = 1) -> None:
        """The value occurred so many times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """Each bound with the number of values up to it; the last bound is infinite."""
        count = 0
        for bound, found in zip((*self.bounds, float("inf")), self.counts, strict=True):
            count += found
            yield bound, count


@final
@dataclass(slots=True, eq=False)
class LoopGauge:
    """The longest time that an actor kept the event loop to itself, between two checkpoints; it should stay below 5 ms.

    Actors note it themselves: a trio instrument sees every step of every task, and took 5 % of a busy broker's time.
    """

    longest_s: float = 0.0
    longest_actor: str = ""

    def note(self, actor: str, began_at_s: float) -> None:
        """`actor` has worked since `began_at_s`, by `perf_counter`, and comes to a checkpoint now."""
        stretch_s = perf_counter() - began_at_s
        if stretch_s > self.longest_s:
            self.longest_s = stretch_s
            self.longest_actor = actor


@final
@dataclass(slots=True, eq=False)
class Totals:
    """Counts of topics, subscriptions and connections that are gone. Each counts for itself while it lives, so that the
    hot path counts nothing twice."""

    #: Counted when a connection opens.
    connections_opened: int = 0
    published: int = 0
    published_bytes: int = 0
    #: Of subscriptions, by the names of their counters.
    counters: Counter[str] = field(default_factory=Counter)
    bytes_in: int = 0
    bytes_out: int = 0
    #: Messages to publishers about what became of theirs, and those that could not be told.
    outcomes_told: int = 0
    outcomes_lost: int = 0

    def add_counters(self, names: Sequence[str], counts: Iterable[int]) -> None:
        """Of a subscription that is gone. A thousand may go at once, so there is no loop in Python."""
        self.counters = Counter(dict(zip(names, map(add, map(self.counters.__getitem__, names), counts), strict=True)))
