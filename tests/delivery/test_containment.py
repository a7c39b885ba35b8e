"""A permission allows a pattern only if it contains all of it."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompbroker.delivery import DestinationKind, Pattern, destination, parse_pattern

#: All names of up to four segments over three letters, one of which no pattern below names.
NAMES = [parse_pattern(".".join(name)) for length in range(1, 5) for name in product("abz", repeat=length)]
NAMES += [parse_pattern("DLQ." + name.name) for name in NAMES if len(name.segments) < 4]

segments = st.lists(st.sampled_from(["a", "b", "*", ">"]), min_size=1, max_size=4)
patterns = st.tuples(st.sampled_from(["", "DLQ."]), segments).map(
    lambda parts: parse_pattern(parts[0] + ".".join(parts[1]))
)


@given(patterns, patterns)
def test_a_pattern_contains_another_exactly_if_it_means_all_its_topics(outer: Pattern, inner: Pattern) -> None:
    means_all = all(outer.matches(name) for name in NAMES if inner.matches(name))

    assert outer.contains(inner) == means_all


@pytest.mark.parametrize(
    ("outer", "inner", "is_contained"),
    [
        ("a.*", "a.>", False),
        ("a.>", "a.*", True),
        ("a.>", "a", True),
        (">", "DLQ.>", False),
        ("DLQ.>", ">", False),
        ("*.>", ">", True),
        ("a.*.c", "a.b.c", True),
        ("a", "*", False),
    ],
)
def test_containment(outer: str, inner: str, is_contained: bool) -> None:
    assert parse_pattern(outer).contains(parse_pattern(inner)) is is_contained


@given(patterns, patterns)
def test_what_is_for_queues_contains_no_topics(outer: Pattern, inner: Pattern) -> None:
    for_queues = Pattern(outer.segments, DestinationKind.QUEUE)

    assert not for_queues.contains(inner)
    assert not inner.contains(for_queues)


def test_a_permission_that_takes_too_long_to_compare_allows_nothing() -> None:
    costly = ">.a" + ".*" * 25

    assert not parse_pattern(costly).contains(parse_pattern(">.a.>"))


def test_no_pattern_of_a_client_makes_the_comparison_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """It happens in one step of the event loop, for every SUBSCRIBE."""
    steps = 0

    def count_steps(pattern: tuple[str, ...], places: set[int]) -> frozenset[int]:
        nonlocal steps
        steps += 1
        return skipping(pattern, places)

    skipping = destination._skipping
    monkeypatch.setattr(destination, "_skipping", count_steps)
    costly = "orders.>.a" + ".*" * 12

    assert parse_pattern("orders.>").contains(parse_pattern(costly))
    assert not steps
    assert not parse_pattern("*.>.b").contains(parse_pattern(costly))
    assert steps < 1000
