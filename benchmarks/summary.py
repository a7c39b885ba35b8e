"""Combines several rounds: medians, spreads, ratios, and the bottleneck.

Pure functions of rounds. A ratio is taken within each round, and then the median of them, because one round saw the
same machine.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from benchmarks.measurement import Figure, FigureKey, Measurement, ProcessorShare, Unit
from benchmarks.percentiles import Spread, spread_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.rounds import Round
    from benchmarks.scenarios import Scenario

#: Share of a core above which a process counts as always busy; the rest is scheduling and start-up.
_BUSY = 0.9
#: The same for all cores together.
_ALL_BUSY = 0.95


class LimitedBy(Enum):
    """What kept a figure from being better."""

    SCHEDULE = "schedule"
    BROKER = "broker"
    GENERATOR = "GENERATOR"  # in capitals: the figure is only a lower bound
    CORES = "cores"
    WAITING = "waiting"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    value: float
    #: The reference: another scenario, or another figure of the same.
    reference: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureSummary:
    name: str
    unit: Unit
    values: tuple[float, ...]
    spread: Spread
    ratio: Ratio | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioSummary:
    scenario: Scenario
    figures: tuple[FigureSummary, ...]
    #: The broker, the generators, and "others": everything else on the machine, or taken from it.
    shares: tuple[ProcessorShare, ...]
    limited_by: LimitedBy


def summarise(scenario: Scenario, rounds: Sequence[Round], *, cores: int) -> ScenarioSummary | None:
    """None if no round measured it."""
    measurements = [
        measurement for one in rounds for measurement in one.measurements if measurement.scenario == scenario.name
    ]
    if not measurements:
        return None
    machine = _median_share([measurement.machine for measurement in measurements])
    broker = _median_share([measurement.broker for measurement in measurements])
    generators = [
        _median_share(shares) for shares in zip(*(measurement.generators for measurement in measurements), strict=True)
    ]
    generator_shares = [generator.share for generator in generators]
    others = ProcessorShare("others", max(0.0, machine.share - broker.share - sum(generator_shares)))
    limited_by = (
        LimitedBy.SCHEDULE
        if measurements[0].is_paced
        else bottleneck(broker.share, generator_shares, machine_share=machine.share, cores=cores)
    )
    return ScenarioSummary(
        scenario=scenario,
        figures=tuple(_summarise_figure(scenario.name, figure, rounds) for figure in measurements[0].figures),
        shares=(broker, *generators, others),
        limited_by=limited_by,
    )


def bottleneck(
    broker_share: float, generator_shares: Sequence[float], *, machine_share: float, cores: int
) -> LimitedBy:
    """The bottleneck, judged by shares of a core."""
    if max(generator_shares) >= _BUSY:
        return LimitedBy.GENERATOR
    if machine_share >= _ALL_BUSY * cores:
        return LimitedBy.CORES
    return LimitedBy.BROKER if broker_share >= _BUSY else LimitedBy.WAITING


def _summarise_figure(scenario: str, first: Figure, rounds: Sequence[Round]) -> FigureSummary:
    key = FigureKey(scenario, first.name)
    values = tuple(value for one in rounds if (value := _value(one.measurements, key)) is not None)
    return FigureSummary(
        name=first.name,
        unit=first.unit,
        values=values,
        spread=spread_of(values),
        ratio=None if first.compared_with is None else _ratio(key, first.compared_with, rounds),
    )


def _ratio(key: FigureKey, reference: FigureKey, rounds: Sequence[Round]) -> Ratio | None:
    """None if no round has both."""
    ratios = [
        value / reference_value
        for one in rounds
        if (value := _value(one.measurements, key)) is not None
        and (reference_value := _value(one.measurements, reference))
    ]
    if not ratios:
        return None
    is_of_same_scenario = key.scenario == reference.scenario
    return Ratio(
        value=statistics.median(ratios), reference=reference.figure if is_of_same_scenario else reference.scenario
    )


def _value(measurements: Sequence[Measurement], key: FigureKey) -> float | None:
    for measurement in measurements:
        if measurement.scenario == key.scenario:
            for figure in measurement.figures:
                if figure.name == key.figure:
                    return figure.value
    return None


def _median_share(shares: Sequence[ProcessorShare]) -> ProcessorShare:
    return ProcessorShare(shares[0].name, statistics.median(share.share for share in shares))
