"""What durable subscriptions had not settled, over a day and at its end.

Law: snapshots of the lake in. A snapshot belongs to the hour in which it was taken; the closing one, taken when the day
had ended, is hour 24. Of several in one hour the last counts. The end of a day is its closing snapshot, or, where
there is none, the last hour that has one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from stompbroker_report.schemas import MARTS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["CLOSING_HOUR", "backlog", "backlog_hours", "reading_backlog", "unsettled"]

CLOSING_HOUR: Final = 24


def reading_backlog(snapshots: DataFrame) -> DataFrame:
    """One row per date, reading and hour."""
    hour = F.when(F.col("is_closing"), F.lit(CLOSING_HOUR)).otherwise(F.hour("taken_at"))
    latest = Window.partitionBy("dt", "topic", "subscription", "hour_utc").orderBy(F.desc("taken_at"))
    return (
        # Neither NaN nor infinity is an age.
        snapshots.withColumn("lag_s", F.when(F.abs("lag_s") < float("inf"), F.col("lag_s")))
        .withColumn("hour_utc", hour)
        .withColumn("place", F.row_number().over(latest))
        .where(F.col("place") == 1)
        .select(*MARTS["reading_backlog"].names)
    )


def unsettled(by_reading: DataFrame) -> DataFrame:
    """One row per date and reading, as it was at the end of the date; also those that had settled everything."""
    of_date = Window.partitionBy("dt")
    return (
        by_reading.withColumn("last_hour", F.max("hour_utc").over(of_date))
        .where(F.col("hour_utc") == F.col("last_hour"))
        .select(*MARTS["unsettled"].names)
    )


def backlog(by_reading: DataFrame) -> DataFrame:
    """One row per date, subscription and hour: its topics together."""
    together = by_reading.groupBy("dt", "subscription", "hour_utc").agg(*_together())
    peak = F.max("lag_messages").over(Window.partitionBy("dt", "subscription"))
    return together.withColumn("peak_lag_messages", peak).select(*MARTS["backlog"].names)


def backlog_hours(by_reading: DataFrame) -> DataFrame:
    """One row per date and hour: all readings together."""
    times = F.max("taken_at").alias("taken_at"), F.max("is_closing").alias("is_closing")
    return by_reading.groupBy("dt", "hour_utc").agg(*times, *_together()).select(*MARTS["backlog_hours"].names)


def _together() -> list[Column]:
    return [
        F.sum("lag_messages").alias("lag_messages"),
        F.max("lag_s").alias("lag_s"),
        F.sum("in_flight").alias("in_flight"),
        F.sum("waiting").alias("waiting"),
        F.sum("pinned_bytes").alias("pinned_bytes"),
    ]
