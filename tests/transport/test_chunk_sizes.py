"""Busy alone means large chunks; busy beside others means small ones."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stompbroker.transport import ChunkSize, Traffic

KIB = 1024


def read_full(chunk: ChunkSize) -> int:
    chunk.note(chunk.size_bytes)
    return chunk.size_bytes


def test_a_connection_that_fills_its_chunks_gets_larger_ones() -> None:
    chunk = ChunkSize(Traffic())

    assert [chunk.size_bytes, *(read_full(chunk) for _ in range(5))] == [
        4 * KIB,
        16 * KIB,
        64 * KIB,
        256 * KIB,
        256 * KIB,
        256 * KIB,
    ]


def test_a_connection_that_waits_does_not_wait_with_a_large_buffer() -> None:
    chunk = ChunkSize(Traffic())
    for _ in range(5):
        read_full(chunk)

    chunk.note(10)

    assert chunk.size_bytes == 4 * KIB


def test_half_a_chunk_changes_nothing() -> None:
    chunk = ChunkSize(Traffic())
    read_full(chunk)

    chunk.note(8 * KIB)

    assert chunk.size_bytes == 16 * KIB


def test_a_steady_neighbour_makes_a_flood_read_in_small_chunks() -> None:
    traffic = Traffic()
    flood, steady = ChunkSize(traffic), ChunkSize(traffic)
    for _ in range(5):
        read_full(flood)

    for _ in range(5):
        for _ in range(3):
            steady.note(300)
        read_full(flood)

    assert flood.size_bytes == 64 * KIB
    assert steady.size_bytes == 4 * KIB


def test_many_busy_connections_read_16_kib_each() -> None:
    traffic = Traffic()
    chunks = [ChunkSize(traffic) for _ in range(100)]
    for _ in range(5):
        for chunk in chunks:
            read_full(chunk)

    assert {chunk.size_bytes for chunk in chunks} == {16 * KIB}


def test_the_rest_of_a_large_body_is_read_in_large_chunks_and_not_a_byte_more() -> None:
    chunk = ChunkSize(Traffic())

    assert chunk.within_body(0) == 4 * KIB
    assert chunk.within_body(100 * KIB) == 100 * KIB
    assert chunk.within_body(16 * 1024 * KIB) == 1024 * KIB


def test_the_rest_of_a_body_that_fits_a_chunk_is_read_with_those_behind_it() -> None:
    chunk = ChunkSize(Traffic())
    assert chunk.within_body(100) == 16 * KIB
    for _ in range(5):
        read_full(chunk)

    assert chunk.within_body(0) == 256 * KIB
    assert chunk.within_body(100) == chunk.within_body(60 * KIB) == 1024 * KIB


def test_beside_others_a_body_is_read_in_smaller_chunks() -> None:
    traffic = Traffic()
    body, steady = ChunkSize(traffic), ChunkSize(traffic)
    for _ in range(3):
        steady.note(300)
    read_full(body)
    assert body.within_body(16 * 1024 * KIB) == 256 * KIB
    assert body.within_body(100) == 4 * body.size_bytes == 64 * KIB

    for _ in range(1000):
        steady.note(300)
    read_full(body)
    assert body.within_body(16 * 1024 * KIB) == body.size_bytes <= 16 * KIB


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 300 * KIB)), max_size=60))
def test_a_size_is_never_out_of_bounds(steps: list[tuple[int, int]]) -> None:
    traffic = Traffic()
    chunks = [ChunkSize(traffic) for _ in range(4)]
    for which, received in steps:
        chunks[which].note(min(received, chunks[which].size_bytes))
        assert 4 * KIB <= chunks[which].size_bytes <= 256 * KIB
        assert chunks[which].size_bytes <= chunks[which].within_body(received) <= 1024 * KIB
