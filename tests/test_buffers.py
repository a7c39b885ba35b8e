"""Several buffers stand for the bytes in them, whichever are joined and wherever the kernel stops."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from stompbroker.buffers import LARGE_BYTES, gathered, joined, rest_of

SMALL = st.binary(min_size=1, max_size=9)
LARGE = st.integers(LARGE_BYTES, LARGE_BYTES + 3).map(bytes)
BUFFERS = st.lists(st.one_of(SMALL, LARGE), min_size=1, max_size=6)


@given(BUFFERS)
def test_gathering_keeps_the_bytes_and_the_large_buffers_and_joins_small_neighbours(buffers: list[bytes]) -> None:
    found = gathered(buffers)

    assert b"".join(found) == b"".join(buffers)
    assert [id(one) for one in found if len(one) >= LARGE_BYTES] == [
        id(one) for one in buffers if len(one) >= LARGE_BYTES
    ]
    sizes = [len(one) >= LARGE_BYTES for one in found]
    assert all(one or other for one, other in pairwise(sizes))


@given(BUFFERS, st.data())
def test_the_rest_is_what_was_not_sent(buffers: list[bytes], data: st.DataObject) -> None:
    sent_bytes = data.draw(st.integers(0, sum(map(len, buffers))))

    assert b"".join(rest_of(buffers, sent_bytes)) == b"".join(buffers)[sent_bytes:]


def test_what_is_one_buffer_already_is_not_copied() -> None:
    whole = bytes(LARGE_BYTES)

    assert joined([whole]) is whole
    assert joined([memoryview(b"abc")[1:]]) == b"bc"
    assert joined([b"a", memoryview(b"bc")]) == b"abc"
