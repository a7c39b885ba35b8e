"""Rounds put together by hand-made numbers."""

from __future__ import annotations

import pytest

from benchmarks.measurement import Figure, FigureKey, Measurement, ProcessorShare, Unit
from benchmarks.rounds import Round
from benchmarks.scenarios import Throughput
from benchmarks.summary import LimitedBy, Ratio, bottleneck, summarise

FIRST = Throughput(name="first", title="the first")
SECOND = Throughput(name="second", title="the second")


def measurement(scenario: str, value: float, compared_with: FigureKey | None = None) -> Measurement:
    return Measurement(
        scenario=scenario,
        figures=(Figure(name="deliveries", value=value, unit=Unit.PER_SECOND, compared_with=compared_with),),
        machine=ProcessorShare("machine", 1.5),
        broker=ProcessorShare("broker", 0.95),
        generators=(ProcessorShare("publisher", 0.05), ProcessorShare("subscriber", 0.25)),
    )


def a_round(first: float | None, second: float | None) -> Round:
    reference = FigureKey("first", "deliveries")
    return Round(
        measurements=(
            *(() if first is None else (measurement("first", first),)),
            *(() if second is None else (measurement("second", second, reference),)),
        ),
        breakages=(),
    )


def test_a_ratio_is_the_median_of_the_ratios_within_each_round() -> None:
    rounds = [a_round(100, 50), a_round(10, 8), a_round(1000, 300)]

    summary = summarise(SECOND, rounds, cores=2)

    assert summary is not None
    assert summary.figures[0].spread.median == 50
    assert summary.figures[0].ratio == Ratio(value=0.5, reference="first")


def test_a_round_in_which_one_of_the_two_broke_has_no_ratio_but_still_a_value() -> None:
    rounds = [a_round(100, 50), a_round(None, 8), a_round(1000, None)]

    summary = summarise(SECOND, rounds, cores=2)

    assert summary is not None
    assert summary.figures[0].values == (50, 8)
    assert summary.figures[0].ratio == Ratio(value=0.5, reference="first")


def test_a_scenario_that_always_broke_has_no_summary() -> None:
    assert summarise(FIRST, [a_round(None, 1)], cores=2) is None


def test_what_neither_broker_nor_generators_used_was_others() -> None:
    summary = summarise(FIRST, [a_round(1, 1)], cores=2)

    assert summary is not None
    shares = {share.name: round(share.share, 3) for share in summary.shares}
    assert shares == {"broker": 0.95, "publisher": 0.05, "subscriber": 0.25, "others": 0.25}


@pytest.mark.parametrize(
    ("broker", "generators", "machine", "limited_by"),
    [
        (0.95, [0.2, 0.3], 1.45, LimitedBy.BROKER),
        (0.95, [0.2, 0.95], 2.0, LimitedBy.GENERATOR),
        (0.5, [0.9], 1.4, LimitedBy.GENERATOR),
        (0.95, [0.2, 0.3], 1.95, LimitedBy.CORES),
        (0.89, [0.2, 0.3], 1.39, LimitedBy.WAITING),
    ],
)
def test_the_bottleneck_is_named(broker: float, generators: list[float], machine: float, limited_by: LimitedBy) -> None:
    assert bottleneck(broker, generators, machine_share=machine, cores=2) is limited_by
