"""The tree of patterns finds exactly the patterns that match, and does not get slow with their number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompbroker.delivery import DestinationKind, Pattern, PatternTree, parse_pattern
from tests.support.work import operations

segments = st.sampled_from(["a", "b", "c"])
kinds = st.sampled_from(DestinationKind)
names = st.builds(Pattern, st.lists(segments, min_size=1, max_size=6).map(tuple), kinds)
patterns = st.builds(
    Pattern, st.lists(st.one_of(segments, st.sampled_from(["*", ">"])), min_size=1, max_size=6).map(tuple), kinds
)


def matches_naively(pattern: tuple[str, ...], name: tuple[str, ...]) -> bool:
    """The definition, word for word."""
    if not pattern:
        return not name
    if pattern[0] == ">":
        return any(matches_naively(pattern[1:], name[skip:]) for skip in range(len(name) + 1))
    return bool(name) and pattern[0] in ("*", name[0]) and matches_naively(pattern[1:], name[1:])


def is_meant(pattern: Pattern, name: Pattern) -> bool:
    return pattern.kind is name.kind and matches_naively(pattern.segments, name.segments)


@given(patterns, names)
def test_a_pattern_matches_as_defined_what_is_of_its_kind(pattern: Pattern, name: Pattern) -> None:
    assert pattern.matches(name) == is_meant(pattern, name)


@given(st.lists(st.tuples(st.booleans(), patterns, st.integers(0, 3)), max_size=30), names)
def test_the_tree_finds_what_matches_as_defined(steps: list[tuple[bool, Pattern, int]], name: Pattern) -> None:
    tree: PatternTree[tuple[Pattern, int]] = PatternTree()
    kept: set[tuple[Pattern, int]] = set()
    for is_added, pattern, number in steps:
        value = (pattern, number)
        if is_added and value not in kept:
            tree.add(pattern, value)
            kept.add(value)
        elif not is_added and value in kept:
            tree.remove(pattern, value)
            kept.remove(value)

    found = tree.match(name)
    assert len(found) == len(set(found))
    assert set(found) == {value for value in kept if is_meant(value[0], name)}
    assert tree.count == len(kept)


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("a.*", "a.b", True),
        ("a.*", "a", False),
        ("a.*", "a.b.c", False),
        ("a.>", "a", True),
        ("a.>", "a.b.c", True),
        (">.c", "a.b.c", True),
        (">", "a", True),
        ("a.**.d", "a.d", True),
        ("a.#.d.*", "a.b.c.d.e", True),
        ("*.*", "a", False),
    ],
)
def test_examples(pattern: str, name: str, expected: bool) -> None:
    assert parse_pattern(pattern).matches(parse_pattern(name)) == expected


def test_matching_costs_the_same_beside_ten_thousand_patterns() -> None:
    name = parse_pattern("market.eu.stock42.price")

    def work_beside(count: int) -> int:
        tree: PatternTree[int] = PatternTree()
        for number in range(count):
            tree.add(parse_pattern(f"market.*.stock{number}.>"), number)
        tree.add(parse_pattern("market.>.price"), -1)
        return operations(lambda: tree.match(name))

    assert work_beside(10_000) <= work_beside(100)


def test_a_pattern_of_many_wildcards_does_not_explode() -> None:
    tree: PatternTree[int] = PatternTree()
    tree.add(Pattern((">", "a") * 8), 0)

    work = operations(lambda: tree.match(Pattern(("a",) * 16 + ("b",))))

    assert work < 17 * 17 * 5  # segments × nodes × operations per node; tried way by way it would be 260,000
