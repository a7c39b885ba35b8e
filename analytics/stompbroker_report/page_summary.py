"""The first part of a report's page: key numbers, and what stands out against the days before.

Pure functions from content to HTML.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Final

from markupsafe import Markup

from stompbroker_report.measures import MEASURES, Direction, Measure, Scope
from stompbroker_report.page_parts import NOTHING, joined, name, panel, sentence, spark_bars, tile
from stompbroker_report.readable_numbers import UNKNOWN, count, duration, factor, share

if TYPE_CHECKING:
    from stompbroker_report.content import ReportContent
    from stompbroker_report.measures import Change

#: As in `changes.py`, which cannot be imported here: it needs Spark.
FEWEST_DAYS: Final = 4

#: As many changes as a person reads.
MAX_CHANGES: Final = 12


def tiles(content: ReportContent) -> Markup:
    day, outcomes = content.day, content.day.outcomes
    stands_out = {change.measure: change for change in content.changes if change.scope is Scope.DAY}
    earlier = content.history[:-1]

    def kind(measure: Measure) -> str:
        change = stands_out.get(measure)
        return "" if change is None else _colour(change)

    def usually(measure: Measure) -> str:
        values = [value for one in earlier if (value := getattr(one, measure.value)) is not None]
        return f"usually {MEASURES[measure][1](median(values))}" if values else "nothing to compare with"

    arrived = outcomes.acked + outcomes.sent
    tiles = [
        tile("Deliveries", count(day.deliveries), usually(Measure.DELIVERIES), kind=kind(Measure.DELIVERIES)),
        tile(
            "Acked or sent",
            share(arrived / day.deliveries) if day.deliveries else UNKNOWN,
            f"{count(day.deliveries - arrived)} ended otherwise"
            if arrived < day.deliveries
            else "nothing ended otherwise",
        ),
        tile(
            "Redelivered",
            share(day.redelivery_rate),
            usually(Measure.REDELIVERY_RATE),
            kind=kind(Measure.REDELIVERY_RATE),
        ),
        tile("Dead letters", count(outcomes.dead), usually(Measure.DEAD), kind=kind(Measure.DEAD)),
        tile(
            "p99 time to ack",
            duration(day.time_to_ack.p99_s),
            f"{usually(Measure.P99_TO_ACK_S)}; half take {duration(day.time_to_ack.p50_s)}"
            if day.time_to_ack.deliveries
            else "nothing was acknowledged",
            kind=kind(Measure.P99_TO_ACK_S),
        ),
        tile(
            "Unsettled at the end",
            count(content.closing_lag),
            usually(Measure.CLOSING_LAG),
            kind=kind(Measure.CLOSING_LAG),
        ),
    ]
    return Markup('<div class="tiles">\n{}\n</div>').format(joined(tiles))


def changes(content: ReportContent) -> Markup:
    compared = len(content.head.previous_dates)
    if not compared:
        return panel(
            "Against the 7 days before", sentence("The lake has none of them, so there is nothing to compare with.")
        )
    counted = "the 1 day" if compared == 1 else f"the {compared} days"
    title = "Against the 7 days before" if compared == 7 else f"Against {counted} that the lake has of the 7 before"
    if not content.changes:
        is_enough = compared >= FEWEST_DAYS
        said = "Nothing stands out." if is_enough else f"Too few to compare with: that takes {FEWEST_DAYS} days."
        return panel(title, sentence(said))
    shown = content.changes[:MAX_CHANGES]
    # Changes of one topic or subscription stand together, at the place of the most unusual one.
    grouped: dict[tuple[Scope, str | None], list[Change]] = {}
    for change in shown:
        grouped.setdefault((change.scope, change.name), []).append(change)
    groups = [
        Markup('<li><div class="what">{}</div>\n{}</li>').format(_whose(*key), joined(map(_change, group)))
        for key, group in grouped.items()
    ]
    left_out = content.total_changes - len(shown)
    more = sentence(f"{count(left_out)} more stand out less.") if left_out else NOTHING
    return panel(title, Markup('<ul class="changes">\n{}\n</ul>').format(joined(groups)), more)


def _whose(scope: Scope, called: str | None) -> Markup:
    if called is None:
        return Markup("The whole day")
    return Markup('{} <span class="kind">{}</span>').format(name(called), scope.value)


def _change(change: Change) -> Markup:
    called, written = MEASURES[change.measure]
    if change.direction is Direction.NEW:
        what, compared = f"new, with {count(change.value)} deliveries", "no deliveries on the days before"
    else:
        arrow = "↑" if change.direction is Direction.HIGHER else "↓"
        times = f" ({factor(change.value / change.median)})" if change.median and change.value > change.median else ""
        what = f"{called} {arrow}\N{NO-BREAK SPACE}{written(change.value)}{times}"
        compared = f"usually {written(change.median)}"
        if change.lowest is not None and change.lowest != change.highest:
            compared += f", between {written(change.lowest)} and {written(change.highest)}"
    values = [*change.previous, change.value]
    described = f"{called}, the days before and this one: " + ", ".join(written(value) for value in values)
    return Markup('<div class="change"><div>{}<div class="muted small">{}</div></div>{}</div>').format(
        what, compared, spark_bars(values, last=_colour(change), described=described)
    )


def _colour(change: Change) -> str:
    return "bad" if change.is_worse else "accent"
