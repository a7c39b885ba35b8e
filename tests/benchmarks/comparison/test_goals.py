"""Goals are bounds on ratios, and name figures that are measured."""

from __future__ import annotations

import pytest

from benchmarks.comparison.goals import GOALS, Bound, Goal, Verdict, judge
from benchmarks.comparison.sittings import ALL_COMPARED
from benchmarks.measurement import FigureKey
from benchmarks.peers import PEERS
from tests.benchmarks.comparison.made_results import measured, outcome, results_of


@pytest.mark.parametrize(
    ("bound", "ratio", "verdict"),
    [
        (Bound.AT_LEAST, 4.0, Verdict.REACHED),
        (Bound.AT_LEAST, 4.1, Verdict.NOT_REACHED),
        (Bound.AT_MOST, 4.0, Verdict.REACHED),
        (Bound.AT_MOST, 3.9, Verdict.NOT_REACHED),
    ],
)
def test_a_bound_belongs_to_what_it_allows(bound: Bound, ratio: float, verdict: Verdict) -> None:
    goal = Goal(title="a goal", key=FigureKey("topic", "deliveries"), peer="rabbitmq", bound=bound, ratio=ratio)
    results = results_of(
        outcome("stompbroker", 1, measured("topic", 40)), outcome("rabbitmq", 1, measured("topic", 10))
    )

    judgement = judge(goal, results)

    assert judgement.verdict is verdict
    assert judgement.ratios == (4.0,)


def test_a_goal_is_judged_by_the_median_and_says_how_many_rounds_reach_it() -> None:
    goal = Goal(title="a goal", key=FigureKey("topic", "deliveries"), peer="rabbitmq", bound=Bound.AT_MOST, ratio=2.0)
    ours = [outcome("stompbroker", number, measured("topic", value)) for number, value in enumerate((10, 15, 60), 1)]
    theirs = [outcome("rabbitmq", number, measured("topic", 10)) for number in (1, 2, 3)]

    judgement = judge(goal, results_of(*ours, *theirs))

    assert judgement.verdict is Verdict.REACHED
    assert judgement.ratios == (1.0, 1.5, 6.0)
    assert judgement.rounds_reached == 2
    assert not judgement.is_steady


def test_what_was_not_measured_is_neither_reached_nor_missed() -> None:
    judgements = [judge(goal, results_of()) for goal in GOALS]

    assert {judgement.verdict for judgement in judgements} == {Verdict.NOT_MEASURED}


def test_every_goal_is_about_a_scenario_and_a_peer_that_exist() -> None:
    assert {goal.key.scenario for goal in GOALS} <= {compared.name for compared in ALL_COMPARED}
    assert {goal.peer for goal in GOALS} <= {peer.name for peer in PEERS}
