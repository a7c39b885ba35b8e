"""The rows of the marts that a report shows.

Law: marts in, as files; rows out. No Spark: what the report says is what the marts say. Files are read piece by piece,
and what is held is bounded by the constants below, however many topics, subscriptions or reasons there are. Order is
total, so that the same marts give the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import date

    from stompbroker_report.sinks import Results

__all__ = ["Excerpt", "Row", "excerpts_of"]

#: A row, by column. Times have a timezone.
Row = dict[str, Any]

#: A page that is read over coffee; who wants all has the marts.
TABLE_ROWS: Final = 50
SLOWEST_ROWS: Final = 10
REASON_ROWS: Final = 20
DEAD_LETTER_ROWS: Final = 20
UNSETTLED_ROWS: Final = 30
CHANGE_ROWS: Final = 40
#: As many lines as can be told apart in one plot.
SERIES: Final = 8
#: Fewer deliveries make no ranking by p99.
FEWEST_TO_RANK: Final = 100

_HOURS: Final = 24
#: Rows of a file that are looked at together.
_PIECE_ROWS: Final = 16 * 1024


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """The first rows of a mart, of how many, and the sums over all of them."""

    rows: list[Row]
    total_rows: int
    totals: dict[str, int]


def excerpts_of(results: Results, day: date) -> dict[str, Excerpt]:
    """By name, what the report of one date is made of."""

    def read(
        mart: str,
        number: int,
        order: Sequence[tuple[str, str]],
        *,
        where: pc.Expression | None = None,
        totals: Sequence[str] = (),
    ) -> Excerpt:
        return _first(results.read_mart(mart, day, _PIECE_ROWS), number, order, where, totals)

    most = [("deliveries", "descending")]
    topics = read("topics", TABLE_ROWS, [*most, ("topic", "ascending")])
    shown_in_hours = pc.field("topic").isin([row["topic"] for row in topics.rows[:SERIES]])
    reading = [("topic", "ascending"), ("subscription", "ascending")]
    ranked = pc.field("time_to_ack_deliveries") >= FEWEST_TO_RANK
    return {
        "days": read("days", 1, most),
        "hours": read("hours", _HOURS, [("hour_utc", "ascending")]),
        "topics": topics,
        "topic_hours": read(
            "topic_hours", SERIES * _HOURS, [("topic", "ascending"), ("hour_utc", "ascending")], where=shown_in_hours
        ),
        "subscriptions": read("subscriptions", TABLE_ROWS, [*most, ("subscription", "ascending")]),
        "slowest": read(
            "subscriptions",
            SLOWEST_ROWS,
            [("time_to_ack_p99_s", "descending"), ("subscription", "ascending")],
            where=ranked,
        ),
        "readings": read("readings", TABLE_ROWS, [*most, *reading]),
        "reasons": read(
            "reasons", REASON_ROWS, [*most, ("reason", "ascending")], totals=("deliveries", "nacks", "dead")
        ),
        "dead_letters": read(
            "dead_letters", DEAD_LETTER_ROWS, [*most, *reading, ("reason", "ascending")], totals=("deliveries",)
        ),
        "latest_dead_letters": read(
            "latest_dead_letters",
            DEAD_LETTER_ROWS,
            [("settled_at", "descending"), *reading, ("offset", "descending")],
        ),
        "backlog_hours": read("backlog_hours", _HOURS + 1, [("hour_utc", "ascending")]),
        "backlog": read(
            "backlog",
            SERIES * (_HOURS + 1),
            [("peak_lag_messages", "descending"), ("subscription", "ascending"), ("hour_utc", "ascending")],
            where=pc.field("peak_lag_messages") > 0,
        ),
        "unsettled": read(
            "unsettled",
            UNSETTLED_ROWS,
            [("lag_messages", "descending"), *reading],
            where=pc.field("lag_messages") > 0,
            totals=("lag_messages",),
        ),
        "changes": read(
            "changes",
            CHANGE_ROWS,
            [
                ("score", "descending"),
                ("value", "descending"),
                ("scope", "ascending"),
                ("name", "ascending"),
                ("measure", "ascending"),
            ],
        ),
    }


def _first(
    pieces: Iterator[pa.RecordBatch],
    number: int,
    order: Sequence[tuple[str, str]],
    where: pc.Expression | None,
    totals: Sequence[str],
) -> Excerpt:
    kept: pa.Table | None = None
    total_rows = 0
    sums = dict.fromkeys(totals, 0)
    for piece in pieces:
        table = pa.Table.from_batches([piece])
        if where is not None:
            table = table.filter(where)
        total_rows += table.num_rows
        for name in totals:
            sums[name] += pc.sum(table[name]).as_py() or 0
        kept = table if kept is None else pa.concat_tables([kept, table])
        kept = kept.sort_by(list(order)).slice(0, number)
    return Excerpt(rows=[] if kept is None else kept.to_pylist(), total_rows=total_rows, totals=sums)
