"""What differs from the seven days before: figures of days, topics and subscriptions in, unusual values out.

A value of a date stands out if all of these hold:

1. at least four of the seven days before have a value of the same measure and thing;
2. it is further from their median than three times their usual spread: 3 × 1.4826 × MAD, the median distance from the
   median (for normal noise, three standard deviations), which one odd day does not move;
3. it is outside the range of these days by more than the measure's least change, and by more than a fifth of the
   median. So a Sunday is compared with the last Sunday, and small changes are not reported.

Sums (deliveries, dead, closing lag) are 0 on days in the lake, once the thing was seen. Rates and percentiles of fewer
than 100 deliveries do not count. A topic or durable subscription without a value on any earlier day is new, if it has
enough deliveries and there are four earlier days. Transient subscriptions are not compared, since their names change
with every connection. On an incomplete date no sum counts as low.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from pyspark.sql import functions as F

from stompbroker_report.levels import Level, aggregated
from stompbroker_report.measures import EARLIER_DAYS, Direction, Measure, Scope
from stompbroker_report.schemas import MARTS

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import date

    from pyspark.sql import Column, DataFrame

#: With fewer, the median is arbitrary.
FEWEST_DAYS: Final = 4
#: With fewer, every single delivery moves a rate or p99 by whole percents.
FEWEST_DELIVERIES: Final = 100
SPREADS: Final = 3.0
#: Turns a MAD into a standard deviation, for a normal distribution.
MAD_TO_DEVIATION: Final = 1.4826
LEAST_PART_OF_MEDIAN: Final = 0.2


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    #: In the measure's own unit.
    least_change: float
    is_sum: bool


_RULES: Final = {
    Measure.DELIVERIES: _Rule(least_change=100.0, is_sum=True),
    Measure.REDELIVERY_RATE: _Rule(least_change=0.01, is_sum=False),
    Measure.DEAD: _Rule(least_change=5.0, is_sum=True),
    # A p99 on a busy machine moves by that much, and nobody notices.
    Measure.P99_TO_ACK_S: _Rule(least_change=0.05, is_sum=False),
    Measure.CLOSING_LAG: _Rule(least_change=100.0, is_sum=True),
}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Calendar:
    """Which dates the lake has, and which are reported."""

    reported: Collection[date]
    #: Dates with any data, with backlog snapshots, and with nothing missing.
    in_lake: Collection[date]
    with_backlog: Collection[date]
    complete: Collection[date]


_SCOPES: Final = {Level.DAY: Scope.DAY, Level.TOPIC: Scope.TOPIC, Level.SUBSCRIPTION: Scope.SUBSCRIPTION}


def measures(figures: DataFrame, unsettled: DataFrame) -> DataFrame:
    """One row per date, scope, name (null for the day) and measure, from `figures.figures` and the mart `unsettled`."""
    enough_sent = F.col("sent_deliveries") >= FEWEST_DELIVERIES
    enough_acked = F.col("time_to_ack_deliveries") >= FEWEST_DELIVERIES
    values = {
        Measure.DELIVERIES: F.col("deliveries"),
        Measure.REDELIVERY_RATE: F.when(enough_sent, F.col("redelivery_rate")),
        Measure.DEAD: F.col("outcome_dead"),
        Measure.P99_TO_ACK_S: F.when(enough_acked, F.col("time_to_ack_p99_s")),
    }
    pairs = [
        F.struct(F.lit(measure.value).alias("measure"), value.cast("double").alias("value"))
        for measure, value in values.items()
    ]
    is_lasting = (F.col("level") != int(Level.SUBSCRIPTION)) | F.col("is_durable")
    compared = figures.where(F.col("level").isin(*map(int, _SCOPES)) & is_lasting)
    of_figures = compared.select("dt", _scope(), _name(), F.explode(F.array(*pairs)).alias("pair")).select(
        "dt", "scope", "name", "pair.measure", "pair.value"
    )
    closing_lag = aggregated(
        unsettled.withColumns({"hour_utc": F.lit(None).cast("int"), "member": F.lit(None).cast("string")}),
        tuple(_SCOPES),
        F.sum("lag_messages").cast("double").alias("value"),
    ).select("dt", _scope(), _name(), F.lit(Measure.CLOSING_LAG.value).alias("measure"), "value")
    return of_figures.unionByName(closing_lag).where(F.col("value").isNotNull())


def _scope() -> Column:
    entries = [F.lit(item) for level, scope in _SCOPES.items() for item in (int(level), scope.value)]
    return F.try_element_at(F.create_map(*entries), F.col("level")).alias("scope")


def _name() -> Column:
    return F.coalesce("topic", "subscription").alias("name")


def changes(measured: DataFrame, calendar: Calendar) -> DataFrame:
    """One row per reported date and unusual value; `measured` comes from `measures`, with earlier days."""
    series = measured.groupBy("scope", "name", "measure").agg(
        F.map_from_entries(F.collect_list(F.struct("dt", "value"))).alias("values")
    )
    days = (
        series.withColumn("dt", F.explode(_dates(calendar.reported)))
        .withColumn("earlier", F.sequence(F.date_sub("dt", EARLIER_DAYS), F.date_sub("dt", 1)))
        .withColumn("first_seen", _first_seen())
        .withColumn("day", F.explode(F.array_append("earlier", F.col("dt"))))
        .withColumn("value", _value_on(F.col("day"), calendar))
    )
    is_earlier = F.col("day") < F.col("dt")
    earlier_value = F.when(is_earlier, F.col("value"))
    in_order = F.array_sort(F.collect_list(F.when(is_earlier, F.struct("day", "value"))))
    compared = days.groupBy("dt", "scope", "name", "measure").agg(
        F.max(F.when(~is_earlier, F.col("value"))).alias("value"),
        F.median(earlier_value).alias("median"),
        F.min(earlier_value).alias("lowest"),
        F.max(earlier_value).alias("highest"),
        F.count(earlier_value).alias("days"),
        F.count_if(is_earlier & F.col("day").isin(*calendar.in_lake)).alias("days_in_lake"),
        F.transform(in_order, lambda day: day["value"]).alias("previous"),
    )
    judged = (
        compared.withColumn("spread", MAD_TO_DEVIATION * _median(_distances()))
        .withColumn("least", F.greatest(_least_change(), LEAST_PART_OF_MEDIAN * F.abs("median")))
        .withColumn("direction", _direction(calendar))
        .where(F.col("direction").isNotNull())
    )
    distance = F.abs(F.col("value") - F.col("median"))
    score = F.when(F.col("median").isNotNull(), distance / F.greatest("spread", "least")).otherwise(F.lit(0.0))
    return judged.withColumn("score", score).select(*MARTS["changes"].names)


def _direction(calendar: Calendar) -> Column:
    """How the value stands out; null if it does not."""
    value, median = F.col("value"), F.col("median")
    is_unusual = (F.col("days") >= FEWEST_DAYS) & (F.abs(value - median) > SPREADS * F.col("spread"))
    may_be_low = ~_is_sum() | _is_among(F.col("dt"), calendar.complete)
    is_new = (
        (F.col("days") == 0)
        & (F.col("days_in_lake") >= FEWEST_DAYS)
        & (F.col("scope") != Scope.DAY.value)
        & (F.col("measure") == Measure.DELIVERIES.value)
        & (value >= _least_change())
    )
    return (
        F.when(is_unusual & (value - F.col("highest") > F.col("least")), Direction.HIGHER.value)
        .when(is_unusual & (F.col("lowest") - value > F.col("least")) & may_be_low, Direction.LOWER.value)
        .when(is_new, Direction.NEW.value)
    )


def _value_on(day: Column, calendar: Calendar) -> Column:
    """The value, 0 for a sum of something seen before on a day in the lake, or null."""
    is_closing_lag = F.col("measure") == Measure.CLOSING_LAG.value
    is_known_day = F.when(is_closing_lag, _is_among(day, calendar.with_backlog)).otherwise(
        _is_among(day, calendar.in_lake)
    )
    is_nothing = _is_sum() & (day >= F.col("first_seen")) & is_known_day
    return F.coalesce(F.try_element_at("values", day), F.when(is_nothing, F.lit(0.0)))


def _first_seen() -> Column:
    """The first earlier day that has a value; null if none has."""
    return F.array_min(F.filter(F.map_keys("values"), lambda day: F.array_contains("earlier", day)))


def _distances() -> Column:
    known = F.filter("previous", lambda value: value.isNotNull())
    return F.array_sort(F.transform(known, lambda value: F.abs(value - F.col("median"))))


def _median(ordered: Column) -> Column:
    """Of a sorted array; null if it is empty."""
    size = F.size(ordered)
    below = F.try_element_at(ordered, F.floor((size + 1) / 2).cast("int"))
    above = F.try_element_at(ordered, F.floor(size / 2).cast("int") + 1)
    return F.when(size > 0, (below + above) / 2)


def _is_sum() -> Column:
    return F.col("measure").isin(*(measure.value for measure, rule in _RULES.items() if rule.is_sum))


def _least_change() -> Column:
    entries = [F.lit(item) for measure, rule in _RULES.items() for item in (measure.value, rule.least_change)]
    return F.try_element_at(F.create_map(*entries), F.col("measure"))


def _dates(days: Collection[date]) -> Column:
    return F.array(*(F.lit(day) for day in sorted(days))).cast("array<date>")


def _is_among(day: Column, days: Collection[date]) -> Column:
    return day.isin(*days) if days else F.lit(False)
