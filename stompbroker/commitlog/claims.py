"""What a cursor says of offsets that changed their state together: plain values."""

from __future__ import annotations

from typing import NamedTuple

from stompbroker.commitlog.offset_ranges import OffsetRanges


class Settlement(NamedTuple):
    """How many offsets a settling took out of each state; the rest of its range was settled before."""

    in_flight: int
    waiting: int
    free: int
    held_up: int

    @property
    def total(self) -> int:
        return self.in_flight + self.waiting + self.free + self.held_up


class Claimed(NamedTuple):
    """Offsets that became pending together, and what they were before: in flight unless waiting or free."""

    ranges: list[tuple[int, int]]
    waiting: list[int]
    free: list[int]

    @property
    def total(self) -> int:
        return sum(stop - start for start, stop in self.ranges)

    @property
    def in_flight(self) -> int:
        return self.total - len(self.waiting) - len(self.free)

    @property
    def in_flight_ranges(self) -> list[tuple[int, int]]:
        if not self.waiting and not self.free:
            return self.ranges
        elsewhere = OffsetRanges()
        for offset in (*self.waiting, *self.free):
            elsewhere.add(offset, offset + 1)
        return [gap for start, stop in self.ranges for gap in elsewhere.gaps(start, stop)]
