"""Which steps make which mart.

Lazy frames in, lazy frames out: nothing is computed here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from stompbroker_report.backlog import backlog, backlog_hours, reading_backlog, unsettled
from stompbroker_report.changes import Calendar, changes, measures
from stompbroker_report.failures import dead_letters, latest_dead_letters, reading_reasons, reasons
from stompbroker_report.figures import durations, figures, figures_of, sums
from stompbroker_report.levels import Level
from stompbroker_report.members import members
from stompbroker_report.records import duplicates, measured, to_compare

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

_COMPARED = (Level.DAY, Level.TOPIC, Level.SUBSCRIPTION)


def tables_of(
    deliveries: DataFrame, snapshots: DataFrame, calendar: Calendar, keep: Callable[[DataFrame], DataFrame]
) -> dict[str, DataFrame]:
    """A frame for every mart, by name. Some hold earlier days too, because changes are judged by them.

    `deliveries` and `snapshots` include these earlier days. `keep` caches a frame that is used more than once.
    """
    is_reported = F.col("dt").isin(*calendar.reported)
    reported = deliveries.where(is_reported)
    earlier = to_compare(measured(deliveries.where(~is_reported)))
    all_durations = durations(measured(reported)).unionByName(durations(earlier, _COMPARED))
    all_figures = keep(figures(sums(measured(deliveries)), all_durations))
    by_level = {level: figures_of(level, all_figures) for level in Level if level is not Level.MEMBER}
    by_reading = keep(reading_backlog(snapshots))
    at_end = unsettled(by_reading)
    failed = keep(reading_reasons(reported))
    return {
        "days": keep(_with_duplicates(by_level[Level.DAY], duplicates(reported))),
        "topics": by_level[Level.TOPIC],
        "subscriptions": by_level[Level.SUBSCRIPTION],
        "readings": by_level[Level.READING],
        "members": members(all_figures),
        "hours": by_level[Level.HOUR],
        "topic_hours": by_level[Level.TOPIC_HOUR],
        "reading_reasons": failed,
        "reasons": reasons(failed),
        "dead_letters": dead_letters(reported),
        "latest_dead_letters": latest_dead_letters(reported),
        "reading_backlog": by_reading,
        "backlog": backlog(by_reading),
        "backlog_hours": backlog_hours(by_reading),
        "unsettled": at_end,
        "changes": changes(measures(all_figures, at_end), calendar),
    }


def _with_duplicates(days: DataFrame, found: DataFrame) -> DataFrame:
    return days.join(found, "dt", "left").fillna(0, "duplicate_records")
