"""The last hour, as points at least five seconds apart: of the broker, and of its busiest topics, queues and
subscriptions.

Law: a ring of fixed size, in memory alone. A rate is the growth of a counter since the point before; everything else is
what it was at that moment. What is not known is NaN: where no sample was taken for a while, a point of nothing but NaN
stands between the two around it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, pairwise
from math import nan
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from stompbroker.clock import NANOSECONDS
from stompbroker.control.looking import STEP_ROWS, TopN
from stompbroker.delivery import Subscription

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from stompbroker.control.looking import Look
    from stompbroker.control.sampling import Sample
    from stompbroker.delivery import Topic

    Thing: TypeAlias = Topic | Subscription
    #: When, and the values in the order of `names_of`; NaN is unknown.
    Point: TypeAlias = tuple[int, tuple[float, ...]]

#: Time between two points; the sampler keeps to it while nobody watches.
STEP_S: Final = 5
POINTS: Final = 3600 // STEP_S
#: A sample may come this much early: the one before was late.
_EARLY_NS: Final = NANOSECONDS // 2
#: Points further apart have a gap between them. Samples that change their pace are up to two steps apart.
_GAP_NS: Final = 3 * STEP_S * NANOSECONDS
#: Of each kind, how many are recorded because they are the busiest now, and how many altogether: the others were, and
#: the one longest not among the busiest makes room for a new one.
BUSIEST: Final = 20
KEPT: Final = 2 * BUSIEST
#: What is recorded of each kind: rates, then values.
_RATES: Final[Mapping[str, tuple[str, ...]]] = {
    "broker": ("published", "published_bytes", "delivered", "redelivered", "acked", "nacked", "bytes_in", "bytes_out"),
    "topic": ("published", "published_bytes"),
    "queue": ("published", "published_bytes"),
    "subscription": ("delivered", "acked"),
}
_VALUES: Final[Mapping[str, tuple[str, ...]]] = {
    "broker": ("backlog", "in_flight", "waiting"),
    "topic": (),
    "queue": ("backlog", "in_flight"),
    "subscription": ("backlog", "in_flight"),
}


def names_of(kind: str) -> tuple[str, ...]:
    """What the values of a row are, in their order."""
    return _RATES[kind] + _VALUES[kind]


def kind_of(thing: Thing | None) -> str:
    """None is the broker."""
    if thing is None:
        return "broker"
    return "subscription" if isinstance(thing, Subscription) else "queue" if thing.is_queue else "topic"


@final
class _Series:
    """One thing's values, in arrays of single precision: seven digits."""

    __slots__ = ("_columns", "_counts", "first")

    def __init__(self, kind: str, first: int) -> None:
        #: Number of its first point.
        self.first = first
        self._columns = [array("f", [nan]) * POINTS for _ in names_of(kind)]
        #: At the last point; empty before the first.
        self._counts: Sequence[int] = ()

    def put(self, place: int, counts: Sequence[int], values: Sequence[int], elapsed_s: float) -> None:
        rates = [(now - before) / elapsed_s for now, before in zip(counts, self._counts, strict=False)]
        known = (*(rates or [nan] * len(counts)), *values)
        for column, value in zip(self._columns, known, strict=True):
            column[place] = value
        self._counts = counts

    def put_nothing(self, place: int) -> None:
        for column in self._columns:
            column[place] = nan

    def ordered(self, end: int, count: int) -> Iterator[tuple[float, ...]]:
        return zip(*(_ordered(column, end, count) for column in self._columns), strict=True)


@final
@dataclass(slots=True, eq=False)
class History:
    """
    Invariants:
        end points were put, and the last POINTS of them are kept, in the order of their times
        KEPT things of each kind have a series, the one longest not among the busiest first
    """

    #: How many points were put; the number of the next one.
    end: int = 0
    _times: array[int] = field(default_factory=lambda: array("q", [0]) * POINTS)
    #: When the counts of all series were taken.
    _counted_ns: int = 0
    _broker: _Series = field(default_factory=partial(_Series, "broker", 0))
    _kept: dict[str, dict[Thing, _Series]] = field(
        default_factory=lambda: {kind: {} for kind in _RATES if kind != "broker"}
    )

    async def note(self, sample: Sample, look: Look) -> None:
        """Add a point if it is time for one. One caller at a time, with samples that are each later than the last."""
        for kept in self._kept.values():
            for gone in [thing for thing in kept if thing not in sample.flows]:
                del kept[gone]
        elapsed_ns = sample.at_ns - self._counted_ns
        if self.end and elapsed_ns < STEP_S * NANOSECONDS - _EARLY_NS:
            return
        async with look:
            await self._choose(sample, look)
            values = {}
            for thing in [thing for kept in self._kept.values() for thing in kept]:
                values[thing] = _values_of(thing)
                await look.pause_if_over()
        if self.end and elapsed_ns > _GAP_NS:
            self._put_gap()
        self._put(sample, values, elapsed_ns / NANOSECONDS)

    def points(self, thing: Thing | None, since_ns: int) -> Iterator[Point] | None:
        """Of the broker without a thing; None if this one has no history. What comes later does not change them."""
        series = self._broker if thing is None else self._kept[kind_of(thing)].get(thing)
        if series is None:
            return None
        count = min(self.end - series.first, POINTS)
        times = _ordered(self._times, self.end, count)
        return islice(zip(times, series.ordered(self.end, count), strict=True), bisect_left(times, since_ns), None)

    def check_invariants(self) -> None:
        times = _ordered(self._times, self.end, min(self.end, POINTS))
        assert all(before < after for before, after in pairwise(times))
        for kept in self._kept.values():
            assert len(kept) <= KEPT
            assert all(0 <= series.first <= self.end for series in kept.values())

    async def _choose(self, sample: Sample, look: Look) -> None:
        busiest: dict[str, TopN[tuple[float, int, Thing]]] = {
            kind: TopN(BUSIEST, is_descending=True) for kind in self._kept
        }
        for number, (thing, (_, (rate, _))) in enumerate(sample.flows.items()):
            if rate > 0:
                busiest[kind_of(thing)].put((rate, number, thing))
            if number % STEP_ROWS == 0:
                await look.pause_if_over()
        for kind, kept in self._kept.items():
            for *_, thing in reversed(busiest[kind].take()):
                kept[thing] = kept.pop(thing) if thing in kept else _Series(kind, self.end)
            for thing in list(kept)[: max(0, len(kept) - KEPT)]:
                del kept[thing]

    def _put_gap(self) -> None:
        place = self.end % POINTS
        self._times[place] = self._counted_ns + STEP_S * NANOSECONDS
        for series in (self._broker, *(series for kept in self._kept.values() for series in kept.values())):
            series.put_nothing(place)
        self.end += 1

    def _put(self, sample: Sample, values: Mapping[Thing, Sequence[int]], elapsed_s: float) -> None:
        place = self.end % POINTS
        self._times[place] = self._counted_ns = sample.at_ns
        counts = [sample.totals[name] for name in _RATES["broker"]]
        self._broker.put(place, counts, (sample.backlog, sample.in_flight, sample.waiting), elapsed_s)
        for kept in self._kept.values():
            for thing, series in kept.items():
                series.put(place, sample.flows[thing].counts, values[thing], elapsed_s)
        self.end += 1


def _values_of(thing: Thing) -> tuple[int, ...]:
    if isinstance(thing, Subscription):
        return thing.backlog, thing.in_flight
    if not thing.is_queue:
        return ()
    # The only reading is that of its consumers; there is none while the queue is being deleted.
    groups = list(thing.readings)
    return sum(group.backlog for group in groups), sum(group.in_flight for group in groups)


def _ordered(ring: array[Any], end: int, count: int) -> array[Any]:
    """The last `count` values of a ring in which the next place is that of number `end`."""
    place = end % POINTS
    return (ring[place:] + ring[:place])[POINTS - count :]
