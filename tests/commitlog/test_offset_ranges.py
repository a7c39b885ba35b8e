"""A set of offsets behaves like a set, whatever is added in whatever order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stompbroker.commitlog import OffsetRanges, disjoint

#: Small numbers, so that ranges touch, overlap and swallow each other often.
bounds = st.integers(0, 40)
spans = st.tuples(bounds, bounds)


def ranges_of(*added: tuple[int, int]) -> OffsetRanges:
    ranges = OffsetRanges()
    for start, stop in added:
        ranges.add(start, stop)
    return ranges


@given(st.lists(spans, max_size=30), spans)
def test_it_agrees_with_a_naive_set(added: list[tuple[int, int]], asked: tuple[int, int]) -> None:
    ranges, model = OffsetRanges(), set[int]()
    for start, stop in added:
        new = set(range(start, stop)) - model
        assert ranges.add(start, stop) == len(new)
        model |= new
        ranges.check_invariants()

    assert ranges.count == len(model)
    assert [offset for offset in range(42) if offset in ranges] == sorted(model)
    start, stop = asked
    assert ranges.covers(start, stop) == model.issuperset(range(start, stop))
    missing = [offset for low, high in ranges.gaps(start, stop) for offset in range(low, high)]
    there = [offset for low, high in ranges.common(start, stop) for offset in range(low, high)]
    assert sorted(missing + there) == list(range(start, stop))
    assert missing == [offset for offset in range(start, stop) if offset not in model]
    ranges.discard(start, stop)
    ranges.check_invariants()
    assert {offset for low, high in ranges for offset in range(low, high)} == model - set(range(start, stop))


@given(st.lists(spans.filter(lambda span: span[0] < span[1]), max_size=10))
def test_disjoint_ranges_have_every_offset_once(ranges: list[tuple[int, int]]) -> None:
    offsets = [offset for start, stop in disjoint(ranges) for offset in range(start, stop)]

    assert offsets == sorted({offset for start, stop in ranges for offset in range(start, stop)})


def test_ranges_that_touch_become_one() -> None:
    assert list(ranges_of((0, 5), (10, 15), (5, 10))) == [(0, 15)]


def test_a_gap_is_reported_as_one_range() -> None:
    assert ranges_of((0, 5), (10, 15)).gaps(2, 20) == [(5, 10), (15, 20)]


def test_the_first_range_is_taken_only_where_it_starts() -> None:
    ranges = ranges_of((3, 5), (8, 9))

    assert ranges.pop_first_if_starting_at(2) == 2
    assert ranges.pop_first_if_starting_at(3) == 5
    assert list(ranges) == [(8, 9)]
    ranges.check_invariants()
