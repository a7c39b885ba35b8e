"""Where a subscription begins, in every dialect."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompbroker.errors import PeerViolation
from stompbroker.sessions.starting_points import Start, StartKind, read_start

S = 1_000_000_000
DAY = 86_400 * S
#: 2026-03-31T08:00:00Z
AT_NS = 1_774_944_000 * S
MOST = 2**63 - 1

EARLIEST = Start(StartKind.EARLIEST)
LATEST = Start(StartKind.LATEST)


def offset(number: int) -> Start:
    return Start(StartKind.OFFSET, number)


def at(at_ns: int) -> Start:
    return Start(StartKind.TIME, at_ns)


def age(age_ns: int) -> Start:
    return Start(StartKind.AGE, age_ns)


def test_who_does_not_say_where_to_begin_says_nothing() -> None:
    assert read_start({"destination": "/topic/a"}) is None


@pytest.mark.parametrize("header", ["from", "x-stream-offset"])
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("earliest", EARLIEST),
        ("first", EARLIEST),
        ("latest", LATEST),
        ("last", LATEST),
        ("next", LATEST),
        ("offset=0", offset(0)),
        ("offset=1200", offset(1200)),
        (f"offset={MOST}", offset(MOST)),
        ("timestamp=1774944000", at(AT_NS)),
        ("2026-03-31T08:00:00Z", at(AT_NS)),
        ("2026-03-31T08:00:00", at(AT_NS)),
        ("2026-03-31 08:00", at(AT_NS)),
        ("2026-03-31T10:00:00+02:00", at(AT_NS)),
        ("2026-03-31T10:00:00+0200", at(AT_NS)),
        ("2026-03-31T04:30:00-03:30", at(AT_NS)),
        ("2026-03-31T08:00:00.25Z", at(AT_NS + S // 4)),
        ("2026-03-31T08:00:00.123456789Z", at(AT_NS + 123_456_000)),
        ("2026-03-31", at(AT_NS - 8 * 3600 * S)),
        ("1969-12-31T23:59:59Z", at(0)),
        ("9999-12-31T23:59:59Z", at(MOST)),
        ("0001-01-01T00:00:00+14:00", at(0)),
        ("9999-12-31T23:59:59-14:00", at(MOST)),
        ("timestamp=9223372036854775807", at(MOST)),
        ("0s", age(0)),
        ("90s", age(90 * S)),
        ("15m", age(900 * S)),
        ("1h", age(3600 * S)),
        ("7d", age(7 * DAY)),
        ("7D", age(7 * DAY)),
        ("2M", age(60 * DAY)),
        ("1Y", age(365 * DAY)),
        ("999999999Y", age(MOST)),
    ],
)
def test_every_spelling(header: str, value: str, expected: Start) -> None:
    assert read_start({header: value}) == expected


@pytest.mark.parametrize("header", ["from", "x-stream-offset"])
@pytest.mark.parametrize(
    "value",
    [
        "",
        "beginning",
        "Earliest",
        "5",
        "20260331",
        "offset",
        "offset=",
        "offset=-1",
        "offset=x",
        f"offset={MOST + 1}",
        "offset=" + "1" * 5000,
        "timestamp=-1",
        "timestamp=2026-03-31",
        "2026-02-30",
        "2026-03-31T25:00:00Z",
        "2026-03-31T08:00:00+25:00",
        "2026-03-31T08:00:00 Z",
        "2026-W14-2",
        "2026-03-31T10+02",
        "08:00:00Z",
        "1w",
        "h",
        "-1h",
        "1.5h",
        "1h30m",
        "1 h",
        "\u0661h",
    ],
)
def test_a_wrong_value_is_named_with_an_example_of_everything_that_is_allowed(header: str, value: str) -> None:
    with pytest.raises(PeerViolation) as raised:
        read_start({header: value})

    assert repr(header) in raised.value.summary
    assert repr(value)[:50].rstrip("'") in raised.value.detail
    for allowed in ("earliest", "latest", "offset=1200", "2026-03-31T08:00:00Z", "+02:00", "UTC", "90s, 15m, 1h, 7d"):
        assert allowed in raised.value.detail


def test_every_example_in_the_refusal_is_taken() -> None:
    with pytest.raises(PeerViolation) as raised:
        read_start({"from": "?"})
    listed = raised.value.detail.replace("(", " ").replace(")", " ").replace(",", " ").replace(";", " ").split()

    examples = [word for word in listed if word[0].isdigit() or word.startswith("offset=")]

    assert len(examples) == 7 + 1  # and the 8601 of the standard itself
    for example in examples:
        if example != "8601":
            assert read_start({"from": example}) is not None


def test_both_headers_may_say_the_same() -> None:
    assert read_start({"from": "earliest", "x-stream-offset": "first"}) == EARLIEST


def test_both_headers_must_not_differ() -> None:
    with pytest.raises(PeerViolation, match=r"from:earliest and x-stream-offset:next .*give one of them"):
        read_start({"from": "earliest", "x-stream-offset": "next"})


@given(
    st.datetimes(min_value=datetime(1970, 1, 2), max_value=datetime(2262, 1, 1)),
    st.integers(-14 * 60, 14 * 60),
)
def test_a_time_is_the_same_instant_in_every_zone(moment: datetime, minutes: int) -> None:
    local = moment.replace(tzinfo=UTC).astimezone(timezone(timedelta(minutes=minutes)))
    since_1970 = moment.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    expected = at(since_1970 // timedelta(microseconds=1) * 1000)

    assert read_start({"from": local.isoformat()}) == expected
    assert read_start({"from": moment.isoformat()}) == expected


@given(st.one_of(st.text(), st.from_regex(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}[-+Z0-9:.]*", fullmatch=True)))
def test_any_text_is_taken_or_refused(value: str) -> None:
    try:
        start = read_start({"from": value})
    except PeerViolation:
        return
    assert start is not None
    assert 0 <= start.number <= MOST
