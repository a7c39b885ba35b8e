"""The records of the ledger, as columns that can be summed up, and whether some are there twice.

Takes a frame of the lake's deliveries. Text that no step needs is dropped before anything is shuffled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def measured(deliveries: DataFrame) -> DataFrame:
    """One row per record, with its durations; one that does not apply is null."""
    return deliveries.select(
        "dt",
        "topic",
        "subscription",
        "is_durable",
        F.hour("settled_at").alias("hour_utc"),
        "member",
        "outcome",
        "weight",
        "attempts",
        "nacks",
        "body_bytes",
        F.when(F.col("attempts") >= 1, _between("published_at", "first_sent_at")).alias("time_to_first_delivery_us"),
        F.when(F.col("outcome") == "acked", _between("last_sent_at", "settled_at")).alias("time_to_ack_us"),
    )


def to_compare(records: DataFrame, is_reported: Column) -> DataFrame:
    """The same records, but earlier days have no duration that is not compared: that saves computing percentiles."""
    return records.withColumn("time_to_first_delivery_us", F.when(is_reported, F.col("time_to_first_delivery_us")))


def duplicates(deliveries: DataFrame) -> DataFrame:
    """One row per date that has duplicate records, and how many there are; it should be empty.

    A record's key is (message id, subscription, generation, time of settling): a subscription that was deleted and
    made again may get the same messages. A record of a range has no message id; topic and offset identify it. A 64-bit
    hash stands in for all of the key but the time: it shuffles many times faster than the texts, and two of the same µs
    are not to be expected to collide in the lifetime of a lake.
    """
    message = F.coalesce("message_id", F.concat_ws("@", F.col("offset"), F.col("topic")))
    rest = F.xxhash64(message, "subscription", "generation")
    keyed = deliveries.select("dt", "settled_at", rest.alias("rest"))
    repeated = keyed.groupBy("dt", "settled_at", "rest").agg(F.count("*").alias("records")).where(F.col("records") > 1)
    return repeated.groupBy("dt").agg(F.sum(F.col("records") - 1).alias("duplicate_records"))


def _between(start: str, end: str) -> Column:
    """Whole µs; null if one of the two is unknown. 0 if the clock was set back in between."""
    return F.when(
        F.col(start).isNotNull() & F.col(end).isNotNull(),
        F.greatest(F.lit(0), F.unix_micros(F.col(end)) - F.unix_micros(F.col(start))),
    )
