"""Medians, spreads and ratios over rounds."""

from __future__ import annotations

from benchmarks.comparison.standings import figures_of, ratio_of, standing_of, why_unmeasured
from benchmarks.measurement import FigureKey, Unit
from benchmarks.percentiles import Spread
from benchmarks.summary import LimitedBy
from tests.benchmarks.comparison.made_results import measured, outcome, results_of, unmeasured

KEY = FigureKey("topic", "deliveries")


def test_a_ratio_is_ours_over_theirs_within_each_round_and_then_the_median() -> None:
    results = results_of(
        outcome("stompbroker", 1, measured("topic", 100)),
        outcome("rabbitmq", 1, measured("topic", 10)),
        outcome("stompbroker", 2, measured("topic", 50)),
        outcome("rabbitmq", 2, measured("topic", 25)),
        outcome("stompbroker", 3, measured("topic", 90)),
        outcome("rabbitmq", 3, measured("topic", 30)),
    )

    standing = standing_of("rabbitmq", KEY, results)

    assert standing is not None
    assert standing.spread == Spread(lowest=10, median=25, highest=30)
    assert standing.ours_over_it == 3


def test_a_round_in_which_one_of_the_two_broke_has_no_ratio() -> None:
    results = results_of(
        outcome("stompbroker", 1, measured("topic", 100)),
        unmeasured("rabbitmq", "topic", "it died", is_broken=True),
        outcome("stompbroker", 2, measured("topic", 50)),
        outcome("rabbitmq", 2, measured("topic", 25)),
        outcome("rabbitmq", 3, measured("topic", 1)),
    )

    assert ratio_of("rabbitmq", KEY, results) == 2
    unmeasured_because = why_unmeasured("rabbitmq", "topic", results)
    assert unmeasured_because is not None
    assert unmeasured_because.reason == "it died"


def test_ours_has_no_ratio_and_who_was_never_measured_has_no_standing() -> None:
    results = results_of(outcome("stompbroker", 1, measured("topic", 100)))

    ours = standing_of("stompbroker", KEY, results)

    assert ours is not None
    assert ours.ours_over_it is None
    assert standing_of("rabbitmq", KEY, results) is None
    assert ratio_of("rabbitmq", KEY, results) is None


def test_a_figure_that_only_one_broker_has_is_a_figure_of_the_scenario() -> None:
    results = results_of(
        outcome("stompbroker", 1, measured("idle", 20, figure="memory", unit=Unit.KIBIBYTES)),
        unmeasured("rabbitmq", "idle", "it died", is_broken=True),
    )

    assert figures_of("idle", results) == ["memory"]
    assert figures_of("other", results) == []


def test_a_generator_that_was_busy_all_the_time_is_the_limit() -> None:
    results = results_of(
        outcome("stompbroker", 1, measured("topic", 100, publisher_share=0.95)),
        outcome("rabbitmq", 1, measured("topic", 10)),
        outcome("activemq", 1, measured("topic", 10, is_paced=True)),
    )

    limits = [standing_of(name, KEY, results) for name in ("stompbroker", "rabbitmq", "activemq")]

    assert [standing.limited_by for standing in limits if standing] == [
        LimitedBy.GENERATOR,
        LimitedBy.BROKER,
        LimitedBy.SCHEDULE,
    ]
