"""Settled ranges come back from their blob as they were."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stompbroker.storage.row_format import pack_ranges, unpack_ranges

bounds = st.integers(min_value=0, max_value=2**63 - 1)


@given(st.lists(st.tuples(bounds, bounds)).map(tuple))
def test_packed_ranges_are_unpacked_as_they_were(ranges: tuple[tuple[int, int], ...]) -> None:
    assert unpack_ranges(pack_ranges(ranges)) == ranges


def test_nothing_settled_takes_no_space() -> None:
    assert pack_ranges(()) == b""


def test_the_format_is_fixed_since_files_outlive_releases() -> None:
    assert pack_ranges(((1, 2), (258, 2**63 - 1))).hex() == (
        "0100000000000000" "0200000000000000" "0201000000000000" "ffffffffffffff7f"
    )  # fmt: skip
