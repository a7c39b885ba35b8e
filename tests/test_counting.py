"""A histogram with fixed bounds."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompbroker.counting import COUNT_BOUNDS, SECONDS_BOUNDS, Histogram

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


def test_an_empty_one_counts_nothing() -> None:
    histogram = Histogram(BOUNDS)
    histogram.add(5, 0)
    assert histogram.total == 0
    assert [count for _, count in histogram.cumulative()] == [0, 0, 0, 0]


@pytest.mark.parametrize("bounds", [SECONDS_BOUNDS, COUNT_BOUNDS])
def test_the_bounds_in_use_are_sorted_and_different(bounds: tuple[float, ...]) -> None:
    assert list(bounds) == sorted(set(bounds))


@given(VALUES)
def test_it_counts_as_whoever_keeps_all_values_would(values: list[tuple[float, int]]) -> None:
    histogram = filled(values)
    everything = [value for value, times in values for _ in range(times)]

    assert sum(histogram.counts) == len(everything)
    assert histogram.total == pytest.approx(sum(everything))
    for bound, count in histogram.cumulative():
        assert count == sum(value <= bound for value in everything)
