"""The first few of many, while one goes through them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompbroker.control import Best
from stompbroker.control.top_n import SLACK


@given(st.lists(st.integers(), unique=True), st.integers(1, 5), st.booleans())
def test_they_are_the_first_of_all(numbers: list[int], limit: int, is_descending: bool) -> None:
    best: Best[tuple[int]] = Best(limit, is_descending=is_descending)
    for number in numbers:
        best.put((number,))

    assert best.take() == [(number,) for number in sorted(numbers, reverse=is_descending)[:limit]]
    assert best.count == len(numbers)


@pytest.mark.parametrize("is_descending", [True, False])
def test_few_are_kept_of_many(is_descending: bool) -> None:
    best: Best[tuple[int]] = Best(3, is_descending=is_descending)
    for number in range(10 * SLACK):
        best.put((number * 7919 % (10 * SLACK),))

    assert len(best) <= 3 + SLACK
    assert [row[0] for row in best.take()] == ([4999, 4998, 4997] if is_descending else [0, 1, 2])
