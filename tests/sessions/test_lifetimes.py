"""How long a message lives, in every dialect."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompbroker.errors import PeerViolation
from stompbroker.sessions.publishing import Lifetime, read_lifetime

MS = 1_000_000
NOW_NS = 1_800_000_000_000 * MS
NOW_MS = NOW_NS // MS
FOR_EVER = Lifetime(None, None)


def lifetime(default_ms: int = 0, /, **headers: object) -> Lifetime:
    return read_lifetime({name: str(value) for name, value in headers.items()}, NOW_NS, default_ms)


@pytest.mark.parametrize("header", ["ttl", "expiration"])
def test_a_relative_end_counts_from_now(header: str) -> None:
    assert lifetime(**{header: 1500}) == Lifetime(1500 * MS, None)


def test_an_absolute_end_is_kept_as_it_is() -> None:
    assert lifetime(expires=NOW_MS + 1) == Lifetime(None, (NOW_MS + 1) * MS)


def test_an_end_that_has_passed_is_told_all_the_same() -> None:
    assert lifetime(expires=1) == Lifetime(None, MS)


def test_without_a_header_the_default_holds() -> None:
    assert lifetime(700) == Lifetime(700 * MS, None)
    assert lifetime(0) == FOR_EVER


@pytest.mark.parametrize("header", ["expires", "ttl", "expiration"])
def test_an_explicit_zero_means_never_in_spite_of_the_default(header: str) -> None:
    assert lifetime(700, **{header: 0}) == FOR_EVER


@pytest.mark.parametrize("header", ["ttl", "expiration", "expires"])
def test_a_header_may_ask_for_longer_than_the_default(header: str) -> None:
    value = NOW_MS + 9000 if header == "expires" else 9000

    assert lifetime(700, **{header: value}) != lifetime(700)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"ttl": 10, "expiration": 20}, Lifetime(10 * MS, None)),
        ({"ttl": 20, "expiration": 10}, Lifetime(10 * MS, None)),
        (
            {"ttl": 10, "expires": NOW_MS + 11},
            Lifetime(10 * MS, (NOW_MS + 11) * MS),
        ),  # which is earlier depends on the message
        ({"ttl": 10, "expires": 0}, Lifetime(10 * MS, None)),  # never is later than any end
        ({"ttl": 0, "expires": NOW_MS + 9}, Lifetime(None, (NOW_MS + 9) * MS)),
        ({"ttl": 0, "expiration": 0, "expires": 0}, FOR_EVER),
    ],
)
def test_of_several_ends_the_earliest_of_each_kind_is_told(headers: dict[str, int], expected: Lifetime) -> None:
    assert lifetime(5, **headers) == expected


@pytest.mark.parametrize("header", ["expires", "ttl", "expiration"])
def test_an_end_that_64_bits_cannot_hold_is_never(header: str) -> None:
    """The year 9999, and all that 16 digits can say."""
    assert lifetime(5, **{header: 253_402_300_799_000}) == FOR_EVER
    assert lifetime(5, **{header: "9" * 16}) == FOR_EVER


@pytest.mark.parametrize("header", ["expires", "ttl", "expiration"])
@pytest.mark.parametrize(
    "value", ["", "-1", "-0", "1.5", "1e3", " 1", "+1", "soon", "1" * 17, "9" * 25, "\u0661", "1_0"]
)
def test_a_wrong_value_is_named_with_what_is_allowed(header: str, value: str) -> None:
    with pytest.raises(PeerViolation) as raised:
        lifetime(**{header: value})

    assert repr(header) in raised.value.summary
    assert repr(value) in raised.value.detail
    assert "a whole number of milliseconds" in raised.value.detail
    assert "(0 means never) from 0 to 9999999999999999" in raised.value.detail


def test_a_wrong_value_is_refused_also_beside_a_right_one() -> None:
    with pytest.raises(PeerViolation, match="expiration"):
        lifetime(ttl=5, expiration="soon")


def test_what_is_allowed_is_told_also_of_a_very_long_value() -> None:
    with pytest.raises(PeerViolation) as raised:
        lifetime(ttl="x" * 5000)

    assert raised.value.detail.endswith("from 0 to 9999999999999999")


@given(
    st.dictionaries(st.sampled_from(["expires", "ttl", "expiration"]), st.integers(0, 10**16 - 1)),
    st.integers(0, 2**62),
    st.integers(0, 10**12),
)
def test_the_earlier_of_both_ends_is_the_earliest_asked_for_that_64_bits_can_hold(
    headers: dict[str, int], now_ns: int, default_ms: int
) -> None:
    found = read_lifetime({name: str(value) for name, value in headers.items()}, now_ns, default_ms)

    if headers:
        ends = [None if found.lifetime_ns is None else now_ns + found.lifetime_ns, found.expires_at_ns]
        end_ns = min((end for end in ends if end is not None), default=None)
        wanted = [MS * value + (0 if name == "expires" else now_ns) for name, value in headers.items() if value]
        assert end_ns == min((end for end in wanted if end < 2**63 - 1), default=None)


@given(st.text(), st.sampled_from(["expires", "ttl", "expiration"]))
def test_any_text_is_taken_or_refused(value: str, header: str) -> None:
    with contextlib.suppress(PeerViolation):
        read_lifetime({header: value}, NOW_NS, 0)
