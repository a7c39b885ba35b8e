"""Percentiles of durations in bounded memory: columns of µs in, aggregates in seconds out.

Spark's `percentile` interpolates between the two nearest deliveries, counts a value by its weight, and keeps every
distinct value. So durations are rounded down first, to four digits: an error of less than a thousandth, and nine
thousand values for a power of ten. Then they are counted, and percentiles are made from the counts: in a day of ten
million deliveries there are half a million of readings. The maximum is not rounded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from stompbroker_report.levels import KEYS
from stompbroker_report.schemas import DURATIONS

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import Column, DataFrame

_SECOND_US: Final = 1_000_000
#: What is left of values.
_DIGITS: Final = 4
#: As many of the digits after those are cut off at most: what lasts longer than eleven days keeps more.
_MOST_CUT: Final = 8

_PERCENTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}

#: By duration, the column with the number of deliveries that have it.
DURATION_SUMS: Final = {name: f"{name}_deliveries" for name in DURATIONS}


def counted(records: DataFrame, keys: Collection[str]) -> DataFrame:
    """How many deliveries had which duration: rows of `records.measured` in, one row per combination of `keys`, kind of
    duration and value out, with all of `KEYS`."""
    # A number, not the name: it is part of the key of millions of rows.
    kinds = (
        F.struct(F.lit(number).alias("duration"), F.col(f"{name}_us").alias("us"))
        for number, name in enumerate(DURATIONS)
    )
    each = records.select(*keys, "weight", F.inline(F.array(*kinds))).where(F.col("us").isNotNull())
    counts = each.groupBy(*keys, "duration", _cut(F.col("us")).alias("value_us")).agg(
        F.sum("weight").alias("deliveries"), F.max("us").alias("longest_us")
    )
    return counts.withColumns({key: F.lit(None) for key in KEYS if key not in keys})


def duration_aggregates() -> list[Column]:
    """Aggregates over rows of `counted`; `duration_columns` turns them into columns of the marts."""
    return [aggregate for name in DURATIONS for aggregate in _aggregates(name)]


def _aggregates(name: str) -> list[Column]:
    def own(column: str) -> Column:
        return F.when(F.col("duration") == DURATIONS.index(name), F.col(column))

    percentiles = F.percentile(own("value_us"), list(_PERCENTILES.values()), own("deliveries"))
    return [percentiles.alias(f"{name}_percentiles_us"), F.max(own("longest_us")).alias(f"{name}_max_us")]


def duration_columns() -> list[Column]:
    """Percentiles and maxima in seconds."""
    return [column for name in DURATIONS for column in _columns(name)]


def _columns(name: str) -> list[Column]:
    percentiles = F.col(f"{name}_percentiles_us")
    return [
        *(_seconds(percentiles[index]).alias(f"{name}_{label}_s") for index, label in enumerate(_PERCENTILES)),
        _seconds(F.col(f"{name}_max_us")).alias(f"{name}_max_s"),
    ]


def _cut(value_us: Column) -> Column:
    """Rounds down, so that no percentile exceeds the maximum."""
    cut = F.when(value_us < 10**_DIGITS, value_us)
    for digits in range(1, _MOST_CUT):
        cut = cut.when(value_us < 10 ** (_DIGITS + digits), value_us - value_us % 10**digits)
    return cut.otherwise(value_us - value_us % 10**_MOST_CUT)


def _seconds(value_us: Column) -> Column:
    # Times are measured in whole µs.
    return F.round(value_us / _SECOND_US, 6)
