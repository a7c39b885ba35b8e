"""The command line: options in, a page, its plots and an exit code out.

Law: 0 if everything could be measured, however slow, and whichever goals are missed; 1 if our own broker is broken; 2
for a mistake in the options. Progress goes to standard error. A peer that is missing, or breaks, is said and shown.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.comparison import page, plots
from benchmarks.comparison.machine import this_commit, this_machine
from benchmarks.comparison.progress import Progress
from benchmarks.comparison.results import OURS, Contestant, Outcome, Results, Unmeasured, from_json, to_json
from benchmarks.comparison.running import ComparedRound
from benchmarks.comparison.sittings import ALL_COMPARED, Sitting, chosen
from benchmarks.measuring.idle_connections import allow_open_files
from benchmarks.peers import PEERS
from benchmarks.peers.peer import Installed, Missing
from benchmarks.scenarios import IdleConnections

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.comparison.sittings import Compared
    from benchmarks.peers.peer import Peer

_ROUNDS: Final = 3
_QUICK_ROUNDS: Final = 1
_PAGE: Final = Path("benchmarks/RESULTS.md")
_PLOTS: Final = Path("docs/plots")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    sittings: tuple[Sitting, ...]
    peers: tuple[Peer, ...]
    rounds: int
    is_quick: bool
    json_file: Path | None
    from_file: Path | None
    page_file: Path
    plots_directory: Path


def parse(arguments: Sequence[str]) -> Options:
    """Raises `SystemExit` with code 2, and prints why, when the arguments make no sense."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.comparison", description="Measure stompbroker beside its peers on this machine."
    )
    scenarios, peers = [compared.name for compared in ALL_COMPARED], [peer.name for peer in PEERS]
    several: dict[str, Any] = {"metavar": "NAME", "nargs": "+", "action": "extend"}
    parser.add_argument("--scenario", choices=scenarios, help=f"only these: {', '.join(scenarios)}", **several)
    parser.add_argument("--peer", choices=peers, help=f"only these: {', '.join(peers)}", **several)
    parser.add_argument(
        "--rounds",
        metavar="N",
        type=_at_least_one,
        help=f"interleaved rounds (default {_ROUNDS}, with --quick {_QUICK_ROUNDS})",
    )
    parser.add_argument("--quick", action="store_true", help="less time and fewer connections; no measure of anything")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write every value to FILE as well")
    parser.add_argument(
        "--from", dest="from_file", metavar="FILE", type=Path, help="measure nothing, show what --json has written"
    )
    parser.add_argument("--out", metavar="FILE", type=Path, default=_PAGE, help=f"the page (default {_PAGE})")
    parser.add_argument(
        "--plots", metavar="DIRECTORY", type=Path, default=_PLOTS, help=f"its pictures (default {_PLOTS})"
    )
    parsed = parser.parse_args(arguments)
    return Options(
        sittings=chosen(frozenset(parsed.scenario or ()), is_quick=parsed.quick),
        peers=tuple(peer for peer in PEERS if not parsed.peer or peer.name in parsed.peer),
        rounds=parsed.rounds or (_QUICK_ROUNDS if parsed.quick else _ROUNDS),
        is_quick=parsed.quick,
        json_file=parsed.json,
        from_file=parsed.from_file,
        page_file=parsed.out,
        plots_directory=parsed.plots,
    )


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} rounds are too few, 1 is the least")
    return number


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    results = _measured(options) if options.from_file is None else from_json(options.from_file.read_text())
    if options.json_file is not None:
        options.json_file.write_text(to_json(results))
    _write(results, options)
    broken = [outcome for outcome in results.outcomes if _is_ours_broken(outcome)]
    for outcome in broken:
        assert isinstance(outcome.found, Unmeasured)
        print(f"BROKEN  {outcome.scenario}, round {outcome.round_number}: {outcome.found.reason}", file=sys.stderr)
    return 1 if broken else 0


def _is_ours_broken(outcome: Outcome) -> bool:
    return outcome.contestant == OURS and isinstance(outcome.found, Unmeasured) and outcome.found.is_broken


def _write(results: Results, options: Options) -> None:
    options.page_file.parent.mkdir(parents=True, exist_ok=True)
    options.plots_directory.mkdir(parents=True, exist_ok=True)
    pictures = plots.draw_all(results, options.plots_directory)
    options.page_file.write_text(page.rendered(results, [_relative(each, options.page_file) for each in pictures]))
    print(options.page_file)


def _relative(picture: Path, page_file: Path) -> str:
    return os.path.relpath(picture, page_file.parent)


# Measuring ------------------------------------------------------------------------------------------------------------


def _measured(options: Options) -> Results:
    contestants = tuple(map(_contestant, options.peers))
    present = [peer for peer, contestant in zip(options.peers, contestants, strict=True) if contestant.version]
    for contestant in contestants:
        if contestant.missing:
            _say(f"{contestant.title} is missing: {contestant.missing}")
    _allow_open_files(options.sittings)
    results = Results(
        started_at=datetime.now(UTC).isoformat(sep=" ", timespec="minutes"),
        took_s=0.0,
        commit=this_commit(),
        rounds=options.rounds,
        is_quick=options.is_quick,
        machine=this_machine(),
        contestants=contestants,
        outcomes=(),
    )
    began_at = time.monotonic()
    outcomes = _run_rounds(options, present)
    return replace(results, took_s=time.monotonic() - began_at, outcomes=outcomes)


def _contestant(peer: Peer) -> Contestant:
    match peer.installed():
        case Installed(version):
            return Contestant(name=peer.name, title=peer.title, version=version, configuration=peer.configuration)
        case Missing(how_to_install):
            return Contestant(name=peer.name, title=peer.title, version="", missing=how_to_install)


def _run_rounds(options: Options, peers: Sequence[Peer]) -> tuple[Outcome, ...]:
    numbers = range(1, options.rounds + 1)
    progress = Progress(
        (peer.name, compared.name)
        for number in numbers
        for sitting in options.sittings
        for peer in peers
        for compared in sitting.compared
        if compared.is_in_round(number)
    )
    outcomes: list[Outcome] = []

    def announce(peer: Peer, compared: Compared, round_number: int) -> None:
        _say(f"{progress.described()}: round {round_number} of {options.rounds}, {peer.title}, {compared.name}")

    def note(outcome: Outcome) -> None:
        outcomes.append(outcome)
        progress.finish((outcome.contestant, outcome.scenario), time.monotonic())
        if isinstance(outcome.found, Unmeasured) and outcome.found.is_broken:
            _say(f"BROKEN  {outcome.contestant}, {outcome.scenario}: {outcome.found.reason}")

    progress.begin(time.monotonic())
    for number in numbers:
        ComparedRound(number, announce=announce, note=note).run(options.sittings, peers)
    return tuple(outcomes)


def _allow_open_files(sittings: Sequence[Sitting]) -> None:
    scenarios = [compared.scenario for sitting in sittings for compared in sitting.compared]
    allow_open_files(max((each.connections for each in scenarios if isinstance(each, IdleConnections)), default=0))


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
