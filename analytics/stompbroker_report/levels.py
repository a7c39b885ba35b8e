"""The levels that figures are computed on (day, topic, hour, …), all in one pass over the rows.

Each level is a combination of keys, numbered as Spark's `grouping_id` does.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, final

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import Column, DataFrame

#: A key that a level does not have is null in its rows.
KEYS: Final = ("dt", "topic", "subscription", "hour_utc", "member")


@final
class Level(IntEnum):
    """A combination of keys; the number has a bit for each of `KEYS` that the level does *not* have."""

    DAY = 0b01111
    TOPIC = 0b00111
    SUBSCRIPTION = 0b01011
    READING = 0b00011
    HOUR = 0b01101
    TOPIC_HOUR = 0b00101
    #: A member of a group or queue; one row more, with null, has what no member had.
    MEMBER = 0b01010

    @property
    def keys(self) -> tuple[str, ...]:
        """Their names."""
        bits = range(len(KEYS) - 1, -1, -1)
        return tuple(key for key, bit in zip(KEYS, bits, strict=True) if not self >> bit & 1)


def aggregated(rows: DataFrame, levels: Collection[Level], *aggregates: Column) -> DataFrame:
    """One row per level and combination of its keys."""
    grouped = rows.groupingSets([level.keys for level in levels], *KEYS)
    return grouped.agg(F.grouping_id().cast("int").alias("level"), *aggregates)
