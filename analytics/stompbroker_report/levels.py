"""What figures are taken of: one pass over the rows gives them all.

Law: names for combinations of keys, as Spark numbers them when it groups by several at once.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, final

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import Column, DataFrame

__all__ = ["KEYS", "Level", "aggregated"]

#: A key that a level has not is null in its rows.
KEYS: Final = ("dt", "topic", "subscription", "hour_utc")


@final
class Level(IntEnum):
    """The keys that each row stands for; as a number, a bit for each of `KEYS` that it has *not*."""

    DAY = 0b0111
    TOPIC = 0b0011
    SUBSCRIPTION = 0b0101
    READING = 0b0001
    HOUR = 0b0110
    TOPIC_HOUR = 0b0010

    @property
    def keys(self) -> tuple[str, ...]:
        """By name."""
        bits = range(len(KEYS) - 1, -1, -1)
        return tuple(key for key, bit in zip(KEYS, bits, strict=True) if not self >> bit & 1)


def aggregated(rows: DataFrame, levels: Collection[Level], *aggregates: Column) -> DataFrame:
    """One row per level and combination of its keys."""
    grouped = rows.groupingSets([level.keys for level in levels], *KEYS)
    return grouped.agg(F.grouping_id().cast("int").alias("level"), *aggregates)
