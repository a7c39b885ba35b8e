"""Deliveries, outcomes, attempts and durations of days, topics, subscriptions, readings and hours, all in one frame.

Rows of `records.measured` in, one row per level and combination of keys out, with the columns of the marts. Sums are
made once per reading, hour and member and added up from there; percentiles cannot be added, so each level computes its
own.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from stompbroker_report.durations import DURATION_SUMS, counted, duration_aggregates, duration_columns
from stompbroker_report.lake_schema import OUTCOMES
from stompbroker_report.levels import KEYS, Level, aggregated
from stompbroker_report.schemas import ATTEMPTS_BUCKETS, MARTS, attempts_column

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import Column, DataFrame

#: Levels that have durations.
_MEASURED: Final = (Level.DAY, Level.TOPIC, Level.SUBSCRIPTION, Level.READING, Level.HOUR)


def weighted_when(condition: Column) -> Column:
    """The number of deliveries for which the condition holds."""
    return F.sum(F.when(condition, F.col("weight")).otherwise(0))


def sums(records: DataFrame) -> DataFrame:
    """One row per date, topic, subscription, hour and member: everything that can be added up."""
    weight, attempts, outcome = F.col("weight"), F.col("attempts"), F.col("outcome")
    hourly = records.groupBy(*KEYS).agg(
        F.max("is_durable").alias("is_durable"),
        F.sum(weight).alias("deliveries"),
        F.count("*").alias("records"),
        F.count_if(weight > 1).alias("weighted_records"),
        weighted_when(weight > 1).alias("weighted_deliveries"),
        *(weighted_when(outcome == word).alias(f"outcome_{word}") for word in OUTCOMES),
        weighted_when(~outcome.isin(*OUTCOMES)).alias("outcome_unknown"),
        weighted_when(attempts >= 1).alias("sent_deliveries"),
        weighted_when(attempts >= 2).alias("redelivered"),
        F.sum(F.col("nacks") * weight).alias("nacks"),
        F.sum(attempts * weight).alias("attempts"),
        *(weighted_when(_in_bucket(attempts, *bucket)).alias(attempts_column(*bucket)) for bucket in ATTEMPTS_BUCKETS),
        F.sum(F.coalesce("body_bytes", F.lit(0)) * weight).alias("body_bytes"),
        *(weighted_when(F.col(f"{name}_us").isNotNull()).alias(column) for name, column in DURATION_SUMS.items()),
    )
    # 1 in a reading's first row: the sum is the number of readings of a day, topic or subscription.
    place = F.row_number().over(Window.partitionBy(*Level.READING.keys).orderBy("hour_utc", "member"))
    return hourly.withColumn("readings", F.when(place == 1, 1).otherwise(0).cast("bigint"))


def durations(records: DataFrame, levels: Collection[Level] = _MEASURED) -> DataFrame:
    """One row per level and combination of keys: percentiles and maxima.

    Values are counted once, for the keys of all these levels together; so levels with different keys, such as readings
    and hours, are better asked for apart.
    """
    keys = [key for key in KEYS if any(key in level.keys for level in levels)]
    return aggregated(counted(records, keys), levels, *duration_aggregates())


def figures(hourly: DataFrame, measured_durations: DataFrame) -> DataFrame:
    """All figures on every level; `hourly` comes from `sums`."""
    added = [name for name in hourly.columns if name not in (*KEYS, "is_durable")]
    together = aggregated(
        hourly, tuple(Level), F.max("is_durable").alias("is_durable"), *(F.sum(name).alias(name) for name in added)
    )
    one, other = together.alias("one"), measured_durations.alias("other")
    same = reduce(
        lambda all_same, key: all_same & F.col(f"one.{key}").eqNullSafe(F.col(f"other.{key}")),
        KEYS,
        F.col("one.level") == F.col("other.level"),
    )
    rate = F.when(F.col("sent_deliveries") > 0, F.col("redelivered") / F.col("sent_deliveries"))
    return one.join(other, same, "left").select(
        *(f"one.{name}" for name in ("level", *KEYS, "is_durable", *added)),
        rate.alias("redelivery_rate"),
        *duration_columns(),
    )


def figures_of(level: Level, all_figures: DataFrame) -> DataFrame:
    """The mart of a level, without the columns that another step adds."""
    own = all_figures.where(F.col("level") == int(level)).withColumns(
        {"subscriptions": F.col("readings"), "topics": F.col("readings")}
    )
    return own.select(*(name for name in MARTS[_MART[level]].names if name in own.columns))


_MART: Final = {
    Level.DAY: "days",
    Level.TOPIC: "topics",
    Level.SUBSCRIPTION: "subscriptions",
    Level.READING: "readings",
    Level.HOUR: "hours",
    Level.TOPIC_HOUR: "topic_hours",
}


def _in_bucket(attempts: Column, attempts_from: int, attempts_to: int | None) -> Column:
    return attempts >= attempts_from if attempts_to is None else attempts.between(attempts_from, attempts_to)
