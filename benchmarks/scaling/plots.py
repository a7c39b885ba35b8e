"""The scaling results as plots.

One file per series and one for the long run, in the style of the comparison: a line over a logarithmic axis, with the
range of the rounds as a band, or over time. The same results give the same file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from matplotlib import rc_context
from matplotlib.figure import Figure as Picture
from matplotlib.ticker import NullFormatter, NullLocator

from benchmarks.comparison.plots import OUR_COLOUR, STYLE, save
from benchmarks.comparison.results import OURS, Results
from benchmarks.comparison.standings import standing_of
from benchmarks.measurement import FigureKey
from benchmarks.measuring.backlog import MEBIBYTE
from benchmarks.measuring.throughput import COST, DELIVERIES
from benchmarks.scaling.page import LONG_RUN
from benchmarks.scaling.results import LongRunFound
from benchmarks.scaling.series import SERIES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from benchmarks.percentiles import Spread
    from benchmarks.scaling.results import Growth
    from benchmarks.scaling.series import Point, Series

_SIZE: Final = (9.0, 2.9)
_LONG_RUN_SIZE: Final = (9.0, 2.6)
_GRID: Final = {"color": "#dddddd", "linewidth": 0.6}
_MINUTE_S: Final = 60
_KIBIBYTE: Final = 1024
#: Room above a curve that starts at zero.
_HEADROOM: Final = 1.15


@dataclass(frozen=True, slots=True)
class Panel:
    """One curve of a series."""

    title: str
    figure: str
    #: The shown value at a point.
    shown: Callable[[float, Point], float]
    #: For values over several orders of magnitude.
    is_logarithmic: bool = False


def _as_it_is(value: float, _point: Point) -> float:
    return value


def _mebibytes(per_s: float, point: Point) -> float:
    return per_s * point.at / MEBIBYTE


_DELIVERIES: Final = Panel("deliveries per second", DELIVERIES, _as_it_is)
_COST: Final = Panel("broker per delivery, µs of processor time", COST, _as_it_is)


def panels_of(series: Series) -> tuple[Panel, ...]:
    """With growing bodies bytes matter, and the rate falls by powers of ten."""
    if not series.has_bytes:
        return (_DELIVERIES, _COST)
    return (
        Panel("deliveries per second", DELIVERIES, _as_it_is, is_logarithmic=True),
        Panel("bodies delivered, MiB per second", DELIVERIES, _mebibytes),
    )


def draw_all(growth: Growth, directory: Path) -> dict[str, Path]:
    """Draw every plot that has data; by the name of its series or of the long run."""
    drawn: dict[str, Path] = {}
    for series in SERIES:
        if spreads_of(series, DELIVERIES, growth.series):
            drawn[series.name] = save(_lines(series, growth.series), directory / f"scaling-{series.name}.svg")
    if isinstance(growth.long_run, LongRunFound):
        drawn[LONG_RUN] = save(_over_time(growth.long_run), directory / f"scaling-{LONG_RUN}.svg")
    return drawn


def spreads_of(series: Series, figure: str, results: Results) -> list[tuple[Point, Spread]]:
    """The points that have the figure."""
    standings = [(point, standing_of(OURS, FigureKey(point.name, figure), results)) for point in series.points]
    return [(point, standing.spread) for point, standing in standings if standing is not None]


def _lines(series: Series, results: Results) -> Picture:
    panels = panels_of(series)
    with rc_context(STYLE):
        picture = Picture(figsize=_SIZE, layout="constrained")
        for axis, panel in zip(picture.subplots(1, len(panels)), panels, strict=True):
            found = spreads_of(series, panel.figure, results)
            positions = [point.at for point, _ in found]
            lowest, median, highest = (
                [panel.shown(getattr(spread, name), point) for point, spread in found]
                for name in ("lowest", "median", "highest")
            )
            axis.fill_between(positions, lowest, highest, color=OUR_COLOUR, alpha=0.2, linewidth=0)
            axis.plot(positions, median, color=OUR_COLOUR, marker="o", markersize=4, linewidth=1.6)
            axis.set_title(panel.title)
            axis.set_xlabel(series.axis)
            axis.set_xscale("log")
            axis.set_xticks(positions, [_position(at, is_bytes=series.has_bytes) for at in positions])
            axis.xaxis.set_minor_locator(NullLocator())
            if panel.is_logarithmic:
                axis.set_yscale("log")
                axis.yaxis.set_minor_formatter(NullFormatter())
            else:
                axis.set_ylim(0, _HEADROOM * max(highest))
            axis.yaxis.set_major_formatter(_shortened)
            axis.grid(**_GRID)
        return picture


def _over_time(found: LongRunFound) -> Picture:
    minutes = [each.ended_at_s / _MINUTE_S for each in found.slices]
    curves: Sequence[tuple[str, list[float]]] = (
        ("cost of a message, µs", [each.cost_us for each in found.slices]),
        ("p99 of latency, ms", [each.p99_ms for each in found.slices]),
        ("memory of the broker, MiB", [each.memory_mib for each in found.slices]),
    )
    with rc_context(STYLE):
        picture = Picture(figsize=_LONG_RUN_SIZE, layout="constrained")
        axes: Any = picture.subplots(1, len(curves))
        for axis, (title, values) in zip(axes, curves, strict=True):
            axis.plot(minutes, values, color=OUR_COLOUR, marker="o", markersize=3, linewidth=1.4)
            axis.set_title(title)
            axis.set_xlabel("minutes")
            axis.set_xlim(0, 1.03 * max(minutes))  # show the whole last marker
            axis.set_ylim(0, _HEADROOM * max(values))
            axis.grid(**_GRID)
        return picture


def _position(at: int, *, is_bytes: bool) -> str:
    if not is_bytes or at < _KIBIBYTE:
        return f"{at:,}"
    return f"{at // _KIBIBYTE} Ki" if at < MEBIBYTE else f"{at // MEBIBYTE} Mi"


def _shortened(value: float, _position: int) -> str:
    return f"{value / 1e6:g} M" if value >= 1e6 else f"{value / 1e3:g} k" if value >= 1e3 else f"{value:g}"
