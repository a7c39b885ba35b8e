"""Deliveries, outcomes, attempts and durations, on every level, from single records."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from stompbroker_report.figures import durations, figures, figures_of, sums
from stompbroker_report.levels import KEYS, Level
from stompbroker_report.records import measured, to_compare
from tests.analytics.made_records import DATE, NOON, Row, delivery, lake_frame, rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession


def _figures(spark: SparkSession, made: Sequence[Row]) -> DataFrame:
    records = measured(lake_frame(spark, "deliveries", made))
    return figures(sums(records), durations(records))


def _of_day(spark: SparkSession, made: Sequence[Row]) -> Row:
    [row] = rows(figures_of(Level.DAY, _figures(spark, made)))
    return row


def test_keys_of_levels() -> None:
    assert {level: level.keys for level in Level} == {
        Level.DAY: ("dt",),
        Level.TOPIC: ("dt", "topic"),
        Level.SUBSCRIPTION: ("dt", "subscription"),
        Level.READING: ("dt", "topic", "subscription"),
        Level.HOUR: ("dt", "hour_utc"),
        Level.TOPIC_HOUR: ("dt", "topic", "hour_utc"),
    }


def test_every_level_has_a_row_for_what_it_stands_for(spark: SparkSession) -> None:
    made = [
        delivery(topic="a", subscription="x"),
        delivery(topic="a", subscription="y"),
        delivery(topic="b", subscription="x", settled_at=NOON + timedelta(hours=3), weight=4),
    ]

    found = rows(_figures(spark, made), "level", *KEYS, "deliveries")

    by_level = {
        level: {
            tuple(row[key] for key in KEYS if key in level.keys and key != "dt"): row["deliveries"]
            for row in found
            if row["level"] == level
        }
        for level in Level
    }
    assert by_level == {
        Level.DAY: {(): 6},
        Level.TOPIC: {("a",): 2, ("b",): 4},
        Level.SUBSCRIPTION: {("x",): 5, ("y",): 1},
        Level.READING: {("a", "x"): 1, ("a", "y"): 1, ("b", "x"): 4},
        Level.HOUR: {(12,): 2, (15,): 4},
        Level.TOPIC_HOUR: {("a", 12): 2, ("b", 15): 4},
    }
    assert {row["dt"] for row in found} == {DATE}


def test_sums_are_weighted(spark: SparkSession) -> None:
    never_sent = {"first_sent_at": None, "last_sent_at": None, "attempts": 0}
    made = [
        delivery(),
        delivery(outcome="sent", ack_mode="auto", weight=10, body_bytes=7),
        delivery(attempts=3, nacks=2, last_reason="no"),
        delivery(attempts=12, nacks=11, outcome="dead"),
        delivery(message_id=None, outcome="skipped", weight=50, published_at=None, body_bytes=None, **never_sent),
        delivery(outcome="teleported"),
    ]

    day = _of_day(spark, made)

    assert {name: value for name, value in day.items() if value and not name.startswith("time_to_")} == {
        "dt": DATE,
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


def test_durations_are_of_what_they_apply_to(spark: SparkSession) -> None:
    sent = NOON + timedelta(seconds=2)
    made = [
        # Sent twice: the first counts from its publication, the last to its ack.
        delivery(first_sent_at=sent, last_sent_at=sent + timedelta(seconds=1), settled_at=sent + timedelta(seconds=4)),
        delivery(outcome="dead", settled_at=NOON + timedelta(hours=1)),
        delivery(outcome="expired", attempts=0, first_sent_at=None, last_sent_at=None),
        delivery(published_at=None, outcome="sent"),
    ]

    day = _of_day(spark, made)

    assert (day["time_to_first_delivery_deliveries"], day["time_to_first_delivery_max_s"]) == (2, 2.0)
    assert [day[f"time_to_ack_{part}"] for part in ("deliveries", "p50_s", "p99_s", "max_s")] == [1, 3.0, 3.0, 3.0]


def test_clock_that_was_set_back_makes_no_negative_duration(spark: SparkSession) -> None:
    made = [delivery(published_at=NOON + timedelta(seconds=5))]

    assert _of_day(spark, made)["time_to_first_delivery_max_s"] == 0.0


def test_percentiles_are_exact_and_weighted(spark: SparkSession) -> None:
    # 1 to 100 ms once each, and 1 s that stands for a hundred.
    made = [delivery(settled_at=NOON + timedelta(milliseconds=2 + wait)) for wait in range(1, 101)]
    made.append(delivery(settled_at=NOON + timedelta(milliseconds=1002), weight=100))

    day = _of_day(spark, made)

    # Between the hundredth, 100 ms, and the next, 1 s: half way.
    assert [day[f"time_to_ack_{part}_s"] for part in ("p50", "p95", "p99", "max")] == [0.55, 1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("measured_us", "kept_s"),
    [
        (999_999, 0.999999),
        (1_000_000, 1.0),
        (1_234_567, 1.234),
        (999_999_999, 999.999),
        (1_000_000_000, 1000.0),
        (1_234_567_890, 1234.0),
    ],
)
def test_long_durations_are_cut_for_percentiles_and_not_for_the_maximum(
    measured_us: int, kept_s: float, spark: SparkSession
) -> None:
    settled_at = NOON + timedelta(milliseconds=2, microseconds=measured_us)

    day = _of_day(spark, [delivery(settled_at=settled_at)])

    assert day["time_to_ack_p99_s"] == kept_s
    assert day["time_to_ack_max_s"] == measured_us / 1_000_000


def test_days_that_are_only_compared_with_have_the_duration_that_is_compared(spark: SparkSession) -> None:
    records = to_compare(measured(lake_frame(spark, "deliveries", [delivery()])))

    [row] = rows(durations(records, [Level.DAY]))

    assert row["time_to_ack_percentiles_us"] == [10_000.0, 10_000.0, 10_000.0]
    assert row["time_to_first_delivery_percentiles_us"] is None


def test_durable_subscription_is_told_from_a_transient_one(spark: SparkSession) -> None:
    made = [delivery(subscription="x", is_durable=True), delivery(subscription="y", is_durable=False)]

    found = rows(figures_of(Level.SUBSCRIPTION, _figures(spark, made)), "subscription", "is_durable")

    assert sorted(found, key=str) == [
        {"subscription": "x", "is_durable": True},
        {"subscription": "y", "is_durable": False},
    ]
