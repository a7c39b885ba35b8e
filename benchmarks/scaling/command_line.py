"""The command line: options in, a page, its plots and an exit code out.

Exit code 0 if everything could be measured; 1 if the broker is broken; 2 for wrong options. Progress goes to stderr.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.broken import Broken
from benchmarks.comparison.beginning import begun
from benchmarks.comparison.page_options import PageOptions, add_page_options, page_options
from benchmarks.comparison.progress import Progress
from benchmarks.comparison.results import OURS, Outcome, Unmeasured
from benchmarks.measuring.idle_connections import allow_open_files
from benchmarks.peers import PEERS
from benchmarks.rounds import STALL_S, run_round
from benchmarks.scaling import page, plots
from benchmarks.scaling.long_run import LongRun, measure
from benchmarks.scaling.page import LONG_RUN
from benchmarks.scaling.results import Growth, LongRunFound, from_json, to_json
from benchmarks.scaling.series import SERIES, Series, quickened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.scenarios import Scenario
    from benchmarks.target import OpenTarget

_PAGE: Final = Path("benchmarks/SCALING.md")
_MINUTES: Final = 2.0
_QUICK_MINUTES: Final = 0.2
#: Connections of the largest point, plus some.
_CONNECTIONS: Final = 300
_OURS: Final = next(peer for peer in PEERS if peer.name == OURS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    series: tuple[Series, ...]
    #: None if it was not chosen.
    long_run: LongRun | None
    page: PageOptions


def parse(arguments: Sequence[str]) -> Options:
    """Raises `SystemExit` with code 2, and prints why, if the arguments are wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scaling", description="Measure how stompbroker grows on this machine."
    )
    names = [*(series.name for series in SERIES), LONG_RUN]
    parser.add_argument(
        "--only",
        choices=names,
        metavar="NAME",
        nargs="+",
        action="extend",
        help=f"only these: {', '.join(names)}",
    )
    parser.add_argument(
        "--minutes",
        metavar="N",
        type=_positive,
        help=f"length of the long run (default {_MINUTES:g}, with --quick {_QUICK_MINUTES:g})",
    )
    add_page_options(parser, page=_PAGE)
    parsed = parser.parse_args(arguments)
    chosen = frozenset(parsed.only or names)
    series = tuple(one for one in SERIES if one.name in chosen)
    minutes = parsed.minutes or (_QUICK_MINUTES if parsed.quick else _MINUTES)
    return Options(
        series=tuple(map(quickened, series)) if parsed.quick else series,
        long_run=LongRun(minutes=minutes) if LONG_RUN in chosen else None,
        page=page_options(parsed),
    )


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} minutes are no length of a run")
    return number


def main(arguments: Sequence[str], *, open_target: OpenTarget = _OURS.open) -> int:
    options = parse(arguments)
    wanted = options.page
    wanted_from = wanted.from_file
    growth = measured(options, open_target) if wanted_from is None else from_json(wanted_from.read_text())
    if wanted.json_file is not None:
        wanted.json_file.write_text(to_json(growth))
    wanted.make_directories()
    pictures = plots.draw_all(growth, wanted.plots_directory)
    paths = dict(zip(pictures, wanted.as_seen_from_the_page(list(pictures.values())), strict=True))
    wanted.page_file.write_text(page.rendered(growth, paths))
    print(wanted.page_file)
    return 1 if _is_broken(growth) else 0


def _is_broken(growth: Growth) -> bool:
    found = [*(outcome.found for outcome in growth.series.outcomes), growth.long_run]
    return any(isinstance(each, Unmeasured) for each in found)


# Measuring ------------------------------------------------------------------------------------------------------------


def measured(options: Options, open_target: OpenTarget) -> Growth:
    allow_open_files(_CONNECTIONS)
    results = begun([_OURS], rounds=options.page.rounds, is_quick=options.page.is_quick)
    began_at = time.monotonic()
    outcomes = _run_rounds(options, open_target)
    long_run = None if options.long_run is None else _run_long(options.long_run, open_target)
    series = replace(results, took_s=time.monotonic() - began_at, outcomes=outcomes)
    return Growth(series=series, long_run=long_run)


def _run_rounds(options: Options, open_target: OpenTarget) -> tuple[Outcome, ...]:
    """A round is every point of every series once, each with its own broker."""
    scenarios = [point.scenario for series in options.series for point in series.points]
    numbers = range(1, options.page.rounds + 1)
    progress = Progress((OURS, scenario.name) for _ in numbers for scenario in scenarios)
    outcomes: list[Outcome] = []
    progress.begin(time.monotonic())
    for number in numbers:
        for scenario in scenarios:
            _say(f"{progress.described()}: round {number} of {options.page.rounds}, {scenario.title}")
            outcomes.append(_measure_point(scenario, number, open_target))
            progress.finish((OURS, scenario.name), time.monotonic())
    return tuple(outcomes)


def _measure_point(scenario: Scenario, number: int, open_target: OpenTarget) -> Outcome:
    found = run_round([scenario], number, open_target=open_target, announce=lambda _scenario, _number: None)
    if not found.breakages:
        return Outcome(contestant=OURS, scenario=scenario.name, round_number=number, found=found.measurements[0])
    text = found.breakages[0].text
    _say(f"BROKEN  {scenario.name}, round {number}: {text}")
    return Outcome(contestant=OURS, scenario=scenario.name, round_number=number, found=Unmeasured(text, is_broken=True))


def _run_long(run: LongRun, open_target: OpenTarget) -> LongRunFound | Unmeasured:
    said = ""

    def show(detail: str) -> None:
        nonlocal said
        if detail != said:
            said = detail
            _say(f"the long run: {detail}")

    try:
        with open_target("") as target:
            return LongRunFound(run=run, slices=measure(run, target, STALL_S, show))
    except Broken as broken:
        _say(f"BROKEN  {LONG_RUN}: {broken}")
        return Unmeasured(str(broken), is_broken=True)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
