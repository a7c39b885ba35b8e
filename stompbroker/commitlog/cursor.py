"""Where one subscription stands in one log.

Law: this file knows offsets and nothing else. No clock, no waiting, no storage; whoever moves a cursor is responsible
for making the move durable. Every change is one synchronous call.

Below `next_offset` every offset is in exactly one of six states; from it on, it is unsent or given up:

    in flight ──settle──► settled          sent, not yet answered
        │  ▲                 ▲
   set_aside take_free         settle (a late ACK)
        ▼  │                 │
    waiting ──release──► free              waits for its time; may go again at once
            ◄──suspend──

The fifth is pending: the offset belongs to a unit that is on its way to the store (`claim`). It is not sent again,
released or settled by anybody else; and it is not settled, so nothing that it needs may be deleted. The unit's end
decides: `settle_claimed`, `set_aside_claimed`, or `give_back` if the store refuses the unit.

The sixth is held up: the sender has passed over the offset, which waits behind another (`hold_up`). It was not sent, so
nobody can answer it; it becomes in flight (`take_held_up`), or is settled because nobody is to get it.

What is given up will never be sent. It is settled as soon as `next_offset` reaches it.

"In flight" is what is left over: it is derived, not kept, so a thousand deliveries in order cost two numbers.

It has many methods because each is one of these transitions, or one question about a state.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast, final

from stompbroker.commitlog.claims import Claimed, Settlement
from stompbroker.commitlog.offset_ranges import OffsetRanges
from stompbroker.ids import Offset

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Ranges = Iterable[tuple[int, int]]


@final
@dataclass(slots=True, eq=False)
class Cursor:
    """
    Invariants:
        ack_floor <= next_offset; every offset below ack_floor is settled
        every settled range starts above ack_floor (otherwise the floor would have moved) and ends by next_offset
        waiting, free, pending, held up and settled share no offset, and all are below next_offset
        what is given up lies above next_offset
        in_flight == next_offset - ack_floor - settled above the floor - waiting - free - pending - held up
    """

    #: Everything below it is settled.
    ack_floor: Offset
    #: The lowest offset that is still to be sent for the first time.
    next_offset: Offset = field(init=False)
    _settled: OffsetRanges = field(default_factory=OffsetRanges)
    _waiting: set[int] = field(default_factory=set)
    #: Sorted.
    _free: list[int] = field(default_factory=list)
    #: Each mostly None, which means that there is nothing pending, held up, or given up.
    _pending: OffsetRanges | None = None
    _held_up: OffsetRanges | None = None
    given_up: OffsetRanges | None = None

    def __post_init__(self) -> None:
        self.next_offset = self.ack_floor

    @classmethod
    def restored(cls, ack_floor: Offset, settled: Ranges, next_offset: Offset, held_up: Ranges = ()) -> Cursor:
        """Where a subscription stood when it was last written down. What was in flight then may go again."""
        cursor = cls(ack_floor)
        cursor.next_offset = next_offset
        for start, stop in held_up:
            cursor._hold_up(start, stop)
        for start, stop in settled:
            if start < next_offset:
                cursor._settled.add(start, stop)
            else:
                cursor.give_up(start, stop)
        cursor.release_ranges(cursor.in_flight_ranges())
        return cursor

    @property
    def in_flight(self) -> int:
        sent = self.next_offset - self.ack_floor - self._settled.count - len(self._waiting) - len(self._free)
        return sent - self.pending_count - self.held_up_count

    @property
    def pending_count(self) -> int:
        return 0 if self._pending is None else self._pending.count

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    @property
    def free_count(self) -> int:
        return len(self._free)

    @property
    def held_up_count(self) -> int:
        return 0 if self._held_up is None else self._held_up.count

    @property
    def held_up_ranges(self) -> list[tuple[int, int]]:
        return [*(self._held_up or ())]

    @property
    def settled_above(self) -> int:
        """How many offsets above the ack floor are settled."""
        return self._settled.count

    @property
    def hole_count(self) -> int:
        """How many stretches below `next_offset` are not settled."""
        return len(self._settled) + 1

    @property
    def settled_ranges(self) -> list[tuple[int, int]]:
        """Above the ack floor, with what is given up."""
        return [*self._settled, *(self.given_up or ())]

    def unsent_count(self, end: int) -> int:
        """How many offsets below the end of the log are still to be sent for the first time."""
        return end - self.next_offset - (0 if self.given_up is None else self.given_up.count)

    def unsent(self, end: int) -> list[tuple[int, int]]:
        """The ranges of them."""
        if self.given_up is not None:
            return self.given_up.gaps(self.next_offset, end)
        return [(self.next_offset, end)] if self.next_offset < end else []

    def is_unsent(self, offset: int) -> bool:
        return offset >= self.next_offset and (self.given_up is None or offset not in self.given_up)

    def is_settled(self, start: int, stop: int) -> bool:
        """Whether every offset o with start <= o < stop is settled."""
        return stop <= self.ack_floor or self._settled.covers(max(start, self.ack_floor), stop)

    def is_waiting(self, offset: int) -> bool:
        return offset in self._waiting

    def is_in_flight(self, offset: int) -> bool:
        if not self.ack_floor <= offset < self.next_offset or offset in self._settled or offset in self._waiting:
            return False
        if self.is_held_up(offset) or (self._pending is not None and offset in self._pending):
            return False
        return not self.is_free(offset)

    def is_free(self, offset: int) -> bool:
        index = bisect_left(self._free, offset)
        return index < len(self._free) and self._free[index] == offset

    def is_held_up(self, offset: int) -> bool:
        return self._held_up is not None and offset in self._held_up

    def unsettled_from(self, offset: int) -> Offset:
        """The lowest offset not below this one that is not settled, sent or not; perhaps the end of the log."""
        offset = max(offset, self.ack_floor)
        if offset < self.next_offset:
            offset = self._settled.first_outside_from(offset)
        if offset >= self.next_offset and self.given_up is not None:
            offset = self.given_up.first_outside_from(offset)
        return Offset(offset)

    def unsettled(self, start: int, stop: int) -> list[tuple[int, int]]:
        """The ranges of offsets within [start, stop) that were sent or held up, and are not settled."""
        return self._settled.gaps(max(start, self.ack_floor), min(stop, self.next_offset))

    def pending(self, start: int, stop: int) -> list[tuple[int, int]]:
        """The ranges of pending offsets within [start, stop)."""
        return [] if self._pending is None else self._pending.common(start, stop)

    def unclaimed(self, start: int, stop: int) -> list[tuple[int, int]]:
        """The ranges of offsets within [start, stop) that were sent or held up, and are neither settled nor pending."""
        unsettled = self.unsettled(start, stop)
        if self._pending is None:
            return unsettled
        return [gap for low, high in unsettled for gap in self._pending.gaps(low, high)]

    def advance(self, stop: Offset) -> None:
        """Everything from next_offset up to `stop` was sent and is now in flight."""
        assert stop >= self.next_offset
        self.next_offset = stop
        if self.given_up is not None:
            self._step_over_given_up(stop)

    def hold_up(self, stop: Offset) -> None:
        """Unsent → held up, for everything from next_offset up to `stop`."""
        if stop > self.next_offset:
            self._hold_up(self.next_offset, stop)
            self.advance(stop)

    def _hold_up(self, start: int, stop: int) -> None:
        self._held_up = self._held_up or OffsetRanges()
        self._held_up.add(start, stop)

    def step_over(self, stop: int) -> None:
        """Everything unsent below `stop` will never be sent: it is settled in one go."""
        if stop > self.next_offset:
            start, self.next_offset = self.next_offset, Offset(stop)
            if start == self.ack_floor:  # as it is where nothing is ever in flight
                self.ack_floor = self.next_offset
            else:
                self._settle_range(start, stop)
            if self.given_up is not None:
                self.given_up.forget_below(stop)
                self._step_over_given_up(stop)

    def give_up(self, start: int, stop: int) -> int:
        """What is unsent within [start, stop) will never be sent. Returns how many offsets that are."""
        self.given_up = self.given_up or OffsetRanges()
        added = self.given_up.add(max(start, self.next_offset), stop)
        self._step_over_given_up(self.next_offset)
        return added

    def _step_over_given_up(self, start: int) -> None:
        assert self.given_up is not None
        self.next_offset = Offset(self.given_up.pop_first_if_starting_at(start))
        self._settle_range(start, self.next_offset)
        self.given_up = self.given_up or None

    def settle(self, start: int, stop: int) -> Settlement:
        """What was sent or held up of [start, stop) and is not pending is done with, whatever state it was in."""
        return self.settle_all([(start, stop)])

    def settle_all(self, ranges: Ranges) -> Settlement:
        """The same for several ranges."""
        if self._pending is not None:
            ranges = [gap for start, stop in ranges for gap in self._pending.gaps(start, stop)]
        settled = waiting = free = held_up = 0
        for start, stop in ranges:
            start = max(start, self.ack_floor)
            stop = min(stop, self.next_offset)
            if self._waiting:
                waiting += len(self._take_from_waiting(start, stop))
            if self._free:
                free += len(self._take_from_free(start, stop))
            if self._held_up is not None:
                held_up += self._take_from_held_up(start, stop)
            settled += self._settle_range(start, stop)
        return Settlement(settled - waiting - free - held_up, waiting, free, held_up)

    def set_aside(self, start: int, stop: int) -> list[Offset]:
        """In flight → waiting, for every offset o with start <= o < stop that was in flight; returns those."""
        waiting, held_up = self._waiting, self._held_up or ()
        free = self._free[bisect_left(self._free, start) : bisect_left(self._free, stop)] if self._free else ()
        offsets = [
            offset
            for low, high in self.unclaimed(start, stop)
            for offset in cast("Iterable[Offset]", range(low, high))
            if offset not in waiting and offset not in free and offset not in held_up
        ]
        waiting.update(offsets)
        return offsets

    # Pending ---------------------------------------------------------------------------------------------------------

    def claim(self, ranges: list[tuple[int, int]]) -> Claimed:
        """These offsets, one at least, none of them settled or pending, are pending from now on."""
        pending = self._pending = self._pending or OffsetRanges()
        waiting: list[int] = []
        free: list[int] = []
        for start, stop in ranges:
            if self._waiting:
                waiting += self._take_from_waiting(start, stop)
            if self._free:
                free += self._take_from_free(start, stop)
            if self._held_up is not None:  # a late answer, to what was sent before there were keys
                free += [offset for low, high in self._held_up.common(start, stop) for offset in range(low, high)]
                self._take_from_held_up(start, stop)
            pending.add(start, stop)
        return Claimed(ranges, waiting, free)

    def settle_claimed(self, claimed: Claimed) -> None:
        """Pending → settled."""
        self._unclaim(claimed)
        for start, stop in claimed.ranges:
            self._settle_range(start, stop)

    def set_aside_claimed(self, claimed: Claimed) -> None:
        """Pending → waiting."""
        self._unclaim(claimed)
        for start, stop in claimed.ranges:
            self._waiting.update(range(start, stop))

    def give_back(self, claimed: Claimed, lost: Iterable[tuple[int, int]] = ()) -> None:
        """Pending → what it was before. What was in flight and is `lost`, since its consumer has left, is free."""
        self._unclaim(claimed)
        self._waiting.update(claimed.waiting)
        self.release_ranges(lost)
        if claimed.free:
            self._free = sorted([*self._free, *claimed.free])

    def _unclaim(self, claimed: Claimed) -> None:
        assert self._pending is not None
        for start, stop in claimed.ranges:
            self._pending.discard(start, stop)
        self._pending = self._pending or None

    def release(self, offset: int) -> bool:
        """Waiting → free. False if the offset was not waiting (any more)."""
        if offset not in self._waiting:
            return False
        self._waiting.remove(offset)
        if not self._free or self._free[-1] < offset:  # as it is when those refused in one go are due
            self._free.append(offset)
        else:
            insort(self._free, offset)
        return True

    def suspend(self, offset: int) -> bool:
        """Free → waiting. False if the offset was not free."""
        index = bisect_left(self._free, offset)
        if index == len(self._free) or self._free[index] != offset:
            return False
        del self._free[index]
        self._waiting.add(offset)
        return True

    def release_ranges(self, lost: Iterable[tuple[int, int]]) -> None:
        """In flight → free, for these, all of which are in flight. For a consumer that is gone."""
        for start, stop in lost:
            self._free.extend(range(start, stop))
        self._free.sort()

    def in_flight_ranges(self) -> list[tuple[int, int]]:
        if not self._waiting and not self._free and self._pending is None and self._held_up is None:
            return self._settled.gaps(self.ack_floor, self.next_offset)
        elsewhere = OffsetRanges()
        for start, stop in (*self._settled, *(self._pending or ()), *(self._held_up or ())):
            elsewhere.add(start, stop)
        for offset in (*self._waiting, *self._free):
            elsewhere.add(offset, offset + 1)
        return elsewhere.gaps(self.ack_floor, self.next_offset)

    def lowest_free(self, limit: int) -> list[Offset]:
        """What goes again next, `limit` at most."""
        return list(map(Offset, self._free[:limit]))

    def take_free(self, offsets: Sequence[int]) -> None:
        """Free → in flight, for these, which are free; sorted."""
        if self._free[: len(offsets)] == offsets:  # mostly the lowest
            del self._free[: len(offsets)]
            return
        taken = set(offsets)
        self._free = [offset for offset in self._free if offset not in taken]

    def take_held_up(self, offsets: Iterable[int]) -> None:
        """Held up → in flight, for these, which are held up."""
        for offset in offsets:
            self._take_from_held_up(offset, offset + 1)

    def hold_up_free(self, offset: int) -> None:
        """Free → held up, for this one, which is free."""
        self.take_free([offset])
        self._hold_up(offset, offset + 1)

    def _settle_range(self, start: int, stop: int) -> int:
        if start >= stop:
            return 0
        if start == self.ack_floor and not self._settled.count:
            self.ack_floor = Offset(stop)
            return stop - start
        added = self._settled.add(start, stop)
        self.ack_floor = Offset(self._settled.pop_first_if_starting_at(self.ack_floor))
        return added

    def _take_from_waiting(self, start: int, stop: int) -> list[int]:
        if stop - start <= len(self._waiting):
            taken = list(filter(self._waiting.__contains__, range(start, stop)))
        else:
            taken = [offset for offset in self._waiting if start <= offset < stop]
        if taken:
            self._waiting.difference_update(taken)
        return taken

    def _take_from_free(self, start: int, stop: int) -> list[int]:
        first, last = bisect_left(self._free, start), bisect_left(self._free, stop)
        taken = self._free[first:last]
        del self._free[first:last]
        return taken

    def _take_from_held_up(self, start: int, stop: int) -> int:
        assert self._held_up is not None
        taken = sum(high - low for low, high in self._held_up.common(start, stop))
        self._held_up.discard(start, stop)
        self._held_up = self._held_up or None
        return taken

    def check_invariants(self) -> None:
        self._settled.check_invariants()
        assert self.ack_floor <= self.next_offset
        for start, stop in self._settled:
            assert self.ack_floor < start < stop <= self.next_offset
        assert self._free == sorted(set(self._free))
        assert not self._waiting.intersection(self._free)
        for offset in (*self._waiting, *self._free):
            assert self.ack_floor <= offset < self.next_offset
            assert offset not in self._settled
        for ranges in (self._pending, self._held_up):
            assert ranges is None or ranges
            for start, stop in ranges or ():
                assert self.ack_floor <= start < stop <= self.next_offset
                assert self._settled.gaps(start, stop) == [(start, stop)]
                assert not any(start <= offset < stop for offset in (*self._waiting, *self._free))
        assert not any(self.pending(start, stop) for start, stop in self.held_up_ranges)
        assert self.given_up is None or self.given_up
        assert all(start > self.next_offset for start, _ in self.given_up or ())
        assert self.in_flight == sum(stop - start for start, stop in self.in_flight_ranges())
