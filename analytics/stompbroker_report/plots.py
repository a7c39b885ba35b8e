"""The plots of the report.

Pure functions from parts of the content to plots with legends; None if there is nothing to draw. Axes have a label and
a unit; the legend names every colour in drawing order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from stompbroker_report.drawing import inline_svg, new_axes, styled
from stompbroker_report.palette import DAY, LINES, OUTCOMES
from stompbroker_report.readable_numbers import compact, count, duration, share
from stompbroker_report.visible_text import shortened, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from matplotlib.axes import Axes

    from stompbroker_report.content import (
        AttemptsBucket,
        Backlog,
        BacklogPoint,
        HourFigures,
        SlowSubscription,
        TopicHours,
    )

#: Subscriptions with their own line, or their own percentiles: as many as can be told apart.
MAX_LINES: Final = 5
MAX_RANGES: Final = 8

#: Characters of a name inside a plot.
MAX_LABEL: Final = 44

_HOURS: Final = range(24)

#: The colour of a line that is the sum of others.
_SUM: Final = "ink"

#: Where a time axis may have a tick, in seconds.
_TIME_MARKS: Final = (
    *(1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 1.0, 10.0),
    *(60.0, 600.0, 3_600.0, 36_000.0, 86_400.0, 864_000.0, 8_640_000.0),
)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One line of a legend."""

    colour: str
    text: str


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A plot as an `<svg>` element, and its legend."""

    svg: str
    legend: tuple[Key, ...] = ()


@styled
def deliveries_by_outcome(hours: Sequence[HourFigures]) -> Plot | None:
    """Settled deliveries per hour, stacked by outcome."""
    layers = [
        (colour, outcome, [getattr(hour.outcomes, outcome) for hour in hours]) for outcome, colour in OUTCOMES.items()
    ]
    return _stacked(layers, name="outcomes", described="Deliveries per hour, by outcome")


@styled
def deliveries_by_topic(topics: Sequence[TopicHours]) -> Plot | None:
    """The same, stacked by topic; all topics after the first few are one layer."""
    named = [one for one in topics if one.topic is not None][:MAX_LINES]
    rest = [one for one in topics if one not in named]
    layers = [
        (colour, _label(one.topic or ""), list(one.deliveries)) for colour, one in zip(LINES, named, strict=False)
    ]
    if rest:
        layers.append(
            (LINES[-1], "all other topics", [sum(hour) for hour in zip(*(o.deliveries for o in rest), strict=True)])
        )
    return _stacked(layers, name="topics", described="Deliveries per hour, by topic")


@styled
def attempts(distribution: Sequence[AttemptsBucket]) -> Plot | None:
    """How often deliveries were sent. Most are sent once, so the axis is logarithmic."""
    total = sum(bucket.deliveries for bucket in distribution)
    if not total:
        return None
    axes = new_axes()
    heights = [bucket.deliveries for bucket in distribution]
    places = range(len(heights))
    axes.bar(places, heights, width=0.72, color=DAY["blue"])
    for place, height in zip(places, heights, strict=True):
        if height:
            axes.annotate(
                share(height / total),
                (place, height),
                xytext=(0, 3),
                textcoords="offset points",
                ha="center",
                fontsize=9.5,
                color=DAY["ink"],
            )
    axes.set_yscale("log")
    axes.set_ylim(0.7, max(heights) * 4)
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: compact(value)))
    axes.set_ylabel("deliveries (logarithmic)")
    axes.set_xticks(list(places), [_times(bucket) for bucket in distribution])
    axes.set_xlabel("times sent")
    return Plot(svg=inline_svg(axes, name="attempts", described="Deliveries by how often they were sent"))


@styled
def time_to_ack(slowest: Sequence[SlowSubscription]) -> Plot | None:
    """Median to 99th percentile of the slowest subscriptions, on a logarithmic axis."""
    shown = [
        (one.subscription, [one.time_to_ack.p50_s, one.time_to_ack.p95_s, one.time_to_ack.p99_s]) for one in slowest
    ]
    ranges = [(name, [time for time in times if time is not None]) for name, times in shown if None not in times]
    ranges = ranges[:MAX_RANGES]
    positive = [time for _, times in ranges for time in times if time > 0]
    if not positive:
        return None
    # This axis has no 0; a time of 0 is drawn at its left end.
    lowest = min(positive) / 2
    axes = new_axes(height=0.8 + 0.5 * len(ranges))
    for place, (name, times) in enumerate(ranges):
        p50, p95, p99 = (max(time, lowest) for time in times)
        axes.plot([p50, p99], [place, place], color=DAY["slate"], linewidth=2.5, solid_capstyle="round", zorder=2)
        for time, colour in ((p50, "green"), (p95, "amber"), (p99, "red")):
            axes.plot([time], [place], "o", markersize=8, color=DAY[colour], markeredgecolor=DAY["surface"], zorder=3)
        axes.annotate(
            _label(name),
            (0, place),
            xycoords=("axes fraction", "data"),
            xytext=(1, 8),
            textcoords="offset points",
            fontsize=10,
            color=DAY["ink"],
        )
    axes.set_ylim(len(ranges) - 0.6, -0.8)
    axes.set_yticks([])
    _time_axis(axes, lowest, max(positive))
    axes.set_xlabel("time to ack (logarithmic)")
    legend = tuple(
        Key(colour=colour, text=text)
        for colour, text in (
            ("green", "half are quicker (p50)"),
            ("amber", "95 % are (p95)"),
            ("red", "99 % are (p99)"),
        )
    )
    svg = inline_svg(axes, name="time-to-ack", described="Time to ack of the slowest subscriptions: p50, p95, p99")
    return Plot(svg=svg, legend=legend)


@styled
def backlog_over_the_day(backlog: Backlog) -> Plot | None:
    """Unsettled messages by hour, for the subscriptions that were furthest behind."""
    drawn = [one for one in backlog.series[:MAX_LINES] if one.points]
    lines = [(colour, _label(one.subscription), one.points) for colour, one in zip(LINES, drawn, strict=False)]
    if len(backlog.series) > 1 and backlog.points:
        lines.append((_SUM, "all together", backlog.points))
    if not lines:
        return None
    axes = new_axes()
    legend = []
    highest = 0
    for colour, name, points in lines:
        is_sum = colour == _SUM
        hours, lags = _with_gaps(points)
        axes.plot(
            hours,
            lags,
            color=DAY[colour],
            linewidth=1.2 if is_sum else 2,
            linestyle=(0, (3, 2)) if is_sum else "solid",
            marker="o",
            markersize=2.5 if is_sum else 3.5,
            clip_on=False,
        )
        peak = max(point.lag_messages for point in points)
        highest = max(highest, peak)
        legend.append(Key(colour=colour, text=f"{name} (peak {count(peak)}, last {count(points[-1].lag_messages)})"))
    # Without any backlog: a flat line at 0, not an axis with fractions of a message.
    axes.set_ylim(0, max(highest * 1.06, 4))
    axes.set_ylabel("unsettled messages")
    _count_axis(axes)
    _hour_axis(axes)
    return Plot(
        svg=inline_svg(axes, name="backlog", described="Unsettled messages of durable subscriptions over the day"),
        legend=tuple(legend),
    )


def _stacked(layers: Iterable[tuple[str, str, list[int]]], *, name: str, described: str) -> Plot | None:
    present = [(colour, text, values) for colour, text, values in layers if sum(values)]
    if not present:
        return None
    axes = new_axes()
    floor = [0] * len(_HOURS)
    for colour, _, values in present:
        axes.bar(_HOURS, values, width=0.86, bottom=floor, align="edge", color=DAY[colour])
        floor = [below + value for below, value in zip(floor, values, strict=True)]
    axes.set_ylabel("deliveries per hour")
    _count_axis(axes)
    _hour_axis(axes)
    legend = tuple(Key(colour=colour, text=f"{text} ({count(sum(values))})") for colour, text, values in present)
    return Plot(svg=inline_svg(axes, name=name, described=described), legend=legend)


def _hour_axis(axes: Axes) -> None:
    axes.set_xlim(-0.2, 24.2)
    axes.set_xticks(range(0, 25, 3))
    axes.set_xlabel("hour of the day (UTC)")


def _count_axis(axes: Axes) -> None:
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: compact(value)))


def _time_axis(axes: Axes, lowest: float, highest: float) -> None:
    axes.set_xscale("log")
    # At least one tick on each side of the values, so that a reader has two to compare.
    below = max((mark for mark in _TIME_MARKS if mark <= lowest), default=lowest)
    above = min((mark for mark in _TIME_MARKS if mark >= highest), default=highest)
    axes.set_xlim(below * 0.9, above * 1.1)
    axes.xaxis.set_major_locator(FixedLocator([mark for mark in _TIME_MARKS if below <= mark <= above]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(value)))
    axes.grid(visible=True, axis="x")


def _with_gaps(points: Sequence[BacklogPoint]) -> tuple[list[float], list[float]]:
    """Hours and values; a missing hour breaks the line."""
    hours: list[float] = []
    lags: list[float] = []
    for point in points:
        if hours and point.hour_utc > hours[-1] + 1:
            hours.append(math.nan)
            lags.append(math.nan)
        hours.append(point.hour_utc)
        lags.append(point.lag_messages)
    return hours, lags


def _times(bucket: AttemptsBucket) -> str:
    if bucket.attempts_to is None:
        return f"{bucket.attempts_from}+"
    if bucket.attempts_from == bucket.attempts_to:
        return "never" if bucket.attempts_to == 0 else str(bucket.attempts_to)
    return f"{bucket.attempts_from}–{bucket.attempts_to}"


def _label(name: str) -> str:
    return shortened(visible(name), MAX_LABEL)
