"""What is compared, as far as the data can be wrong."""

from __future__ import annotations

import pytest

from benchmarks.comparison.goals import GOALS
from benchmarks.comparison.sittings import ALL_COMPARED, SITTINGS, LatencyAtHalf, chosen, with_goals
from benchmarks.scenarios import Crowd, Latency, NackStorm, Scenario, Throughput


def durable_subscribers(scenario: Scenario | LatencyAtHalf) -> int:
    match scenario:
        case Throughput(is_durable=True):
            return scenario.subscribers
        case Crowd(is_durable=True):
            return scenario.topics * scenario.subscribers_per_topic
        case Latency(is_durable=True) | LatencyAtHalf(is_durable=True) | NackStorm():
            return 1
        case _:
            return 0


def test_nothing_is_stored_for_a_subscriber_of_an_earlier_scenario_who_never_comes() -> None:
    for sitting in SITTINGS:
        first = [] if sitting.warm_up is None else [sitting.warm_up]
        counts = [durable_subscribers(each) for each in (*first, *(one.scenario for one in sitting.compared))]
        on_the_shared_topic = [count for count in counts if count]

        assert on_the_shared_topic == sorted(on_the_shared_topic)


def test_names_are_unique_and_titles_tell_the_scenarios_of_a_group_apart() -> None:
    assert len({compared.name for compared in ALL_COMPARED}) == len(ALL_COMPARED)
    assert len({(compared.group, compared.title) for compared in ALL_COMPARED}) == len(ALL_COMPARED)


def test_what_a_latency_is_half_of_comes_before_it_in_the_same_sitting() -> None:
    for sitting in SITTINGS:
        names = [compared.name for compared in sitting.compared]
        for compared in sitting.compared:
            if isinstance(compared.scenario, LatencyAtHalf):
                assert names.index(compared.scenario.of) < names.index(compared.name)


def test_a_chosen_scenario_brings_the_one_it_is_half_of() -> None:
    (sitting,) = chosen(frozenset({"durable-latency-at-half"}), is_quick=False)

    assert [compared.name for compared in sitting.compared] == ["durable-1-to-1", "durable-latency-at-half"]


def test_with_goals_only_those_brokers_are_measured_that_a_goal_names() -> None:
    sittings = with_goals(SITTINGS)

    only = {compared.name: compared.only for sitting in sittings for compared in sitting.compared}

    assert set(only) == {goal.key.scenario for goal in GOALS}
    assert only["topic-64-kib"] == {"stompbroker", "rabbitmq"}
    assert only["durable-lone"] == {"stompbroker", "postgres"}
    assert only["report-day"] == {"stompbroker"}


def test_what_a_latency_with_a_goal_is_half_of_is_measured_with_the_same_brokers() -> None:
    compared = {each.name: each for sitting in with_goals(SITTINGS) for each in sitting.compared}

    for each in compared.values():
        if isinstance(each.scenario, LatencyAtHalf):
            assert each.only <= compared[each.scenario.of].only


def test_quick_has_the_same_scenarios_in_less_time() -> None:
    quick = [compared for sitting in chosen(frozenset(), is_quick=True) for compared in sitting.compared]

    assert [compared.name for compared in quick] == [compared.name for compared in ALL_COMPARED]
    for short, full in zip(quick, ALL_COMPARED, strict=True):
        assert getattr(short.scenario, "duration_s", 0) <= getattr(full.scenario, "duration_s", 0)


@pytest.mark.parametrize(
    ("maximum", "timed", "companions"),
    [(500_000.0, 1000, 249), (3_100.0, 1000, 1), (1_500.0, 750, 0), (1.0, 1, 0)],
)
def test_at_high_rates_only_a_thousand_a_second_are_timed(maximum: float, timed: int, companions: int) -> None:
    scenario = LatencyAtHalf(name="half", title="half", of="topic-1-to-1").at_half_of(maximum)

    assert (scenario.messages_per_s, scenario.companions) == (timed, companions)
