"""How much is read at once: grows with success, shrinks with idleness, shared fairly."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompbroker.transport import ChunkSizes
from stompbroker.transport.chunk_sizes import FAIR_MIN_BYTES, MAX_BYTES, MIN_BYTES


def grow(sizes: ChunkSizes, size: int = MIN_BYTES) -> int:
    """Where a connection ends that always fills what it asked for."""
    while (larger := sizes.next(size, size)) > size:
        size = larger
    return larger


@pytest.mark.parametrize(
    ("size", "received", "expected"),
    [
        pytest.param(4096, 4096, 16384, id="full: four times as much"),
        pytest.param(16384, 16383, 16384, id="nearly full: the same"),
        pytest.param(16384, 4096, 16384, id="a quarter: the same"),
        pytest.param(16384, 4095, 8192, id="less than a quarter: half"),
        pytest.param(8192, 1, 4096, id="a byte: half"),
        pytest.param(4096, 1, 4096, id="never below the least"),
        pytest.param(262144, 262144, 262144, id="never above the most"),
    ],
)
def test_the_next_size_follows_from_what_came(size: int, received: int, expected: int) -> None:
    sizes = ChunkSizes()
    if size > MIN_BYTES:
        sizes.next(MIN_BYTES, MIN_BYTES)  # it became busy at some time

    assert sizes.next(size, received) == expected


def test_a_busy_connection_alone_reads_the_most() -> None:
    assert grow(ChunkSizes()) == MAX_BYTES


def test_connections_that_are_busy_together_share_the_most() -> None:
    sizes = ChunkSizes()
    for _ in range(4):
        grow(sizes)

    assert sizes.next(MAX_BYTES, MAX_BYTES) == MAX_BYTES // 4


def test_however_many_are_busy_each_may_read_a_fair_least() -> None:
    sizes = ChunkSizes()
    for _ in range(1000):
        grow(sizes)

    assert sizes.next(MAX_BYTES, MAX_BYTES) == FAIR_MIN_BYTES


def test_those_that_have_left_no_longer_count() -> None:
    sizes = ChunkSizes()
    others = [grow(sizes) for _ in range(9)]

    for size in others:
        sizes.leave(size)

    assert grow(sizes) == MAX_BYTES


def test_an_idle_connection_neither_counts_nor_leaves_a_trace() -> None:
    sizes = ChunkSizes()
    for _ in range(9):
        sizes.leave(sizes.next(MIN_BYTES, 1))

    assert grow(sizes) == MAX_BYTES


@given(st.lists(st.tuples(st.integers(0, 7), st.sampled_from(["full", "some", "little", "leave"])), max_size=200))
def test_the_bound_is_always_that_of_the_connections_that_are_busy(steps: list[tuple[int, str]]) -> None:
    """Invariant: a connection is busy exactly while its size is above the least. Seen from outside by the bound."""
    sizes = ChunkSizes()
    current = dict.fromkeys(range(8), MIN_BYTES)
    for connection, step in steps:
        size = current[connection]
        if step == "leave":
            sizes.leave(size)
            current[connection] = MIN_BYTES
            continue
        busy = sum(each > MIN_BYTES for each in current.values())
        received = {"full": size, "some": size // 2, "little": 1}[step]
        wanted = {"full": size * 4, "some": size, "little": size // 2}[step]

        current[connection] = sizes.next(size, received)

        bound = max(FAIR_MIN_BYTES, MAX_BYTES // max(1, busy))
        assert current[connection] == max(MIN_BYTES, min(wanted, bound))
