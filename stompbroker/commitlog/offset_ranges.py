"""A set of offsets, as sorted disjoint half-open ranges.

Law: this file knows whole numbers and nothing else. Ten thousand acknowledged offsets in a row are one range.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Iterator


@final
@dataclass(slots=True, eq=False)
class OffsetRanges:
    """
    Invariants:
        starts[i] < stops[i] < starts[i + 1]: no range is empty, and two that touch are one
        count == number of offsets in all ranges
    """

    _starts: list[int] = field(default_factory=list)
    _stops: list[int] = field(default_factory=list)
    count: int = 0

    def __bool__(self) -> bool:
        return bool(self._starts)

    def __len__(self) -> int:
        """How many ranges there are."""
        return len(self._starts)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._starts, self._stops, strict=True)

    def __contains__(self, offset: int) -> bool:
        index = bisect_right(self._starts, offset) - 1
        return index >= 0 and offset < self._stops[index]

    def covers(self, start: int, stop: int) -> bool:
        """Whether every offset o with start <= o < stop is in the set."""
        if start >= stop:
            return True
        index = bisect_right(self._starts, start) - 1
        return index >= 0 and stop <= self._stops[index]

    def gaps(self, start: int, stop: int) -> list[tuple[int, int]]:
        """The ranges within [start, stop) that are not in the set."""
        found: list[tuple[int, int]] = []
        index = bisect_right(self._stops, start)
        while start < stop:
            if index == len(self._starts) or self._starts[index] >= stop:
                found.append((start, stop))
                break
            if start < self._starts[index]:
                found.append((start, self._starts[index]))
            start = self._stops[index]
            index += 1
        return found

    def common(self, start: int, stop: int) -> list[tuple[int, int]]:
        """The ranges within [start, stop) that are in the set."""
        found: list[tuple[int, int]] = []
        for gap_start, gap_stop in [*self.gaps(start, stop), (stop, stop)]:
            if start < gap_start:
                found.append((start, gap_start))
            start = gap_stop
        return found

    def add(self, start: int, stop: int) -> int:
        """Put [start, stop) into the set; returns how many of its offsets were not there before."""
        if start >= stop:
            return 0
        # All ranges from `first` up to, not including, `last` overlap or touch the new one and melt into it.
        first = bisect_left(self._stops, start)
        last = bisect_right(self._starts, stop)
        absorbed = 0
        if first < last:
            absorbed = sum(self._stops[first:last]) - sum(self._starts[first:last])
            start = min(start, self._starts[first])
            stop = max(stop, self._stops[last - 1])
        self._starts[first:last] = [start]
        self._stops[first:last] = [stop]
        added = stop - start - absorbed
        self.count += added
        return added

    def discard(self, start: int, stop: int) -> None:
        """Take [start, stop) out of the set, as far as it is in it."""
        first, last = bisect_right(self._stops, start), bisect_left(self._starts, stop)
        if first < last and start < stop:
            lowest, highest = self._starts[first], self._stops[last - 1]
            kept = [(low, high) for low, high in ((lowest, start), (stop, highest)) if low < high]
            self.count -= sum(self._stops[first:last]) - sum(self._starts[first:last])
            self.count += sum(high - low for low, high in kept)
            self._starts[first:last] = [low for low, _ in kept]
            self._stops[first:last] = [high for _, high in kept]

    def pop_first_if_starting_at(self, offset: int) -> int:
        """Take the lowest range out if it begins at `offset`; returns its stop, or `offset` if there is none."""
        if not self._starts or self._starts[0] != offset:
            return offset
        del self._starts[0]
        stop = self._stops.pop(0)
        self.count -= stop - offset
        return stop

    def forget_below(self, offset: int) -> None:
        index = bisect_right(self._stops, offset)
        del self._starts[:index], self._stops[:index]
        if self._starts and self._starts[0] < offset:
            self._starts[0] = offset
        self.count = sum(self._stops) - sum(self._starts)

    def first_from(self, offset: int) -> int | None:
        """The lowest offset in the set that is not below `offset`."""
        index = bisect_right(self._stops, offset)
        return max(self._starts[index], offset) if index < len(self._starts) else None

    def first_outside_from(self, offset: int) -> int:
        """The lowest offset that is not in the set and not below `offset`."""
        index = bisect_right(self._starts, offset) - 1
        return max(offset, self._stops[index]) if index >= 0 else offset

    def check_invariants(self) -> None:
        assert len(self._starts) == len(self._stops)
        assert all(start < stop for start, stop in self)
        assert all(stop < start for stop, start in zip(self._stops, self._starts[1:], strict=False))
        assert self.count == sum(stop - start for start, stop in self)


def disjoint(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same offsets as sorted ranges that share none. Mostly they share none, which C finds out."""
    if len(ranges) <= 1:
        return ranges
    in_order = sorted(ranges)
    bounds = list(chain.from_iterable(in_order))
    if bounds == sorted(bounds):
        return in_order
    united = OffsetRanges()
    for start, stop in ranges:
        united.add(start, stop)
    return list(united)
