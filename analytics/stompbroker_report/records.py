"""What one record of the ledger says, in columns that can be summed up.

Law: a frame of the lake's deliveries in, the same rows out, narrower: text that no step looks at is gone before
anything is shuffled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["measured", "to_compare"]


def measured(deliveries: DataFrame) -> DataFrame:
    """One row per record, with how long it took; a duration that does not apply to it is null."""
    return deliveries.select(
        "dt",
        "topic",
        "subscription",
        "is_durable",
        F.hour("settled_at").alias("hour_utc"),
        "outcome",
        "weight",
        "attempts",
        "nacks",
        "body_bytes",
        F.when(F.col("attempts") >= 1, _between("published_at", "first_sent_at")).alias("time_to_first_delivery_us"),
        F.when(F.col("outcome") == "acked", _between("last_sent_at", "settled_at")).alias("time_to_ack_us"),
    )


def to_compare(records: DataFrame) -> DataFrame:
    """Of days that are only compared with: without the duration that is not compared, which spares its percentiles."""
    return records.withColumn("time_to_first_delivery_us", F.lit(None).cast("bigint"))


def _between(start: str, end: str) -> Column:
    """Whole µs; null if one of the two is not known. A clock that was set back makes it 0, not less."""
    return F.when(
        F.col(start).isNotNull() & F.col(end).isNotNull(),
        F.greatest(F.lit(0), F.unix_micros(F.col(end)) - F.unix_micros(F.col(start))),
    )
