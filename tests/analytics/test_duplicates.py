"""A delivery that the ledger has twice is counted, not hidden."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from stompbroker_report.records import duplicates
from tests.analytics.made_records import DATE, delivery, lake_frame, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_same_key_twice_is_one_too_many(spark: SparkSession) -> None:
    made = [delivery(message_id="m-1"), delivery(message_id="m-1", outcome="dead"), delivery(message_id="m-2")]

    assert rows(duplicates(lake_frame(spark, "deliveries", made))) == [{"dt": DATE, "duplicate_records": 1}]


def test_other_subscription_generation_or_message_is_another_key(spark: SparkSession) -> None:
    made = [
        delivery(),
        delivery(subscription="mail/out"),
        delivery(generation=1),
        delivery(message_id="m-2"),
        delivery(message_id=None, offset=1),
        delivery(message_id=None, offset=2),
        delivery(message_id=None, offset=1, topic="other"),
    ]

    assert rows(duplicates(lake_frame(spark, "deliveries", made))) == []


def test_subscription_that_is_made_again_may_get_the_same_message(spark: SparkSession) -> None:
    made = [delivery(), delivery(settled_at=delivery()["settled_at"] + timedelta(hours=1))]

    assert rows(duplicates(lake_frame(spark, "deliveries", made))) == []


def test_stretch_is_known_by_topic_and_offset(spark: SparkSession) -> None:
    made = [delivery(message_id=None, offset=1) for _ in range(3)]

    assert rows(duplicates(lake_frame(spark, "deliveries", made))) == [{"dt": DATE, "duplicate_records": 2}]
