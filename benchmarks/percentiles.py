"""Percentiles of one measurement, median and spread over rounds.

Pure functions. A percentile is a measured value (nearest rank), given in thousandths, because `ceil(0.07 * 100)` is 8
in floating point.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def percentile(ordered: Sequence[int], thousandths: int) -> int:
    """The smallest value that at least `thousandths`/1000 of `ordered` (ascending) do not exceed."""
    if not ordered:
        raise ValueError("a percentile needs at least one value")
    if not 1 <= thousandths <= 1000:
        raise ValueError(f"thousandths is {thousandths}, allowed are 1 to 1000")
    rank = -(-thousandths * len(ordered) // 1000)
    return ordered[rank - 1]


@dataclass(frozen=True, slots=True)
class Spread:
    """One figure over several rounds: lowest <= median <= highest."""

    lowest: float
    median: float
    highest: float


def spread_of(values: Sequence[float]) -> Spread:
    return Spread(lowest=min(values), median=statistics.median(values), highest=max(values))
