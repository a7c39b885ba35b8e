"""The results as plots.

One file per plot, one panel per figure, one bar or line per broker, always in the same order, with ours always in the
same colour. A bar is a median; the thin line on it is the range of the rounds. Files hold no date, so that the same
results give the same file.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from matplotlib import rc_context
from matplotlib.figure import Figure as Picture
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import NullFormatter

from benchmarks.comparison.page import quantity
from benchmarks.comparison.results import OURS, Results
from benchmarks.comparison.sittings import Group, compared_in
from benchmarks.comparison.standings import standing_of
from benchmarks.measurement import FigureKey

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.measurement import Unit
    from benchmarks.percentiles import Spread

#: Legible on a page in either colour scheme: the background is white, not transparent.
STYLE: Final[Any] = {
    "svg.hashsalt": "stompbroker",
    "figure.facecolor": "white",
    "axes.facecolor": "white",
    "axes.edgecolor": "#888888",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "font.size": 9,
    "text.color": "#222222",
    "axes.labelcolor": "#222222",
    "xtick.color": "#444444",
    "ytick.color": "#222222",
}
OUR_COLOUR: Final = "#d9480f"
THEIR_COLOUR: Final = "#8fa3b8"
_COLUMNS: Final = 2
_WIDTH: Final = 9.0
_PANEL_HEIGHT: Final = 0.7
_BAR_HEIGHT: Final = 0.24
#: Space above and below each row of panels, so that a title clearly belongs to the panel below it.
_ROW_GAP: Final = 0.09
#: Length of the axis, in longest bars.
_ROOM_FOR_LABELS: Final = 1.3
_PERCENTILES: Final = ("p50", "p99", "p99.9")


@dataclass(frozen=True, slots=True)
class Bar:
    broker: str
    spread: Spread
    is_ours: bool


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    unit: Unit
    bars: tuple[Bar, ...]


#: The figures of each plot.
_PICTURES: Final = {
    "topics": [
        (f"topic {compared.title}, deliveries", FigureKey(compared.name, "deliveries"))
        for compared in compared_in(Group.TOPICS)
    ],
    "durable": [
        ("durable 1 → 1, deliveries", FigureKey("durable-1-to-1", "deliveries")),
        ("durable 1 → 10, deliveries", FigureKey("durable-1-to-10", "deliveries")),
        ("queue 1 → 1, deliveries", FigureKey("queue-1-to-1", "deliveries")),
        ("queue 1 → 8 consumers, deliveries", FigureKey("queue-1-to-8", "deliveries")),
        *(
            (f"ten publishers, {compared.title}", FigureKey(compared.name, "deliveries"))
            for compared in compared_in(Group.WINDOWS)
        ),
        ("every tenth refused once, deliveries", FigureKey("nack-storm", "deliveries")),
        ("backlog, fill", FigureKey("backlog", "fill")),
        ("backlog, drain", FigureKey("backlog", "drain")),
    ],
    "footprint": [
        ("memory per idle connection (less is better)", FigureKey("idle-connections", "memory per connection")),
        ("connections made per second", FigureKey("idle-connections", "connects")),
        ("memory after a million messages (less is better)", FigureKey("million", "memory after")),
        ("start (less is better)", FigureKey("start-up", "start")),
    ],
}


def draw_all(results: Results, directory: Path) -> list[Path]:
    """Draw every plot that has data."""
    drawn: list[Path] = []
    for name, keys in _PICTURES.items():
        panels = [panel for title, key in keys if (panel := panel_of(title, key, results)) is not None]
        if panels:
            drawn.append(save(_bars(panels), directory / f"peers-{name}.svg"))
    if latencies := _latencies(results):
        drawn.append(save(latencies, directory / "peers-latency.svg"))
    return drawn


def panel_of(title: str, key: FigureKey, results: Results) -> Panel | None:
    """None if no broker has this figure."""
    standings = [(each, standing_of(each.name, key, results)) for each in results.contestants]
    found = [(each, standing) for each, standing in standings if standing is not None]
    if not found:
        return None
    bars = tuple(Bar(each.title, standing.spread, each.name == OURS) for each, standing in found)
    return Panel(title, found[0][1].unit, bars)


def _bars(panels: Sequence[Panel]) -> Picture:
    with rc_context(STYLE):
        rows = math.ceil(len(panels) / _COLUMNS)
        most_bars = max(len(panel.bars) for panel in panels)
        height = rows * (_PANEL_HEIGHT + _BAR_HEIGHT * most_bars)
        picture = Picture(figsize=(_WIDTH, height), layout=ConstrainedLayoutEngine(h_pad=_ROW_GAP))
        axes = list(picture.subplots(rows, _COLUMNS, squeeze=False).flat)
        for axis, panel in zip(axes, panels, strict=False):
            _draw_bars(axis, panel)
            axis.set_ylim(most_bars - 0.5, -0.5)  # the first on top, and all bars equally thick
        for unused in axes[len(panels) :]:
            unused.set_visible(False)
        return picture


def _draw_bars(axis: Any, panel: Panel) -> None:
    bars = panel.bars
    errors = (
        [bar.spread.median - bar.spread.lowest for bar in bars],
        [bar.spread.highest - bar.spread.median for bar in bars],
    )
    axis.barh(
        [bar.broker for bar in bars],
        [bar.spread.median for bar in bars],
        xerr=errors,
        color=[OUR_COLOUR if bar.is_ours else THEIR_COLOUR for bar in bars],
        error_kw={"ecolor": "#333333", "elinewidth": 0.8},
    )
    axis.set_title(panel.title)
    axis.set_xlim(0, _ROOM_FOR_LABELS * max(bar.spread.highest for bar in bars))
    for number, bar in enumerate(bars):
        _label(axis, quantity(bar.spread.median, panel.unit), bar.spread.highest, number)
    axis.xaxis.set_visible(False)
    axis.spines["bottom"].set_visible(False)
    axis.tick_params(axis="y", length=0)


def _label(axis: Any, text: str, right_of: float, height: int) -> None:
    axis.annotate(text, (right_of, height), xytext=(6, 0), textcoords="offset points", va="center", fontsize=8)


def _latencies(results: Results) -> Picture | None:
    """p50, p99 and p99.9, one line per broker."""
    scenarios = [
        compared
        for compared in compared_in(Group.LATENCY)
        if any(standing_of(each.name, FigureKey(compared.name, "p50"), results) for each in results.contestants)
    ]
    if not scenarios:
        return None
    with rc_context(STYLE):
        rows = math.ceil(len(scenarios) / _COLUMNS)
        picture = Picture(figsize=(_WIDTH, 2.4 * rows), layout="constrained")
        picture.suptitle("Latency from when a message was due: p50, p99 and p99.9 (less is better)", fontsize=11)
        axes = list(picture.subplots(rows, _COLUMNS, squeeze=False, sharex=True).flat)
        axes[0].margins(x=_ROOM_FOR_LABELS / 4)
        for axis, compared in zip(axes, scenarios, strict=False):
            _draw_latencies(axis, compared.name, results)
            axis.set_title(compared.title)
        for unused in axes[len(scenarios) :]:
            unused.set_visible(False)
        return picture


def _draw_latencies(axis: Any, scenario: str, results: Results) -> None:
    shown: list[str] = []
    for contestant in results.contestants:
        standings = [standing_of(contestant.name, FigureKey(scenario, name), results) for name in _PERCENTILES]
        medians = [standing.spread.median for standing in standings if standing is not None]
        if not medians:
            continue
        height = len(shown)
        shown.append(contestant.title)
        colour = OUR_COLOUR if contestant.name == OURS else THEIR_COLOUR
        axis.plot(medians, [height] * len(medians), color=colour, linewidth=2, zorder=1)
        axis.scatter(medians, [height] * len(medians), color=colour, s=[46, 30, 16][: len(medians)], zorder=2)
        _label(axis, " · ".join(map(_milliseconds, medians)), max(medians), height)
    axis.set_xscale("log")
    axis.xaxis.set_major_formatter(lambda value, _position: f"{value:g}")
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.tick_params(axis="x", labelbottom=True)
    axis.set_xlabel("ms")
    axis.set_yticks(range(len(shown)), shown)
    axis.set_ylim(len(shown) - 0.5, -0.5)
    axis.grid(axis="x", color="#dddddd", linewidth=0.6)
    axis.tick_params(axis="y", length=0)


def _milliseconds(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def save(picture: Picture, path: Path) -> Path:
    """Without the date, so that the same plot gives the same file."""
    with rc_context(STYLE):
        picture.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
    return path
