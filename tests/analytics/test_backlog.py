"""What was unsettled, hour by hour and at the end."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from stompbroker_report.backlog import CLOSING_HOUR, backlog, backlog_hours, reading_backlog, unsettled
from tests.analytics.made_records import DATE, NOON, lake_frame, rows, snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MIDNIGHT = NOON + timedelta(hours=12)


def test_last_snapshot_of_an_hour_counts_and_the_closing_one_is_hour_24(spark: SparkSession) -> None:
    made = [
        snapshot(taken_at=NOON, lag_messages=5),
        snapshot(taken_at=NOON + timedelta(minutes=59), lag_messages=7),
        snapshot(taken_at=_MIDNIGHT, is_closing=True, lag_messages=9),
    ]

    found = rows(reading_backlog(lake_frame(spark, "backlog", made)), "dt", "hour_utc", "lag_messages")

    assert sorted(found, key=lambda row: int(row["hour_utc"])) == [
        {"dt": DATE, "hour_utc": 12, "lag_messages": 7},
        {"dt": DATE, "hour_utc": CLOSING_HOUR, "lag_messages": 9},
    ]


def test_end_of_a_day_is_its_closing_snapshot(spark: SparkSession) -> None:
    made = [
        snapshot(topic="a", lag_messages=5),
        snapshot(topic="deleted in the afternoon", lag_messages=5),
        snapshot(topic="a", taken_at=_MIDNIGHT, is_closing=True, lag_messages=9),
    ]

    at_end = unsettled(reading_backlog(lake_frame(spark, "backlog", made)))

    assert rows(at_end, "topic", "lag_messages", "is_closing", "taken_at") == [
        {"topic": "a", "lag_messages": 9, "is_closing": True, "taken_at": _MIDNIGHT}
    ]


def test_end_of_a_day_without_a_closing_snapshot_is_its_last_hour(spark: SparkSession) -> None:
    made = [snapshot(lag_messages=5), snapshot(taken_at=NOON + timedelta(hours=2), lag_messages=3)]

    at_end = unsettled(reading_backlog(lake_frame(spark, "backlog", made)))

    assert rows(at_end, "lag_messages", "is_closing") == [{"lag_messages": 3, "is_closing": False}]


def test_topics_of_a_subscription_are_added_and_its_peak_is_known(spark: SparkSession) -> None:
    later = NOON + timedelta(hours=1)
    made = [
        snapshot(topic="a", lag_messages=5, lag_s=60.0, in_flight=1, waiting=2, pinned_bytes=100),
        snapshot(topic="b", lag_messages=3, lag_s=90.0, in_flight=1, waiting=0, pinned_bytes=None),
        snapshot(topic="a", taken_at=later, lag_messages=1, lag_s=None, pinned_bytes=None),
        snapshot(topic="a", subscription="mail/out", lag_messages=2, lag_s=1.0, pinned_bytes=50),
    ]
    by_reading = reading_backlog(lake_frame(spark, "backlog", made))
    day = {"dt": DATE, "hour_utc": 12}

    own = rows(backlog(by_reading).where("subscription = 'billing/orders'").drop("subscription"))

    assert sorted(own, key=lambda row: int(row["hour_utc"])) == [
        {
            "peak_lag_messages": 8,
            "lag_messages": 8,
            "lag_s": 90.0,
            "in_flight": 2,
            "waiting": 2,
            "pinned_bytes": 100,
            **day,
        },
        {
            "peak_lag_messages": 8,
            "lag_messages": 1,
            "lag_s": None,
            "in_flight": 0,
            "waiting": 0,
            "pinned_bytes": None,
            **day,
            "hour_utc": 13,
        },
    ]
    assert rows(backlog_hours(by_reading).where("hour_utc = 12")) == [
        {
            "taken_at": NOON,
            "is_closing": False,
            "lag_messages": 10,
            "lag_s": 90.0,
            "in_flight": 2,
            "waiting": 2,
            "pinned_bytes": 150,
            **day,
        }
    ]


def test_age_that_is_no_number_is_none(spark: SparkSession) -> None:
    made = [snapshot(subscription=str(lag_s), lag_s=lag_s) for lag_s in (float("nan"), float("inf"), 5.0)]

    found = rows(reading_backlog(lake_frame(spark, "backlog", made)), "subscription", "lag_s")

    assert {row["subscription"]: row["lag_s"] for row in found} == {"nan": None, "inf": None, "5.0": 5.0}
