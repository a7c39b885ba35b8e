"""The command line: options in, exit code out.

Exit code 0 if everything could be measured, however slow; 1 if something is broken; 2 for wrong options. Progress goes
to stderr, the report to stdout.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console

from benchmarks import json_report
from benchmarks.broker_process import running_broker
from benchmarks.measuring.idle_connections import allow_open_files
from benchmarks.report import TABLE_WIDTH, print_report
from benchmarks.rounds import Round, run_round
from benchmarks.scenarios import SCENARIOS, IdleConnections, Scenario, quickened, rounds_of
from benchmarks.summary import summarise

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.target import OpenTarget

_ROUNDS: Final = 5
_QUICK_ROUNDS: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    scenarios: tuple[Scenario, ...]
    rounds: int
    json_file: Path | None


def parse(arguments: Sequence[str]) -> Options:
    """Raises `SystemExit` with code 2, and prints why, if the arguments are wrong."""
    names = [scenario.name for scenario in SCENARIOS]
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure stompbroker on this machine.")
    parser.add_argument(
        "--scenario",
        metavar="NAME",
        nargs="+",
        action="extend",
        choices=names,
        help=f"measure only these: {', '.join(names)}",
    )
    parser.add_argument(
        "--rounds",
        metavar="N",
        type=_at_least_one,
        help=f"interleaved rounds (default {_ROUNDS}, with --quick {_QUICK_ROUNDS})",
    )
    parser.add_argument("--json", metavar="FILE", type=Path, help="write every value to FILE as well")
    parser.add_argument("--quick", action="store_true", help="less time and fewer connections; rough numbers")
    parsed = parser.parse_args(arguments)

    chosen = tuple(scenario for scenario in SCENARIOS if not parsed.scenario or scenario.name in parsed.scenario)
    return Options(
        scenarios=tuple(map(quickened, chosen)) if parsed.quick else chosen,
        rounds=parsed.rounds or (_QUICK_ROUNDS if parsed.quick else _ROUNDS),
        json_file=parsed.json,
    )


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} rounds are too few, 1 is the least")
    return number


def main(arguments: Sequence[str], *, open_target: OpenTarget = running_broker) -> int:
    options = parse(arguments)
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    allow_open_files(max((one.connections for one in options.scenarios if isinstance(one, IdleConnections)), default=0))
    rounds = _run_rounds(options, open_target)

    cores = os.cpu_count() or 1
    summaries = [summary for one in options.scenarios if (summary := summarise(one, rounds, cores=cores)) is not None]
    breakages = [breakage for one in rounds for breakage in one.breakages]
    is_terminal = sys.stdout.isatty()
    console = Console(width=None if is_terminal else TABLE_WIDTH)
    print_report(console, summaries, breakages, rounds=options.rounds)
    if options.json_file is not None:
        options.json_file.write_text(json_report.rendered(summaries, breakages, started_at=started_at))
    return 1 if breakages else 0


def _run_rounds(options: Options, open_target: OpenTarget) -> list[Round]:
    """Run all rounds. A line on stderr shows the progress; one per measurement if that is not a terminal."""
    progress = Console(stderr=True)
    total, begun = sum(rounds_of(scenario, options.rounds) for scenario in options.scenarios), 0
    line = ""
    with progress.status("starting") as status:

        def announce(scenario: Scenario, round_number: int) -> None:
            nonlocal begun, line
            begun += 1
            line = f"{begun} of {total}: round {round_number} of {options.rounds}, {scenario.title}"
            update(line)

        def show(detail: str) -> None:
            update(f"{line}: {detail}")

        def update(text: str) -> None:
            if progress.is_terminal:
                status.update(text)
            else:
                progress.print(text, soft_wrap=True)

        return [
            run_round(options.scenarios, round_number, open_target=open_target, announce=announce, show=show)
            for round_number in range(1, options.rounds + 1)
        ]
