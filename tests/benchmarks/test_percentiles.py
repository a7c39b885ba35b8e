"""A wrong rank looks just like a right one, so ranks are checked against values that are their own rank."""

from __future__ import annotations

import pytest

from benchmarks.percentiles import Spread, percentile, spread_of


@pytest.mark.parametrize(
    ("count", "thousandths", "rank"),
    [
        (1, 1, 1),
        (1, 1000, 1),
        (2, 500, 1),
        (3, 500, 2),
        (4, 500, 2),
        (100, 70, 7),  # ceil(0.07 * 100) is 8
        (100, 990, 99),
        (101, 990, 100),
        (1000, 999, 999),
        (1001, 999, 1000),
        (3000, 999, 2997),
        (3000, 1000, 3000),
    ],
)
def test_a_percentile_is_the_value_at_the_nearest_rank(count: int, thousandths: int, rank: int) -> None:
    assert percentile(range(1, count + 1), thousandths) == rank


@pytest.mark.parametrize("thousandths", [500, 990, 999])
def test_at_least_that_share_of_the_values_is_not_above_a_percentile_and_one_rank_lower_would_be_too_few(
    thousandths: int,
) -> None:
    for count in range(1, 300):
        rank = percentile(range(1, count + 1), thousandths)

        assert rank * 1000 >= thousandths * count
        assert (rank - 1) * 1000 < thousandths * count


def test_no_values_have_no_percentile() -> None:
    with pytest.raises(ValueError, match="at least one value"):
        percentile([], 500)


@pytest.mark.parametrize("thousandths", [0, 1001])
def test_a_percentile_lies_between_nothing_and_all(thousandths: int) -> None:
    with pytest.raises(ValueError, match="allowed are 1 to 1000"):
        percentile([1], thousandths)


def test_a_spread_does_not_need_its_values_in_order() -> None:
    assert spread_of([3.0, 1.0, 10.0, 2.0]) == Spread(lowest=1.0, median=2.5, highest=10.0)
