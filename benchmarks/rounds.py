"""Runs the scenarios in interleaved rounds.

A round is every scenario once, so a machine that slows down for a minute affects one round of each scenario, not all
rounds of one. Every measurement gets its own broker. A broken scenario is noted, and the run goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from benchmarks.broken import Broken
from benchmarks.measuring import (
    backlog,
    collecting,
    crowd,
    fresh_start,
    idle_connections,
    isolation,
    latency,
    nack_everything,
    nack_storm,
    nightly_report,
    passed_through,
    poison,
    start_up,
    store_size,
    throughput,
)
from benchmarks.scenarios import (
    Backlog,
    Collecting,
    Crowd,
    FreshStart,
    IdleConnections,
    Isolation,
    Latency,
    NackEverything,
    NackStorm,
    NightlyReport,
    PassedThrough,
    Poison,
    Scenario,
    StartUp,
    StoreSize,
    Throughput,
    rounds_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.measurement import Measurement
    from benchmarks.target import OpenTarget, Target

#: Seconds of silence after which missing messages count as lost and a waiting publisher as stuck.
STALL_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakage:
    scenario: str
    round_number: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """The results of one round. A broken scenario has a breakage and no measurement, unless its figures are still
    meaningful."""

    measurements: tuple[Measurement, ...]
    breakages: tuple[Breakage, ...]


def run_round(
    scenarios: Sequence[Scenario],
    round_number: int,
    *,
    open_target: OpenTarget,
    announce: Callable[[Scenario, int], None],
    show: Callable[[str], None] = lambda _detail: None,
    stall_s: float = STALL_S,
) -> Round:
    """Measure every scenario of this round; `announce` is called before each, `show` with the progress of a long
    one."""
    measurements: list[Measurement] = []
    breakages: list[Breakage] = []
    for scenario in scenarios:
        if round_number > rounds_of(scenario, round_number):
            continue
        announce(scenario, round_number)
        try:
            with open_target(_settings(scenario)) as target:
                measurement = measure(scenario, target, stall_s, show)
        except Broken as broken:
            breakages.append(Breakage(scenario=scenario.name, round_number=round_number, text=str(broken)))
        else:
            measurements.append(measurement)
            breakages += [
                Breakage(scenario=scenario.name, round_number=round_number, text=text) for text in measurement.broken
            ]
    return Round(measurements=tuple(measurements), breakages=tuple(breakages))


def _settings(scenario: Scenario) -> str:
    match scenario:
        case Isolation():
            return isolation.settings(scenario)
        case Throughput(has_ledger=False):
            return "ledger = false\n"
        case NackEverything():
            return nack_everything.settings(scenario)
        case _:
            return ""


def measure(scenario: Scenario, target: Target, stall_s: float, show: Callable[[str], None]) -> Measurement:
    """Raises `Broken`."""
    match scenario:
        case Throughput():
            return throughput.measure(scenario, target, stall_s)
        case Latency():
            return latency.measure(scenario, target, stall_s)
        case Crowd():
            return crowd.measure(scenario, target, stall_s)
        case NackStorm():
            return nack_storm.measure(scenario, target, stall_s)
        case PassedThrough():
            return passed_through.measure(scenario, target, stall_s)
        case FreshStart():
            return fresh_start.measure(scenario, target)
        case NightlyReport():
            return nightly_report.measure(scenario, target)
        case IdleConnections():
            return idle_connections.measure(scenario, target, stall_s)
        case Isolation():
            return isolation.measure(scenario, target, stall_s)
        case Backlog():
            return backlog.measure(scenario, target, stall_s, show)
        case StoreSize():
            return store_size.measure(scenario, target, stall_s, show)
        case StartUp():
            return start_up.measure(scenario, target, stall_s, show)
        case Poison():
            return poison.measure(scenario, target, stall_s)
        case NackEverything():
            return nack_everything.measure(scenario, target, stall_s, show)
        case Collecting():
            return collecting.measure(scenario, target, stall_s, show)
