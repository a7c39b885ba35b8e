"""How members of groups shared, from single records; and lakes in which only some files name members."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from stompbroker_report.figures import durations, figures, figures_of, sums
from stompbroker_report.levels import Level
from stompbroker_report.members import members
from stompbroker_report.records import measured
from tests.analytics.made_records import Row, delivery, lake_frame, rows
from tests.analytics.sample_run import GROUP

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.analytics.sample_run import SampleRun


@pytest.fixture(scope="module")
def all_figures(spark: SparkSession) -> DataFrame:
    made = [
        *(delivery(subscription=GROUP, member="one", topic=topic) for topic in ("orders.eu", "orders.us", "orders.us")),
        delivery(subscription=GROUP, member="two", outcome="dead", attempts=3, nacks=3, weight=2),
        delivery(subscription=GROUP, member="two", outcome="discarded", attempts=2, nacks=1),
        delivery(subscription=GROUP, member="three", attempts=2, weight=2),
        delivery(subscription=GROUP, outcome="expired", attempts=0, weight=7),
        delivery(subscription="billing/orders", weight=9),
        delivery(subscription="/queue/jobs", member="one", weight=5),
    ]
    records = measured(lake_frame(spark, "deliveries", made))
    return figures(sums(records), durations(records))


@pytest.fixture(scope="module")
def found(all_figures: DataFrame) -> list[Row]:
    return sorted(rows(members(all_figures)), key=lambda row: (row["subscription"], row["place"]))


def test_each_member_has_its_share_and_its_failures(found: list[Row]) -> None:
    told = ("member", "place", "deliveries", "share_rate", "failed", "redelivered")

    assert [[row[name] for name in told] for row in found if row["subscription"] == GROUP] == [
        ["one", 1, 3, 3 / 8, 0, 0],
        ["two", 2, 3, 3 / 8, 3, 3],
        ["three", 3, 2, 2 / 8, 0, 2],
    ]


def test_each_row_says_what_the_group_did(found: list[Row]) -> None:
    told = ("group_members", "group_deliveries", "group_failed", "group_least_share_rate", "group_without_member")

    assert {(row["subscription"], *(row[name] for name in told)) for row in found} == {
        (GROUP, 3, 8, 3, 2 / 8, 7),
        ("/queue/jobs", 1, 5, 0, 1.0, 0),
    }


def test_a_subscription_counts_once_however_many_members_it_has(all_figures: DataFrame) -> None:
    topics = rows(figures_of(Level.TOPIC, all_figures), "topic", "subscriptions")

    assert {row["topic"]: row["subscriptions"] for row in topics} == {"orders": 3, "orders.eu": 1, "orders.us": 1}


def test_a_lake_of_which_some_files_have_no_members_is_reported(sample_run: SampleRun) -> None:
    (group,) = sample_run.contents[1].groups.rows

    assert (group.subscription, group.members, group.deliveries, group.without_member) == (GROUP, 2, 2, 2)
    assert [(one.member, one.share_rate) for one in group.busiest] == [("a", 0.5), ("b", 0.5)]
