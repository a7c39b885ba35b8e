"""A broker's figures in a scenario over all rounds, compared with ours.

Pure functions of results. A ratio is ours over the other's within each round, and then the median of them, because one
round saw the same machine.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.comparison.results import OURS, Outcome, Results, Unmeasured
from benchmarks.measurement import Measurement
from benchmarks.percentiles import Spread, spread_of
from benchmarks.summary import LimitedBy, bottleneck

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.measurement import FigureKey, Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    unit: Unit
    spread: Spread
    #: Ours over theirs; None for ours, and if no round has both.
    ours_over_it: float | None
    limited_by: LimitedBy


def standing_of(contestant: str, key: FigureKey, results: Results) -> Standing | None:
    """None if no round measured it."""
    measured = measurements_of(contestant, key.scenario, results)
    figures = [
        figure for measurement in measured.values() for figure in measurement.figures if figure.name == key.figure
    ]
    if not figures:
        return None
    return Standing(
        unit=figures[0].unit,
        spread=spread_of([figure.value for figure in figures]),
        ours_over_it=None if contestant == OURS else ratio_of(contestant, key, results),
        limited_by=_limit(list(measured.values()), cores=results.machine.cores),
    )


def ratio_of(contestant: str, key: FigureKey, results: Results) -> float | None:
    """Ours over theirs; None if no round has both."""
    ratios = ratios_of(contestant, key, results)
    return statistics.median(ratios) if ratios else None


def ratios_of(contestant: str, key: FigureKey, results: Results, *, of: str = OURS) -> list[float]:
    """Ours, or what `of` has, over theirs, in each round that has both."""
    ours, theirs = (_values_by_round(name, key, results) for name in (of, contestant))
    return [value / theirs[number] for number, value in ours.items() if theirs.get(number)]


def values_of(contestant: str, key: FigureKey, results: Results) -> list[float]:
    """The figure of each round that has it."""
    return list(_values_by_round(contestant, key, results).values())


def measurements_of(contestant: str, scenario: str, results: Results) -> dict[int, Measurement]:
    """The values by round."""
    return {
        outcome.round_number: outcome.found
        for outcome in outcomes_of(contestant, scenario, results)
        if isinstance(outcome.found, Measurement)
    }


def why_unmeasured(contestant: str, scenario: str, results: Results) -> Unmeasured | None:
    """The first reason why a round has no measurement."""
    for outcome in outcomes_of(contestant, scenario, results):
        if isinstance(outcome.found, Unmeasured):
            return outcome.found
    return None


def outcomes_of(contestant: str, scenario: str, results: Results) -> list[Outcome]:
    return [
        outcome for outcome in results.outcomes if outcome.contestant == contestant and outcome.scenario == scenario
    ]


def figures_of(scenario: str, results: Results) -> list[str]:
    """Names of all figures, in the order of the broker that has most."""
    named = [
        [figure.name for figure in outcome.found.figures]
        for outcome in results.outcomes
        if outcome.scenario == scenario and isinstance(outcome.found, Measurement)
    ]
    return max(named, key=len, default=[])


def _values_by_round(contestant: str, key: FigureKey, results: Results) -> dict[int, float]:
    return {
        number: figure.value
        for number, measurement in measurements_of(contestant, key.scenario, results).items()
        for figure in measurement.figures
        if figure.name == key.figure
    }


def _limit(measured: Sequence[Measurement], *, cores: int) -> LimitedBy:
    if measured[0].is_paced:
        return LimitedBy.SCHEDULE
    generators = [
        statistics.median(share.share for share in shares)
        for shares in zip(*(measurement.generators for measurement in measured), strict=True)
    ]
    return bottleneck(
        statistics.median(measurement.broker.share for measurement in measured),
        generators or [0.0],
        machine_share=statistics.median(measurement.machine.share for measurement in measured),
        cores=cores,
    )
