"""The command line: options in, a page, its plots and an exit code out.

Exit code 0 if everything could be measured, even if slow or goals are missed; 1 if our own broker is broken; 2 for
wrong options. Progress goes to stderr. Peers that are missing or break are reported.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.comparison import page, plots
from benchmarks.comparison.beginning import begun
from benchmarks.comparison.page_options import PageOptions, add_page_options, page_options
from benchmarks.comparison.progress import Progress
from benchmarks.comparison.results import OURS, Outcome, Results, Unmeasured, from_json, to_json
from benchmarks.comparison.running import ComparedRound
from benchmarks.comparison.sittings import ALL_COMPARED, Sitting, chosen, with_goals
from benchmarks.measuring.idle_connections import allow_open_files
from benchmarks.peers import PEERS
from benchmarks.scenarios import IdleConnections

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.comparison.sittings import Compared
    from benchmarks.peers.peer import Peer

_PAGE: Final = Path("benchmarks/RESULTS.md")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    sittings: tuple[Sitting, ...]
    peers: tuple[Peer, ...]
    page: PageOptions


def parse(arguments: Sequence[str]) -> Options:
    """Raises `SystemExit` with code 2, and prints why, if the arguments are wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.comparison", description="Measure stompbroker beside its peers on this machine."
    )
    scenarios, peers = [compared.name for compared in ALL_COMPARED], [peer.name for peer in PEERS]
    several: dict[str, Any] = {"metavar": "NAME", "nargs": "+", "action": "extend"}
    parser.add_argument("--scenario", choices=scenarios, help=f"only these: {', '.join(scenarios)}", **several)
    parser.add_argument("--peer", choices=peers, help=f"only these: {', '.join(peers)}", **several)
    parser.add_argument("--goals", action="store_true", help="only what has a goal, and the brokers that goals name")
    add_page_options(parser, page=_PAGE)
    parsed = parser.parse_args(arguments)
    sittings = chosen(frozenset(parsed.scenario or ()), is_quick=parsed.quick)
    return Options(
        sittings=with_goals(sittings) if parsed.goals else sittings,
        peers=tuple(peer for peer in PEERS if not parsed.peer or peer.name in parsed.peer),
        page=page_options(parsed),
    )


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    wanted = options.page
    results = _measured(options) if wanted.from_file is None else from_json(wanted.from_file.read_text())
    if wanted.json_file is not None:
        wanted.json_file.write_text(to_json(results))
    _write(results, wanted)
    broken = [outcome for outcome in results.outcomes if _is_ours_broken(outcome)]
    for outcome in broken:
        assert isinstance(outcome.found, Unmeasured)
        print(f"BROKEN  {outcome.scenario}, round {outcome.round_number}: {outcome.found.reason}", file=sys.stderr)
    return 1 if broken else 0


def _is_ours_broken(outcome: Outcome) -> bool:
    return outcome.contestant == OURS and isinstance(outcome.found, Unmeasured) and outcome.found.is_broken


def _write(results: Results, wanted: PageOptions) -> None:
    wanted.make_directories()
    pictures = plots.draw_all(results, wanted.plots_directory)
    wanted.page_file.write_text(page.rendered(results, wanted.as_seen_from_the_page(pictures)))
    print(wanted.page_file)


# Measuring ------------------------------------------------------------------------------------------------------------


def _measured(options: Options) -> Results:
    results = begun(options.peers, rounds=options.page.rounds, is_quick=options.page.is_quick)
    present = [peer for peer, found in zip(options.peers, results.contestants, strict=True) if found.version]
    for contestant in results.contestants:
        if contestant.missing:
            _say(f"{contestant.title} is missing: {contestant.missing}")
    _allow_open_files(options.sittings)
    began_at = time.monotonic()
    outcomes = _run_rounds(options, present)
    return replace(results, took_s=time.monotonic() - began_at, outcomes=outcomes)


def _run_rounds(options: Options, peers: Sequence[Peer]) -> tuple[Outcome, ...]:
    numbers = range(1, options.page.rounds + 1)
    progress = Progress(
        (peer.name, compared.name)
        for number in numbers
        for sitting in options.sittings
        for peer in peers
        for compared in sitting.compared
        if compared.is_measured(peer.name, number)
    )
    outcomes: list[Outcome] = []

    def announce(peer: Peer, compared: Compared, round_number: int) -> None:
        _say(f"{progress.described()}: round {round_number} of {options.page.rounds}, {peer.title}, {compared.name}")

    def note(outcome: Outcome) -> None:
        outcomes.append(outcome)
        progress.finish((outcome.contestant, outcome.scenario), time.monotonic())
        if isinstance(outcome.found, Unmeasured) and outcome.found.is_broken:
            _say(f"BROKEN  {outcome.contestant}, {outcome.scenario}: {outcome.found.reason}")

    progress.begin(time.monotonic())
    for number in numbers:
        broke = {
            (outcome.contestant, outcome.scenario): outcome.found
            for outcome in outcomes
            if outcome.round_number == number - 1 and isinstance(outcome.found, Unmeasured) and outcome.found.is_broken
        }
        ComparedRound(number, broke=broke, announce=announce, note=note).run(options.sittings, peers)
    return tuple(outcomes)


def _allow_open_files(sittings: Sequence[Sitting]) -> None:
    scenarios = [compared.scenario for sitting in sittings for compared in sitting.compared]
    allow_open_files(max((each.connections for each in scenarios if isinstance(each, IdleConnections)), default=0))


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
