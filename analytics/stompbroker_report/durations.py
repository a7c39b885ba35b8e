"""Percentiles of durations in bounded memory: columns of µs in, aggregates in seconds out.

Spark's `percentile` interpolates between the two nearest deliveries and counts a record by its weight. It keeps every
distinct value, so durations are rounded down first: to µs below a second, ms below a thousand seconds, seconds above.
That bounds it to 2 million values and a few for longer durations, with an error of at most a thousandth. The maximum is
not rounded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from stompbroker_report.schemas import DURATIONS

if TYPE_CHECKING:
    from pyspark.sql import Column

_MILLISECOND_US: Final = 1_000
_SECOND_US: Final = 1_000_000

_PERCENTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}

#: By duration, the column with the number of deliveries that have it.
DURATION_SUMS: Final = {name: f"{name}_deliveries" for name in DURATIONS}


def duration_aggregates() -> list[Column]:
    """Aggregates over rows of `records.measured`; `duration_columns` turns them into columns of the marts."""
    return [aggregate for name in DURATIONS for aggregate in _aggregates(F.col(f"{name}_us"), name)]


def _aggregates(value_us: Column, name: str) -> list[Column]:
    percentiles = F.percentile(_cut(value_us), list(_PERCENTILES.values()), F.col("weight"))
    return [percentiles.alias(f"{name}_percentiles_us"), F.max(value_us).alias(f"{name}_max_us")]


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
    return (
        F.when(value_us < _SECOND_US, value_us)
        .when(value_us < 1_000 * _SECOND_US, value_us - value_us % _MILLISECOND_US)
        .otherwise(value_us - value_us % _SECOND_US)
    )


def _seconds(value_us: Column) -> Column:
    # Times are measured in whole µs.
    return F.round(value_us / _SECOND_US, 6)
