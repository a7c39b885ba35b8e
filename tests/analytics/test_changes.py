"""What stands out against the seven days before, by the rule in the module's header."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from stompbroker_report.changes import Calendar, changes, measures
from stompbroker_report.figures import durations, figures, sums
from stompbroker_report.measures import Measure, Scope, earlier_dates
from stompbroker_report.records import measured
from tests.analytics.made_records import DATE, Row, delivery, lake_frame, mart_frame, rows, snapshot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

_WEEK = earlier_dates(DATE)
_COLUMNS = "dt date, scope string, name string, measure string, value double"


def _calendar(**otherwise: Any) -> Calendar:
    everything = [*_WEEK, DATE]
    given = {"reported": [DATE], "in_lake": everything, "with_backlog": everything, "complete": everything}
    return Calendar(**{**given, **otherwise})


def _rows(
    name: str, measure: Measure, values: Sequence[float | None], scope: Scope = Scope.TOPIC
) -> list[tuple[date, str, str, str, float]]:
    """The last value is of the date itself; None is a day without one."""
    days = [*_WEEK, DATE][-len(values) :]
    return [
        (day, scope.value, name, measure.value, float(value))
        for day, value in zip(days, values, strict=True)
        if value is not None
    ]


def _changes(
    spark: SparkSession,
    values: Sequence[float | None],
    measure: Measure = Measure.DELIVERIES,
    *,
    calendar: Calendar | None = None,
) -> list[Row]:
    made = _rows("orders", measure, values)
    return rows(changes(spark.createDataFrame(made, _COLUMNS), calendar or _calendar()))


def test_seven_days_before_are_the_earlier_ones() -> None:
    assert earlier_dates(date(2026, 3, 3)) == [date(2026, 2, 24) + timedelta(days=day) for day in range(7)]


@dataclass(frozen=True, kw_only=True)
class _Case:
    measure: Measure
    values: Sequence[float | None]
    direction: str | None
    scope: Scope = Scope.TOPIC


_RULE = {
    "far above": _Case(
        measure=Measure.DELIVERIES, values=[1000, 1010, 990, 1000, 1005, 995, 1000, 1500], direction="higher"
    ),
    "seen once": _Case(
        measure=Measure.DELIVERIES, values=[None, None, 5, None, None, None, None, 500], direction="higher"
    ),
    "lower": _Case(measure=Measure.DELIVERIES, values=[1000] * 7 + [700], direction="lower"),
    "gone": _Case(measure=Measure.DELIVERIES, values=[1000] * 7 + [None], direction="lower"),
    "less than a fifth": _Case(measure=Measure.DELIVERIES, values=[1000] * 7 + [1190], direction=None),
    "less than the least change": _Case(measure=Measure.DELIVERIES, values=[10] * 7 + [100], direction=None),
    "more than the least change": _Case(measure=Measure.DELIVERIES, values=[10] * 7 + [111], direction="higher"),
    "restless days": _Case(
        measure=Measure.DELIVERIES, values=[100, 900, 200, 800, 300, 700, 500, 1300], direction=None
    ),
    "weekend like the last": _Case(
        measure=Measure.DELIVERIES, values=[1000, 1000, 1000, 1000, 1000, 400, 410, 380], direction=None
    ),
    "no news within a week": _Case(
        measure=Measure.DELIVERIES, values=[1000] * 3 + [9000] + [1000] * 3 + [3000], direction=None
    ),
    "two points of a rate": _Case(measure=Measure.REDELIVERY_RATE, values=[0.01] * 7 + [0.03], direction="higher"),
    "less than a point of a rate": _Case(measure=Measure.REDELIVERY_RATE, values=[0.01] * 7 + [0.019], direction=None),
    "four earlier days": _Case(
        measure=Measure.REDELIVERY_RATE, values=[None, 0.1, None, 0.1, None, 0.1, 0.1, 0.5], direction="higher"
    ),
    "three earlier days": _Case(
        measure=Measure.REDELIVERY_RATE, values=[None, 0.1, None, 0.1, None, 0.1, None, 0.5], direction=None
    ),
    "dead letters where there were none": _Case(measure=Measure.DEAD, values=[0] * 7 + [6], direction="higher"),
    "slower by a tenth of a second": _Case(measure=Measure.P99_TO_ACK_S, values=[0.2] * 7 + [0.3], direction="higher"),
    "slower by what nobody notices": _Case(measure=Measure.P99_TO_ACK_S, values=[0.02] * 7 + [0.06], direction=None),
    "messages left over": _Case(measure=Measure.CLOSING_LAG, values=[0] * 7 + [101], direction="higher"),
    "new": _Case(measure=Measure.DELIVERIES, values=[100], direction="new"),
    "new and small": _Case(measure=Measure.DELIVERIES, values=[99], direction=None),
    "new is said once, of deliveries": _Case(measure=Measure.DEAD, values=[500], direction=None),
    "a day is not new": _Case(measure=Measure.DELIVERIES, values=[500], direction=None, scope=Scope.DAY),
}


@pytest.fixture(scope="module")
def judged(spark: SparkSession) -> dict[str, Row]:
    """Every case in which something stands out; all in one query."""
    made = [row for name, case in _RULE.items() for row in _rows(name, case.measure, case.values, case.scope)]
    found = rows(changes(spark.createDataFrame(made, _COLUMNS), _calendar()))
    return {row["name"]: row for row in found}


@pytest.mark.parametrize("name", _RULE)
def test_rule(name: str, judged: dict[str, Row]) -> None:
    assert judged.get(name, {}).get("direction") == _RULE[name].direction


def test_what_stands_out_comes_with_what_it_is_compared_with(judged: dict[str, Row]) -> None:
    assert judged["far above"] == {
        "dt": DATE,
        "scope": "topic",
        "name": "far above",
        "measure": "deliveries",
        "direction": "higher",
        "value": 1500.0,
        "median": 1000.0,
        "lowest": 990.0,
        "highest": 1010.0,
        "previous": [1000.0, 1010.0, 990.0, 1000.0, 1005.0, 995.0, 1000.0],
        # A fifth of the median is more than the usual spread, which is 5 × 1.4826.
        "score": 500 / 200,
    }


def test_sum_is_nothing_on_days_without_one_once_it_was_seen(judged: dict[str, Row]) -> None:
    row = judged["seen once"]

    assert row["previous"] == [None, None, 5.0, 0.0, 0.0, 0.0, 0.0]
    assert row["median"] == 0.0


def test_day_that_the_lake_has_not_is_no_day_without_deliveries(spark: SparkSession) -> None:
    calendar = _calendar(in_lake=[*_WEEK[:3], *_WEEK[5:], DATE])

    [row] = _changes(spark, [1000, 1000, 1000, None, None, 1000, 1000, 1500], calendar=calendar)

    assert row["previous"] == [1000.0, 1000.0, 1000.0, None, None, 1000.0, 1000.0]


def test_day_without_snapshots_is_no_day_without_lag(spark: SparkSession) -> None:
    calendar = _calendar(with_backlog=[*_WEEK[:6], DATE])

    [row] = _changes(spark, [0, 0, 0, 0, 0, 0, None, 500], Measure.CLOSING_LAG, calendar=calendar)

    assert row["previous"] == [0.0] * 6 + [None]


def test_nothing_is_new_where_the_lake_is(spark: SparkSession) -> None:
    assert _changes(spark, [500], calendar=_calendar(in_lake=[*_WEEK[4:], DATE])) == []


def test_of_an_incomplete_date_no_sum_is_low(spark: SparkSession) -> None:
    made = [
        *_rows("low sum", Measure.DELIVERIES, [1000] * 7 + [100]),
        *_rows("high sum", Measure.DELIVERIES, [1000] * 7 + [1500]),
        *_rows("low rate", Measure.REDELIVERY_RATE, [0.5] * 7 + [0.1]),
    ]

    found = rows(changes(spark.createDataFrame(made, _COLUMNS), _calendar(complete=[])), "name")

    assert sorted(row["name"] for row in found) == ["high sum", "low rate"]


def test_date_gives_the_same_alone_and_among_others(spark: SparkSession) -> None:
    long_ago = [*earlier_dates(_WEEK[0]), *_WEEK, DATE]
    made = [(day, "topic", "orders", "deliveries", 1000.0 if day != DATE else 3000.0) for day in long_ago[2:]]
    frame = spark.createDataFrame(made, _COLUMNS)

    together = changes(frame, _calendar(reported=[*_WEEK, DATE], in_lake=long_ago))

    assert rows(together) == rows(changes(frame, _calendar(in_lake=long_ago)))


def test_measures_are_of_days_topics_and_durable_subscriptions(spark: SparkSession) -> None:
    transient = {"subscription": "watcher/7", "is_durable": False}
    records = measured(lake_frame(spark, "deliveries", [delivery(outcome="dead"), delivery(**transient)]))
    left = mart_frame(spark, "unsettled", [snapshot(lag_messages=4), snapshot(lag_messages=5, subscription="mail/out")])

    found = rows(measures(figures(sums(records), durations(records)), left), "scope", "name", "measure", "value")

    assert sorted(tuple(row.values()) for row in found if row["name"] is not None) == [
        ("subscription", "billing/orders", "closing_lag_messages", 4.0),
        ("subscription", "billing/orders", "dead", 1.0),
        ("subscription", "billing/orders", "deliveries", 1.0),
        ("subscription", "mail/out", "closing_lag_messages", 5.0),
        ("topic", "orders", "closing_lag_messages", 9.0),
        ("topic", "orders", "dead", 1.0),
        ("topic", "orders", "deliveries", 2.0),
    ]
    assert sorted((row["measure"], row["value"]) for row in found if row["name"] is None) == [
        ("closing_lag_messages", 9.0),
        ("dead", 1.0),
        ("deliveries", 2.0),
    ]


def test_rates_and_percentiles_need_a_hundred_deliveries(spark: SparkSession) -> None:
    made = [delivery(weight=99), delivery(weight=100, dt=_WEEK[0])]
    records = measured(lake_frame(spark, "deliveries", made))

    frame = measures(figures(sums(records), durations(records)), mart_frame(spark, "unsettled", []))

    found: dict[date, dict[str, float]] = {DATE: {}, _WEEK[0]: {}}
    for row in rows(frame.where("scope = 'day'")):
        found[row["dt"]][row["measure"]] = row["value"]
    assert found == {
        DATE: {"deliveries": 99.0, "dead": 0.0},
        _WEEK[0]: {"deliveries": 100.0, "dead": 0.0, "redelivery_rate": 0.0, "p99_to_ack_s": 0.01},
    }
