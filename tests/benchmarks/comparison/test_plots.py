"""Pictures: which there are, and that the same results give the same file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.comparison import plots
from benchmarks.measurement import FigureKey, Unit
from tests.benchmarks.comparison.made_results import measured, outcome, results_of

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.comparison.results import Results


def some_results() -> Results:
    return results_of(
        outcome("stompbroker", 1, measured("topic-1-to-1", 480_000)),
        outcome("rabbitmq", 1, measured("topic-1-to-1", 2_000)),
        outcome("rabbitmq", 1, measured("latency", 0.5, figure="p50", unit=Unit.MILLISECONDS)),
    )


def test_there_is_a_picture_for_what_there_are_figures_for(tmp_path: Path) -> None:
    drawn = plots.draw_all(some_results(), tmp_path)

    assert [path.name for path in drawn] == ["peers-topics.svg", "peers-latency.svg"]
    assert plots.draw_all(results_of(), tmp_path) == []


def test_the_same_results_give_the_same_files(tmp_path: Path) -> None:
    (tmp_path / "again").mkdir()

    first, second = plots.draw_all(some_results(), tmp_path), plots.draw_all(some_results(), tmp_path / "again")

    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_a_panel_has_a_bar_for_each_broker_that_has_the_figure() -> None:
    panel = plots.panel_of("topic", FigureKey("topic-1-to-1", "deliveries"), some_results())

    assert panel is not None
    assert [(bar.broker, bar.is_ours) for bar in panel.bars] == [("stompbroker", True), ("RabbitMQ", False)]
