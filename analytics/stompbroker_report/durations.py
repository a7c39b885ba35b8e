"""Percentiles of durations, exact and in bounded memory.

Law: columns of µs in, aggregates in seconds out. A percentile is Spark's `percentile`: linear between the two nearest
of all deliveries, a record that stands for several counted as several. It keeps every distinct value with its
count, so long durations are cut to a coarser unit first: µs below a second, ms below a thousand seconds, seconds above.
That is 2 million values at most, and some for whatever takes longer than a quarter of an hour, however many deliveries
there are; and never more than a thousandth away. The maximum is as it was measured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from stompbroker_report.schemas import DURATIONS

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["DURATION_SUMS", "duration_aggregates", "duration_columns"]

_MILLISECOND_US: Final = 1_000
_SECOND_US: Final = 1_000_000

_PERCENTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}

#: By duration, the column that says how many deliveries have it: a sum, like others.
DURATION_SUMS: Final = {name: f"{name}_deliveries" for name in DURATIONS}


def duration_aggregates() -> list[Column]:
    """What to aggregate over rows of `records.measured`; `duration_columns` makes the contracted columns of it."""
    return [aggregate for name in DURATIONS for aggregate in _aggregates(F.col(f"{name}_us"), name)]


def _aggregates(value_us: Column, name: str) -> list[Column]:
    percentiles = F.percentile(_cut(value_us), list(_PERCENTILES.values()), F.col("weight"))
    return [percentiles.alias(f"{name}_percentiles_us"), F.max(value_us).alias(f"{name}_max_us")]


def duration_columns() -> list[Column]:
    """In seconds, all but the numbers of deliveries."""
    return [column for name in DURATIONS for column in _columns(name)]


def _columns(name: str) -> list[Column]:
    percentiles = F.col(f"{name}_percentiles_us")
    return [
        *(_seconds(percentiles[index]).alias(f"{name}_{label}_s") for index, label in enumerate(_PERCENTILES)),
        _seconds(F.col(f"{name}_max_us")).alias(f"{name}_max_s"),
    ]


def _cut(value_us: Column) -> Column:
    """Downwards, so that no percentile is above the maximum."""
    return (
        F.when(value_us < _SECOND_US, value_us)
        .when(value_us < 1_000 * _SECOND_US, value_us - value_us % _MILLISECOND_US)
        .otherwise(value_us - value_us % _SECOND_US)
    )


def _seconds(value_us: Column) -> Column:
    # Between two µs there is nothing that was measured.
    return F.round(value_us / _SECOND_US, 6)
