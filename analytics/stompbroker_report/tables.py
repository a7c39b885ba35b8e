"""Which steps make which mart.

Lazy frames in, lazy frames out: nothing is computed here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from stompbroker_report.backlog import backlog, backlog_hours, reading_backlog, unsettled
from stompbroker_report.changes import Calendar, changes, measures
from stompbroker_report.failures import dead_letters, failures, latest_dead_letters, reading_reasons, reasons
from stompbroker_report.figures import durations, figures, figures_of, sums
from stompbroker_report.levels import Level
from stompbroker_report.members import members
from stompbroker_report.records import duplicates, measured, to_compare

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame

#: Whose durations are made from those of readings.
_OF_READINGS: Final = (Level.DAY, Level.TOPIC, Level.SUBSCRIPTION, Level.READING)


def tables_of(
    deliveries: DataFrame, snapshots: DataFrame, calendar: Calendar, keep: Callable[[DataFrame], DataFrame]
) -> Iterator[tuple[str, DataFrame]]:
    """Name and frame of every mart, in the order of `MARTS`; each is made when it is asked for.

    Some hold earlier days too, because changes are judged by them, and so do `deliveries` and `snapshots`. `keep`
    caches a frame that is used more than once.
    """
    is_reported = F.col("dt").isin(*calendar.reported)
    reported = deliveries.where(is_reported)
    of_readings = durations(to_compare(measured(deliveries), is_reported), _OF_READINGS)
    all_durations = of_readings.unionByName(durations(measured(reported), (Level.HOUR,)))
    all_figures = keep(figures(sums(measured(deliveries)), all_durations))
    # Spark knows that `duplicate_records` is never null, except behind a cache; in the files of all releases it may be.
    yield "days", keep(_with_duplicates(figures_of(Level.DAY, all_figures), duplicates(reported)))
    yield "topics", figures_of(Level.TOPIC, all_figures)
    yield "subscriptions", figures_of(Level.SUBSCRIPTION, all_figures)
    yield "readings", figures_of(Level.READING, all_figures)
    yield "members", members(all_figures)
    yield "hours", figures_of(Level.HOUR, all_figures)
    yield "topic_hours", figures_of(Level.TOPIC_HOUR, all_figures)
    failed = keep(failures(reported))
    by_reason = keep(reading_reasons(failed))
    yield "reading_reasons", by_reason
    yield "reasons", reasons(by_reason)
    yield "dead_letters", dead_letters(failed)
    yield "latest_dead_letters", latest_dead_letters(failed)
    by_reading = keep(reading_backlog(snapshots))
    at_end = unsettled(by_reading)
    yield "reading_backlog", by_reading
    yield "backlog", backlog(by_reading)
    yield "backlog_hours", backlog_hours(by_reading)
    yield "unsettled", at_end
    yield "changes", changes(measures(all_figures, at_end), calendar)


def _with_duplicates(days: DataFrame, found: DataFrame) -> DataFrame:
    return days.join(found, "dt", "left").fillna(0, "duplicate_records")
