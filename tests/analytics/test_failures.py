"""Why deliveries failed, and which ended dead."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from stompbroker_report.failures import LATEST, dead_letters, latest_dead_letters, reading_reasons, reasons
from tests.analytics.made_records import DATE, NOON, delivery, lake_frame, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_reasons_are_counted_by_reading_and_over_all(spark: SparkSession) -> None:
    made = [
        delivery(last_reason="full", nacks=1),
        delivery(last_reason="full", nacks=4, outcome="dead"),
        delivery(last_reason="full", nacks=1, subscription="mail/out", weight=3),
        delivery(last_reason="gone", nacks=0),
        delivery(),
    ]

    by_reading = reading_reasons(lake_frame(spark, "deliveries", made))

    assert sorted(rows(by_reading, "subscription", "reason", "deliveries", "nacks", "dead"), key=str) == [
        {"subscription": "billing/orders", "reason": "full", "deliveries": 2, "nacks": 5, "dead": 1},
        {"subscription": "billing/orders", "reason": "gone", "deliveries": 1, "nacks": 0, "dead": 0},
        {"subscription": "mail/out", "reason": "full", "deliveries": 3, "nacks": 3, "dead": 0},
    ]
    most = {"dt": DATE, "topic": "orders"}
    assert sorted(rows(reasons(by_reading)), key=lambda row: str(row["reason"])) == [
        {"reason": "full", "deliveries": 5, "nacks": 8, "dead": 1, "readings": 2, "subscription": "mail/out", **most},
        {
            "reason": "gone",
            "deliveries": 1,
            "nacks": 0,
            "dead": 0,
            "readings": 1,
            "subscription": "billing/orders",
            **most,
        },
    ]


def test_dead_letters_are_grouped_with_their_first_and_last(spark: SparkSession) -> None:
    later = NOON + timedelta(hours=2)
    made = [
        delivery(outcome="dead", settled_at=NOON, last_reason="no"),
        delivery(outcome="dead", settled_at=later, last_reason="no"),
        delivery(outcome="dead", settled_at=NOON),
        delivery(),
    ]

    found = rows(dead_letters(lake_frame(spark, "deliveries", made)), "reason", "deliveries", "first_at", "last_at")

    assert sorted(found, key=lambda row: str(row["reason"])) == [
        {"reason": None, "deliveries": 1, "first_at": NOON, "last_at": NOON},
        {"reason": "no", "deliveries": 2, "first_at": NOON, "last_at": later},
    ]


def test_latest_dead_letters_are_few_and_the_last(spark: SparkSession) -> None:
    made = [
        delivery(outcome="dead", offset=number, settled_at=NOON + timedelta(seconds=number))
        for number in range(LATEST + 5)
    ]

    found = rows(latest_dead_letters(lake_frame(spark, "deliveries", made)), "offset")

    assert sorted(row["offset"] for row in found) == list(range(5, LATEST + 5))
