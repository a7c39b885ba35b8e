"""Pictures of growth: which there are, what they show, and that the same results give the same file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.comparison.results import Unmeasured
from benchmarks.scaling import plots
from benchmarks.scaling.results import LongRunFound
from benchmarks.scaling.series import SERIES
from tests.benchmarks.scaling.made_growth import RUN, growth, slices

if TYPE_CHECKING:
    from pathlib import Path


def test_there_is_a_picture_for_what_there_are_figures_for(tmp_path: Path) -> None:
    found = LongRunFound(run=RUN, slices=slices(*[50.0] * 12))

    assert list(plots.draw_all(growth(found), tmp_path)) == ["subscribers", "bodies", "long-run"]
    broken = growth(Unmeasured("it died", is_broken=True))
    assert [path.name for path in plots.draw_all(broken, tmp_path).values()] == [
        "scaling-subscribers.svg",
        "scaling-bodies.svg",
    ]


def test_the_same_results_give_the_same_files(tmp_path: Path) -> None:
    (tmp_path / "again").mkdir()
    made = growth(LongRunFound(run=RUN, slices=slices(*[50.0] * 12)))

    first, second = plots.draw_all(made, tmp_path), plots.draw_all(made, tmp_path / "again")

    assert [path.read_bytes() for path in first.values()] == [path.read_bytes() for path in second.values()]


def test_where_bodies_grow_the_second_curve_is_of_bytes() -> None:
    bodies = next(series for series in SERIES if series.has_bytes)

    _, panel = plots.panels_of(bodies)

    assert panel.shown(3.0, bodies.points[-1]) == 3.0  # of a mebibyte each
