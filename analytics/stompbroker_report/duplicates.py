"""Whether the ledger has a delivery twice, which it must not.

Law: the lake's deliveries in, a number per date out; 0 is not in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["duplicates"]


def duplicates(deliveries: DataFrame) -> DataFrame:
    """One row per date that has records whose key another record has too, and how many too many they are.

    The key of a record is (message id, subscription, generation), and when it was settled: a subscription that was
    deleted and made again may begin with the same messages. One that stands for a stretch has no message id, and
    is known by topic and offset. Twice 64 bits of hash stand for it here: they are shuffled many times faster than
    the words, and two keys with the same ones are not to be expected in the lifetime of a lake.
    """
    message = F.coalesce("message_id", F.concat_ws("@", F.col("offset"), F.col("topic")))
    key = [message, F.col("subscription"), F.col("generation"), F.col("settled_at")]
    keyed = deliveries.select("dt", F.xxhash64(*key).alias("one"), F.xxhash64(F.lit(1), *key).alias("other"))
    repeated = keyed.groupBy("dt", "one", "other").agg(F.count("*").alias("records")).where(F.col("records") > 1)
    return repeated.groupBy("dt").agg(F.sum(F.col("records") - 1).alias("duplicate_records"))
