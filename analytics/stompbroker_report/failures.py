"""Why deliveries failed, and which of them were dead-lettered.

Takes the lake's deliveries. The ledger has the last reason of each, as the client wrote it, and compares it literally.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from stompbroker_report.figures import weighted_when
from stompbroker_report.schemas import MARTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Dead letters of a date that are listed one by one; the lake has all.
LATEST: Final = 20


def failures(deliveries: DataFrame) -> DataFrame:
    """The records that the other steps look at, with the columns that they need."""
    return deliveries.where(F.col("last_reason").isNotNull() | (F.col("outcome") == "dead")).select(
        "dt",
        "message_id",
        "topic",
        "offset",
        "subscription",
        "published_at",
        "settled_at",
        "attempts",
        "nacks",
        "last_reason",
        "outcome",
        "weight",
    )


def reading_reasons(deliveries: DataFrame) -> DataFrame:
    """One row per date, reading and reason, of deliveries that failed at least once with a reason."""
    failed = deliveries.where(F.col("last_reason").isNotNull())
    by_reason = failed.groupBy("dt", "topic", "subscription", F.col("last_reason").alias("reason")).agg(
        F.sum("weight").alias("deliveries"),
        F.sum(F.col("nacks") * F.col("weight")).alias("nacks"),
        weighted_when(F.col("outcome") == "dead").alias("dead"),
    )
    return by_reason.select(*MARTS["reading_reasons"].names)


def reasons(by_reading: DataFrame) -> DataFrame:
    """One row per date and reason, with how many readings had it and which had it most."""
    # Ties go to the last in the alphabet: any would do, as long as it is always the same.
    most = F.max(F.struct("deliveries", "topic", "subscription")).alias("most")
    over_all = by_reading.groupBy("dt", "reason").agg(
        F.sum("deliveries").alias("deliveries"),
        F.sum("nacks").alias("nacks"),
        F.sum("dead").alias("dead"),
        F.count("*").alias("readings"),
        most,
    )
    return over_all.withColumns({"topic": F.col("most.topic"), "subscription": F.col("most.subscription")}).select(
        *MARTS["reasons"].names
    )


def dead_letters(deliveries: DataFrame) -> DataFrame:
    """One row per date, reading and reason, of dead-lettered deliveries."""
    dead = deliveries.where(F.col("outcome") == "dead")
    groups = dead.groupBy("dt", "topic", "subscription", F.col("last_reason").alias("reason")).agg(
        F.sum("weight").alias("deliveries"),
        F.min("settled_at").alias("first_at"),
        F.max("settled_at").alias("last_at"),
    )
    return groups.select(*MARTS["dead_letters"].names)


def latest_dead_letters(deliveries: DataFrame) -> DataFrame:
    """One row per dead-lettered record, the last few of each date."""
    latest = Window.partitionBy("dt").orderBy(F.desc("settled_at"), "topic", F.desc("offset"), "subscription")
    return (
        deliveries.where(F.col("outcome") == "dead")
        .withColumn("place", F.row_number().over(latest))
        .where(F.col("place") <= LATEST)
        .withColumnRenamed("last_reason", "reason")
        .select(*MARTS["latest_dead_letters"].names)
    )
