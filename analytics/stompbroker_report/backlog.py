"""What durable subscriptions had not settled, over a day and at its end.

Takes the lake's backlog snapshots. A snapshot belongs to the hour in which it was taken, and the last one of an hour
counts. The closing snapshot is hour 24. The end of a day is the last hour that has a snapshot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from stompbroker_report.schemas import MARTS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

CLOSING_HOUR: Final = 24


def reading_backlog(snapshots: DataFrame) -> DataFrame:
    """One row per date, reading and hour."""
    hour = F.when(F.col("is_closing"), F.lit(CLOSING_HOUR)).otherwise(F.hour("taken_at"))
    latest = Window.partitionBy("dt", "topic", "subscription", "hour_utc").orderBy(F.desc("taken_at"))
    return (
        # NaN and infinity are not ages.
        snapshots.withColumn("lag_s", F.when(F.abs("lag_s") < float("inf"), F.col("lag_s")))
        .withColumn("hour_utc", hour)
        .withColumn("place", F.row_number().over(latest))
        .where(F.col("place") == 1)
        .select(*MARTS["reading_backlog"].names)
    )


def unsettled(by_reading: DataFrame) -> DataFrame:
    """One row per date and reading at the end of the date, including those with nothing unsettled."""
    of_date = Window.partitionBy("dt")
    return (
        by_reading.withColumn("last_hour", F.max("hour_utc").over(of_date))
        .where(F.col("hour_utc") == F.col("last_hour"))
        .select(*MARTS["unsettled"].names)
    )


def backlog(by_reading: DataFrame) -> DataFrame:
    """One row per date, subscription and hour, over all its topics."""
    together = by_reading.groupBy("dt", "subscription", "hour_utc").agg(*_together())
    peak = F.max("lag_messages").over(Window.partitionBy("dt", "subscription"))
    return together.withColumn("peak_lag_messages", peak).select(*MARTS["backlog"].names)


def backlog_hours(by_reading: DataFrame) -> DataFrame:
    """One row per date and hour, over all readings."""
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
