"""Runs the scenarios in interleaved rounds.

Law: a round is every scenario once, so a machine that slows down for a minute slows one round of each and not all
rounds of one. Every measurement gets a broker of its own. What is broken is noted, and the run goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from benchmarks.broken import Broken
from benchmarks.measuring import idle_connections, isolation, latency, throughput
from benchmarks.scenarios import IdleConnections, Isolation, Latency, Scenario, Throughput

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
    """What one round has found; a scenario that is broken has a breakage and no measurement."""

    measurements: tuple[Measurement, ...]
    breakages: tuple[Breakage, ...]


def run_round(
    scenarios: Sequence[Scenario],
    round_number: int,
    *,
    open_target: OpenTarget,
    announce: Callable[[Scenario, int], None],
    stall_s: float = STALL_S,
) -> Round:
    """Measure every scenario once; `announce` is told before each."""
    measurements: list[Measurement] = []
    breakages: list[Breakage] = []
    for scenario in scenarios:
        announce(scenario, round_number)
        try:
            with open_target(_settings(scenario)) as target:
                measurement = _measure(scenario, target, stall_s)
        except Broken as broken:
            breakages.append(Breakage(scenario=scenario.name, round_number=round_number, text=str(broken)))
        else:
            measurements.append(measurement)
    return Round(measurements=tuple(measurements), breakages=tuple(breakages))


def _settings(scenario: Scenario) -> str:
    return isolation.settings(scenario) if isinstance(scenario, Isolation) else ""


def _measure(scenario: Scenario, target: Target, stall_s: float) -> Measurement:
    match scenario:
        case Throughput():
            return throughput.measure(scenario, target, stall_s)
        case Latency():
            return latency.measure(scenario, target, stall_s)
        case IdleConnections():
            return idle_connections.measure(scenario, target, stall_s)
        case Isolation():
            return isolation.measure(scenario, target, stall_s)
