"""Deliveries, outcomes, attempts and durations, on every level, from single records."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from stompbroker_report.figures import durations, figures, figures_of, sums
from stompbroker_report.levels import KEYS, Level
from stompbroker_report.records import measured, to_compare
from stompbroker_report.schemas import MARTS
from tests.analytics.made_records import DATE, NOON, Row, delivery, lake_frame, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


#: Of deliveries that were never sent.
_NEVER_SENT: Row = {"first_sent_at": None, "last_sent_at": None, "attempts": 0}
_SENT = NOON + timedelta(seconds=2)
#: Time to ack in µs, and what percentiles make of it, in seconds.
_CUT = {
    9_999: 0.009999,
    12_345: 0.01234,
    999_999: 0.9999,
    1_000_000: 1.0,
    1_234_567: 1.234,
    999_999_999: 999.9,
    1_000_000_000: 1000.0,
    1_234_567_890: 1234.0,
    987_654_321_098: 987600.0,
    98_765_432_109_876: 98765400.0,
}


def _acked_after(waited: timedelta, **otherwise: object) -> Row:
    return delivery(settled_at=NOON + timedelta(milliseconds=2) + waited, **otherwise)


#: What a test is about, each on a date of its own: one query is enough for all of them.
_CASES: dict[str, list[Row]] = {
    "levels": [
        delivery(topic="a", subscription="x"),
        delivery(topic="a", subscription="y"),
        delivery(topic="b", subscription="x", settled_at=NOON + timedelta(hours=3), weight=4, member="one"),
    ],
    "sums": [
        delivery(),
        delivery(outcome="sent", ack_mode="auto", weight=10, body_bytes=7),
        delivery(attempts=3, nacks=2, last_reason="no"),
        delivery(attempts=12, nacks=11, outcome="dead"),
        delivery(message_id=None, outcome="skipped", weight=50, published_at=None, body_bytes=None, **_NEVER_SENT),
        delivery(outcome="teleported"),
    ],
    "durations": [
        # Sent twice: the first counts from its publication, the last to its ack.
        delivery(
            first_sent_at=_SENT, last_sent_at=_SENT + timedelta(seconds=1), settled_at=_SENT + timedelta(seconds=4)
        ),
        delivery(outcome="dead", settled_at=NOON + timedelta(hours=1)),
        delivery(outcome="expired", **_NEVER_SENT),
        delivery(published_at=None, outcome="sent"),
    ],
    "clock set back": [delivery(published_at=NOON + timedelta(seconds=5))],
    # 1 to 100 ms once each, and 1 s that stands for a hundred.
    "percentiles": [
        *(_acked_after(timedelta(milliseconds=wait)) for wait in range(1, 101)),
        _acked_after(timedelta(seconds=1), weight=100),
    ],
    "durable and transient": [
        delivery(subscription="x", is_durable=True),
        delivery(subscription="y", is_durable=False),
    ],
    **{f"{wait_us} µs": [_acked_after(timedelta(microseconds=wait_us))] for wait_us in _CUT},
}
_DATES = {name: DATE + timedelta(days=number) for number, name in enumerate(_CASES)}

Found = dict[str, dict[Level, list[Row]]]


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> Found:
    """By case and level."""
    made = [row | {"dt": _DATES[name]} for name, case in _CASES.items() for row in case]
    records = measured(lake_frame(spark, "deliveries", made))
    all_figures = rows(figures(sums(records), durations(records)))
    return {
        name: {level: [row for row in all_figures if (row["dt"], row["level"]) == (day, level)] for level in Level}
        for name, day in _DATES.items()
    }


def _day(found: Found, name: str) -> Row:
    [row] = found[name][Level.DAY]
    return row


def test_keys_of_levels() -> None:
    assert {level: level.keys for level in Level} == {
        Level.DAY: ("dt",),
        Level.TOPIC: ("dt", "topic"),
        Level.SUBSCRIPTION: ("dt", "subscription"),
        Level.READING: ("dt", "topic", "subscription"),
        Level.HOUR: ("dt", "hour_utc"),
        Level.TOPIC_HOUR: ("dt", "topic", "hour_utc"),
        Level.MEMBER: ("dt", "subscription", "member"),
    }


def test_every_level_has_a_row_for_what_it_stands_for(found: Found) -> None:
    by_level = {
        level: {
            tuple(row[key] for key in KEYS if key in level.keys and key != "dt"): row["deliveries"] for row in of_level
        }
        for level, of_level in found["levels"].items()
    }

    assert by_level == {
        Level.DAY: {(): 6},
        Level.TOPIC: {("a",): 2, ("b",): 4},
        Level.SUBSCRIPTION: {("x",): 5, ("y",): 1},
        Level.READING: {("a", "x"): 1, ("a", "y"): 1, ("b", "x"): 4},
        Level.HOUR: {(12,): 2, (15,): 4},
        Level.TOPIC_HOUR: {("a", 12): 2, ("b", 15): 4},
        Level.MEMBER: {("x", "one"): 4, ("x", None): 1, ("y", None): 1},
    }


def test_sums_are_weighted(found: Found) -> None:
    day = _day(found, "sums")

    assert {
        name: value for name, value in day.items() if value and not name.startswith(("time_to_", "dt", "level"))
    } == {
        "is_durable": True,
        "readings": 1,
        "deliveries": 64,
        "records": 6,
        "weighted_records": 2,
        "weighted_deliveries": 60,
        "outcome_acked": 2,
        "outcome_sent": 10,
        "outcome_dead": 1,
        "outcome_skipped": 50,
        "outcome_unknown": 1,
        "sent_deliveries": 14,
        "redelivered": 2,
        "redelivery_rate": 2 / 14,
        "nacks": 13,
        "attempts": 1 + 10 + 3 + 12 + 1,
        "attempts_0": 50,
        "attempts_1": 12,
        "attempts_3": 1,
        "attempts_10_and_more": 1,
        "body_bytes": 470,
    }


def test_durations_are_of_what_they_apply_to(found: Found) -> None:
    day = _day(found, "durations")

    assert (day["time_to_first_delivery_deliveries"], day["time_to_first_delivery_max_s"]) == (2, 2.0)
    assert [day[f"time_to_ack_{part}"] for part in ("deliveries", "p50_s", "p99_s", "max_s")] == [1, 3.0, 3.0, 3.0]


def test_clock_that_was_set_back_makes_no_negative_duration(found: Found) -> None:
    assert _day(found, "clock set back")["time_to_first_delivery_max_s"] == 0.0


def test_percentiles_are_exact_and_weighted(found: Found) -> None:
    day = _day(found, "percentiles")

    # Between the hundredth, 100 ms, and the next, 1 s: half way.
    assert [day[f"time_to_ack_{part}_s"] for part in ("p50", "p95", "p99", "max")] == [0.55, 1.0, 1.0, 1.0]


@pytest.mark.parametrize("wait_us", _CUT)
def test_durations_are_cut_to_four_digits_for_percentiles_and_not_for_the_maximum(wait_us: int, found: Found) -> None:
    day = _day(found, f"{wait_us} µs")

    assert day["time_to_ack_p99_s"] == _CUT[wait_us]
    assert day["time_to_ack_max_s"] == wait_us / 1_000_000


def test_durable_subscription_is_told_from_a_transient_one(found: Found) -> None:
    subscriptions = found["durable and transient"][Level.SUBSCRIPTION]

    assert {row["subscription"]: row["is_durable"] for row in subscriptions} == {"x": True, "y": False}


def test_mart_of_a_level_has_its_rows_and_the_columns_of_its_contract(spark: SparkSession) -> None:
    records = measured(lake_frame(spark, "deliveries", _CASES["levels"]))

    topics = figures_of(Level.TOPIC, figures(sums(records), durations(records)))

    assert topics.columns == MARTS["topics"].names
    assert {row["topic"]: row["subscriptions"] for row in rows(topics, "topic", "subscriptions")} == {"a": 2, "b": 1}


def test_days_that_are_only_compared_with_have_the_duration_that_is_compared(spark: SparkSession) -> None:
    records = to_compare(measured(lake_frame(spark, "deliveries", [delivery()])), F.lit(False))

    [row] = rows(durations(records, [Level.DAY]))

    assert row["time_to_ack_percentiles_us"] == [10_000.0, 10_000.0, 10_000.0]
    assert row["time_to_first_delivery_percentiles_us"] is None
