"""How often a number was how large.

Law: plain integers in a few fixed classes, filled once per run on the hot path and read by whoever wants statistics.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["COUNT_BOUNDS", "SECONDS_BOUNDS", "Histogram"]

#: From a tenth of a millisecond to an hour.
SECONDS_BOUNDS: Final = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
    3600.0,
)
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

    @property
    def count(self) -> int:
        return sum(self.counts)

    def add(self, value: float, times: int = 1) -> None:
        """The value came up so many times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """Each bound, and how many values were at most as large; the last bound is infinite."""
        count = 0
        for bound, found in zip((*self.bounds, float("inf")), self.counts, strict=True):
            count += found
            yield bound, count

    def quantile(self, share: float) -> float | None:
        """A bound that at least this share of all values was within; None if there are none."""
        count = self.count
        if not count:
            return None
        return next(bound for bound, within in self.cumulative() if within >= share * count)
