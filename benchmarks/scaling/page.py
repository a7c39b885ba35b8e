"""The scaling results as a Markdown page.

Computes only ratios to the first point of a series, and bytes from messages. What could not be measured has its reason
below the table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from benchmarks.comparison.page import QUICK, circumstances, quantity, shown, times
from benchmarks.comparison.results import OURS, Results, Unmeasured
from benchmarks.comparison.standings import standing_of, why_unmeasured
from benchmarks.measurement import FigureKey
from benchmarks.measuring.backlog import MEBIBYTE
from benchmarks.measuring.throughput import COST, DELIVERIES
from benchmarks.scaling.long_run import flatness
from benchmarks.scaling.series import SERIES
from benchmarks.summary import LimitedBy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.comparison.standings import Standing
    from benchmarks.scaling.results import Growth, LongRunFound
    from benchmarks.scaling.series import Point, Series

LONG_RUN: Final = "long-run"
_MINUTE_S: Final = 60
#: With growing bodies a ratio of messages means nothing.
_BYTES: Final = "bodies delivered"

_HEAD: Final = """\
# How it grows

Written by `make bench-scaling`; [README.md](README.md) says how. In each series one number changes and all others stay:
one publisher that never waits, bodies of 256 bytes, `ack:auto`, one subscriber.
"""

_LEGEND: Final = """\
**median** (lowest – highest) over the rounds. *against the first* is of the medians. *broker per delivery* is processor
time of the broker, which suffers least from whatever else the machine does. Where the **limit** is `GENERATOR` the load
generator could not have gone faster, and the deliveries are a lower bound.
"""

_LONG_RUN: Final = """\
Durable 1 → 1 at {rate:,} messages a second, a receipt for every SEND and an ACK for every MESSAGE, with ledger and
statistics: {total:,} messages in {minutes:g} minutes. Cost is processor time of the broker per message. In the last
quarter of the run it is **{flatness:.2f} ×** that of the second quarter; 1 means that time changes nothing. The first
quarter is left out, because caches fill and files grow to their size in it.
"""


def rendered(growth: Growth, pictures: Mapping[str, str]) -> str:
    """`pictures` are paths relative to the page, by the name of a series or of the long run."""
    parts = [_HEAD]
    if growth.series.is_quick:
        parts.append(QUICK)
    parts += [circumstances(growth.series), _LEGEND]
    for series in SERIES:
        if table := _table(series, growth.series):
            parts.append(f"## {series.title}\n")
            parts += [shown(pictures[series.name])] if series.name in pictures else []
            parts.append(table)
    if growth.long_run is not None:
        parts.append("## Over time\n")
        parts += [shown(pictures[LONG_RUN])] if LONG_RUN in pictures else []
        match growth.long_run:
            case Unmeasured(reason):
                parts.append(f"**BROKEN**: {' '.join(reason.split())}\n")
            case found:
                parts.append(_slices(found))
    return "\n".join(parts).rstrip() + "\n"


# Series ---------------------------------------------------------------------------------------------------------------


def _table(series: Series, results: Results) -> str:
    """Empty if no point of it was tried."""
    standings = [(point, standing_of(OURS, FigureKey(point.name, DELIVERIES), results)) for point in series.points]
    found = [(point, standing) for point, standing in standings if standing is not None]
    first = found[0][1].spread.median if found else 1.0
    head = [series.axis, "deliveries", _BYTES if series.has_bytes else "against the first", "broker per delivery"]
    lines = [f"| {' | '.join([*head, 'limit'])} |", "|---:" * (len(head) + 1) + "|"] if found else []
    for point, standing in found:
        lines.append(f"| {' | '.join(_cells(series, point, standing, results, first=first))} |")
    reasons = [
        f"- {point.at:,} {series.axis}: **BROKEN**: {' '.join(why.reason.split())}"
        for point in series.points
        if (why := why_unmeasured(OURS, point.name, results)) is not None
    ]
    return "".join(f"{line}\n" for line in [*lines, *(["", *reasons] if reasons else [])])


def _cells(series: Series, point: Point, standing: Standing, results: Results, *, first: float) -> list[str]:
    spread, unit = standing.spread, standing.unit
    deliveries = f"**{quantity(spread.median, unit)}**"
    if spread.lowest != spread.highest:
        deliveries += f" ({quantity(spread.lowest, unit)} – {quantity(spread.highest, unit)})"
    cost = standing_of(OURS, FigureKey(point.name, COST), results)
    limit = standing.limited_by
    return [
        f"{point.at:,}",
        deliveries,
        f"{spread.median * point.at / MEBIBYTE:,.0f} MiB/s" if series.has_bytes else times(spread.median / first),
        "" if cost is None else quantity(cost.spread.median, cost.unit),
        f"**{limit.value}**" if limit is LimitedBy.GENERATOR else limit.value,
    ]


# The long run ---------------------------------------------------------------------------------------------------------


def _slices(found: LongRunFound) -> str:
    run = found.run
    lines = [
        _LONG_RUN.format(
            rate=run.messages_per_s,
            total=round(run.messages_per_s * run.minutes * _MINUTE_S),
            minutes=run.minutes,
            flatness=flatness(found.slices),
        ),
        "| until minute | cost of a message | p99 | memory |",
        "|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {one.ended_at_s / _MINUTE_S:.1f} | {one.cost_us:.1f} µs | {one.p99_ms:.2f} ms | {one.memory_mib:.0f} MiB |"
        for one in found.slices
    ]
    return "\n".join(lines) + "\n"
