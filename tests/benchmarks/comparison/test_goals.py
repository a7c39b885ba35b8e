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
    assert judgement.ratio == 4.0


def test_what_was_not_measured_is_neither_reached_nor_missed() -> None:
    judgements = [judge(goal, results_of()) for goal in GOALS]

    assert {judgement.verdict for judgement in judgements} == {Verdict.NOT_MEASURED}


def test_every_goal_is_about_a_scenario_and_a_peer_that_exist() -> None:
    assert {goal.key.scenario for goal in GOALS} <= {compared.name for compared in ALL_COMPARED}
    assert {goal.peer for goal in GOALS} <= {peer.name for peer in PEERS}
