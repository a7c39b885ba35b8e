"""How often a number was how large."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompbroker.histogram import COUNT_BOUNDS, SECONDS_BOUNDS, Histogram

BOUNDS = (1.0, 10.0, 100.0)
VALUES = st.lists(
    st.tuples(st.floats(min_value=0, max_value=1000), st.integers(min_value=0, max_value=5)), min_size=1, max_size=50
)


def filled(values: list[tuple[float, int]]) -> Histogram:
    histogram = Histogram(BOUNDS)
    for value, times in values:
        histogram.add(value, times)
    return histogram


def test_a_value_on_a_bound_is_within_it() -> None:
    histogram = filled([(1.0, 1), (1.0000001, 1), (10.0, 1), (100.0, 1), (100.1, 1), (0.0, 1)])
    assert histogram.counts == [2, 2, 1, 1]
    assert list(histogram.cumulative()) == [(1.0, 2), (10.0, 4), (100.0, 5), (math.inf, 6)]


def test_an_empty_one_has_no_quantile() -> None:
    histogram = Histogram(BOUNDS)
    assert (histogram.count, histogram.total, histogram.quantile(0.5)) == (0, 0, None)
    assert [count for _, count in histogram.cumulative()] == [0, 0, 0, 0]


def test_a_value_that_came_up_no_times_is_not_there() -> None:
    histogram = Histogram(BOUNDS)
    histogram.add(5, 0)
    assert (histogram.count, histogram.total) == (0, 0)


@pytest.mark.parametrize(("share", "bound"), [(0.0, 1.0), (0.5, 1.0), (0.51, 10.0), (0.99, math.inf), (1.0, math.inf)])
def test_quantiles_are_bounds(share: float, bound: float) -> None:
    assert filled([(0.5, 5), (5, 3), (50, 1), (500, 1)]).quantile(share) == bound


@pytest.mark.parametrize("bounds", [SECONDS_BOUNDS, COUNT_BOUNDS])
def test_the_bounds_in_use_are_sorted_and_different(bounds: tuple[float, ...]) -> None:
    assert list(bounds) == sorted(set(bounds))


@given(VALUES)
def test_it_counts_as_whoever_keeps_all_values_would(values: list[tuple[float, int]]) -> None:
    histogram = filled(values)
    everything = [value for value, times in values for _ in range(times)]

    assert histogram.count == len(everything)
    assert histogram.total == pytest.approx(sum(everything))
    for bound, count in histogram.cumulative():
        assert count == sum(value <= bound for value in everything)


@given(VALUES, st.floats(min_value=0, max_value=1))
def test_at_least_the_share_is_within_the_quantile_and_no_lower_bound_has_it(
    values: list[tuple[float, int]], share: float
) -> None:
    histogram = filled(values)
    quantile = histogram.quantile(share)
    if quantile is None:
        assert histogram.count == 0
        return
    cumulative = dict(histogram.cumulative())
    assert cumulative[quantile] >= share * histogram.count
    assert all(count < share * histogram.count for bound, count in cumulative.items() if bound < quantile)
