"""The results for people: one table, and what is broken.

Computes nothing. One row per scenario, with one line per figure and one line per process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.table import Table
from rich.text import Text

from benchmarks.measurement import Unit
from benchmarks.summary import FigureSummary, LimitedBy, ScenarioSummary

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console

    from benchmarks.rounds import Breakage

#: Width of the table in a file or pipe; a narrower terminal folds cells.
TABLE_WIDTH: Final = 120

_WHOLE: Final = frozenset({Unit.PER_SECOND, Unit.MESSAGES, Unit.ROWS})


def print_report(
    console: Console, summaries: Sequence[ScenarioSummary], breakages: Sequence[Breakage], *, rounds: int
) -> None:
    if summaries:
        title = f"Medians of {rounds} interleaved rounds" if rounds > 1 else "One round: rough numbers"
        console.print(_table(summaries, title))
    for breakage in breakages:
        console.print(
            Text(f"BROKEN  {breakage.scenario}, round {breakage.round_number}: {breakage.text}", style="bold red")
        )


def _table(summaries: Sequence[ScenarioSummary], title: str) -> Table:
    table = Table(
        title=title,
        title_justify="left",
        caption="Processor: 100 % is one core. GENERATOR: the figure is a lower bound. benchmarks/README.md explains.",
        caption_justify="left",
        show_lines=True,
    )
    table.add_column("scenario and figures")
    table.add_column("median", justify="right")
    table.add_column("lowest – highest", justify="right")
    table.add_column("ratio")
    table.add_column("processor")
    for summary in summaries:
        figures = summary.figures
        names = Text("\n").join(
            [Text(summary.scenario.title, style="bold"), *(Text(f"  {figure.name}") for figure in figures)]
        )
        table.add_row(
            names,
            _lines(f"{amount(figure.spread.median, figure.unit)} {figure.unit.value}" for figure in figures),
            _lines(map(_range, figures)),
            _lines(map(_ratio, figures)),
            _processors(summary),
        )
    return table


def _lines(cells: Iterable[str]) -> str:
    """One line each, after an empty one beside the title."""
    return "\n".join(["", *cells])


def _range(figure: FigureSummary) -> str:
    lowest, highest = figure.spread.lowest, figure.spread.highest
    return "" if lowest == highest else f"{amount(lowest, figure.unit)} – {amount(highest, figure.unit)}"


def _ratio(figure: FigureSummary) -> str:
    return "" if figure.ratio is None else f"{figure.ratio.value:.2f} × {figure.ratio.reference}"


def _processors(summary: ScenarioSummary) -> Text:
    is_generator_bound = summary.limited_by is LimitedBy.GENERATOR
    shares = [Text(f"{share.name} {share.share * 100:.0f} %") for share in summary.shares]
    limit = Text(f"limit: {summary.limited_by.value}", style="bold yellow" if is_generator_bound else "")
    return Text("\n").join([*shares, limit])


def amount(value: float, unit: Unit) -> str:
    """Three significant digits for small amounts, whole numbers for large ones and for counts."""
    if unit in _WHOLE or value >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"
