"""Goals are bounds on ratios or figures, and name what is measured."""

from __future__ import annotations

import pytest

from benchmarks.comparison.goals import GOALS, Bound, Goal, Verdict, judge
from benchmarks.comparison.sittings import ALL_COMPARED
from benchmarks.measurement import FigureKey, Unit
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
    goal = Goal(title="a goal", key=FigureKey("topic", "deliveries"), against="rabbitmq", bound=bound, value=ratio)
    results = results_of(
        outcome("stompbroker", 1, measured("topic", 40)), outcome("rabbitmq", 1, measured("topic", 10))
    )

    judgement = judge(goal, results)

    assert judgement.verdict is verdict
    assert judgement.values == (4.0,)


def test_a_goal_is_judged_by_the_median_and_says_how_many_rounds_reach_it() -> None:
    key = FigureKey("topic", "deliveries")
    goal = Goal(title="a goal", key=key, against="rabbitmq", bound=Bound.AT_MOST, value=2.0)
    ours = [outcome("stompbroker", number, measured("topic", value)) for number, value in enumerate((10, 15, 60), 1)]
    theirs = [outcome("rabbitmq", number, measured("topic", 10)) for number in (1, 2, 3)]

    judgement = judge(goal, results_of(*ours, *theirs))

    assert judgement.verdict is Verdict.REACHED
    assert judgement.values == (1.0, 1.5, 6.0)
    assert judgement.rounds_reached == 2
    assert not judgement.is_steady


@pytest.mark.parametrize(
    ("bound", "verdict"), [(Bound.AT_LEAST, Verdict.NOT_REACHED), (Bound.AT_MOST, Verdict.REACHED)]
)
def test_a_goal_may_bound_the_figure_itself(bound: Bound, verdict: Verdict) -> None:
    key = FigureKey("topic", "deliveries")
    goal = Goal(title="a goal", key=key, bound=bound, value=20, unit=Unit.PER_SECOND)
    ours = [outcome("stompbroker", number, measured("topic", value)) for number, value in ((1, 10), (2, 15), (4, 30))]

    judgement = judge(goal, results_of(*ours))

    assert judgement.verdict is verdict
    assert judgement.values == (10, 15, 30)


def test_a_goal_may_be_about_another_broker_against_ours() -> None:
    key = FigureKey("topic", "deliveries")
    goal = Goal(title="a goal", key=key, bound=Bound.AT_LEAST, value=0.8, against="stompbroker", of="rabbitmq")
    results = results_of(
        outcome("stompbroker", 1, measured("topic", 20)), outcome("rabbitmq", 1, measured("topic", 10))
    )

    assert judge(goal, results).values == (0.5,)


def test_a_bound_is_either_on_a_ratio_or_on_a_figure() -> None:
    with pytest.raises(AssertionError, match="either a ratio or a figure"):
        Goal(title="a goal", key=FigureKey("topic", "deliveries"), bound=Bound.AT_LEAST, value=1)


def test_what_was_not_measured_is_neither_reached_nor_missed() -> None:
    judgements = [judge(goal, results_of()) for goal in GOALS]

    assert {judgement.verdict for judgement in judgements} == {Verdict.NOT_MEASURED}


def test_every_goal_is_about_a_scenario_and_a_peer_that_exist() -> None:
    named = {goal.of for goal in GOALS} | {goal.against for goal in GOALS if goal.against is not None}

    assert {goal.key.scenario for goal in GOALS} <= {compared.name for compared in ALL_COMPARED}
    assert named <= {peer.name for peer in PEERS}


def test_what_only_ours_is_measured_in_has_no_goal_against_others() -> None:
    alone = {compared.name for compared in ALL_COMPARED if compared.only}

    assert alone
    assert [goal.title for goal in GOALS if goal.key.scenario in alone and goal.against is not None] == []
