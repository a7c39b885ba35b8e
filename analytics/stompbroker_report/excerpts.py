"""The rows of the marts that a report shows.

Reads marts from their files, without Spark, so the report says what the marts say. Memory is bounded by the constants
below, however many topics, subscriptions or reasons there are. Orders are total: the same marts give the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from datetime import date

    from stompbroker_report.sinks import Results, Row

#: What one page has room for; the marts have everything.
TABLE_ROWS: Final = 50
SLOWEST_ROWS: Final = 10
REASON_ROWS: Final = 20
DEAD_LETTER_ROWS: Final = 20
UNSETTLED_ROWS: Final = 30
#: Groups whose members are listed, those with most deliveries; and how many members of each, those with most.
LISTED_GROUPS: Final = 6
MEMBER_ROWS: Final = 10
CHANGE_ROWS: Final = 40
#: As many lines as can be told apart in one plot.
SERIES: Final = 8
#: With fewer deliveries a p99 is no basis for a ranking.
FEWEST_TO_RANK: Final = 100

_HOURS: Final = 24
#: Rows of a file that are sorted together.
_PIECE_ROWS: Final = 16 * 1024


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """The first rows of a mart, the number of all rows, and sums over all of them."""

    rows: list[Row]
    total_rows: int
    totals: dict[str, int]


@final
@dataclass(frozen=True, slots=True)
class _Selection:
    """Which rows of which mart."""

    mart: str
    rows: int
    #: Columns to sort by; a minus means descending.
    order: str
    where: pc.Expression | None = None
    totals: tuple[str, ...] = ()


_SELECTIONS: Final = {
    "days": _Selection("days", 1, "-deliveries"),
    "hours": _Selection("hours", _HOURS, "hour_utc"),
    "topics": _Selection("topics", TABLE_ROWS, "-deliveries topic"),
    "subscriptions": _Selection("subscriptions", TABLE_ROWS, "-deliveries subscription"),
    "slowest": _Selection(
        "subscriptions",
        SLOWEST_ROWS,
        "-time_to_ack_p99_s subscription",
        where=pc.field("time_to_ack_deliveries") >= FEWEST_TO_RANK,
    ),
    "readings": _Selection("readings", TABLE_ROWS, "-deliveries topic subscription"),
    "groups": _Selection("members", TABLE_ROWS, "-group_deliveries subscription", where=pc.field("place") == 1),
    "reasons": _Selection("reasons", REASON_ROWS, "-deliveries reason", totals=("deliveries", "nacks", "dead")),
    "dead_letters": _Selection(
        "dead_letters", DEAD_LETTER_ROWS, "-deliveries topic subscription reason", totals=("deliveries",)
    ),
    "latest_dead_letters": _Selection(
        "latest_dead_letters", DEAD_LETTER_ROWS, "-settled_at topic subscription -offset"
    ),
    "backlog_hours": _Selection("backlog_hours", _HOURS + 1, "hour_utc"),
    "backlog": _Selection(
        "backlog",
        SERIES * (_HOURS + 1),
        "-peak_lag_messages subscription hour_utc",
        where=pc.field("peak_lag_messages") > 0,
    ),
    "unsettled": _Selection(
        "unsettled",
        UNSETTLED_ROWS,
        "-lag_messages topic subscription",
        where=pc.field("lag_messages") > 0,
        totals=("lag_messages",),
    ),
    "changes": _Selection("changes", CHANGE_ROWS, "-score -value scope name measure"),
}


def excerpts_of(results: Results, day: date) -> dict[str, Excerpt]:
    """By name, what the report of one date is made of."""
    excerpts = {name: _excerpt(results, day, selection) for name, selection in _SELECTIONS.items()}
    plotted = pc.field("topic").isin([row["topic"] for row in excerpts["topics"].rows[:SERIES]])
    busiest = pc.field("subscription").isin([row["subscription"] for row in excerpts["groups"].rows[:LISTED_GROUPS]])
    more = {
        "topic_hours": _Selection("topic_hours", SERIES * _HOURS, "topic hour_utc", where=plotted),
        "members": _Selection(
            "members",
            LISTED_GROUPS * MEMBER_ROWS,
            "subscription place",
            where=busiest & (pc.field("place") <= MEMBER_ROWS),
        ),
    }
    return excerpts | {name: _excerpt(results, day, selection) for name, selection in more.items()}


def _excerpt(results: Results, day: date, selection: _Selection) -> Excerpt:
    order = [
        (column.removeprefix("-"), "descending" if column.startswith("-") else "ascending")
        for column in selection.order.split()
    ]
    kept: pa.Table | None = None
    total_rows = 0
    sums = dict.fromkeys(selection.totals, 0)
    for piece in results.read_mart(selection.mart, day, _PIECE_ROWS):
        table = pa.Table.from_batches([piece])
        if selection.where is not None:
            table = table.filter(selection.where)
        total_rows += table.num_rows
        for name in sums:
            sums[name] += pc.sum(table[name]).as_py() or 0
        kept = table if kept is None else pa.concat_tables([kept, table])
        kept = kept.sort_by(order).slice(0, selection.rows)
    return Excerpt(rows=[] if kept is None else kept.to_pylist(), total_rows=total_rows, totals=sums)
