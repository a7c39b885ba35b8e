"""The page that people read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.comparison import page
from benchmarks.comparison.goals import GOALS
from benchmarks.measurement import Unit
from tests.benchmarks.comparison.made_results import measured, outcome, results_of, unmeasured


def test_a_cell_has_median_spread_and_ratio_and_below_the_figures_is_what_limited_them() -> None:
    results = results_of(
        *(outcome("stompbroker", number, measured("topic-1-to-1", 480_000)) for number in (1, 2, 3)),
        *(
            outcome("rabbitmq", number, measured("topic-1-to-1", value, publisher_share=0.99))
            for number, value in ((1, 24_000), (2, 20_000), (3, 30_000))
        ),
        unmeasured("activemq", "topic-1-to-1", "it cannot", is_broken=False),
    )

    text = page.rendered(results)

    assert (
        "| 1 → 1: **deliveries** | **480 k/s** | **24 k/s** (20 k/s – 30 k/s)<br>*20.0 ×* | — |\n"
        "| limit | broker | **GENERATOR** |  |\n"
    ) in text


def test_a_goal_that_is_missed_is_loud_and_one_against_a_missing_peer_is_not_measured() -> None:
    results = results_of(
        outcome("stompbroker", 1, measured("topic-1-to-1", 480_000)),
        outcome("rabbitmq", 1, measured("topic-1-to-1", 24_000)),
        outcome("activemq", 1, measured("topic-1-to-1", 96_000)),
    )

    text = page.rendered(results)

    assert "| topic 1 → 1 | RabbitMQ | ≥ 12 × | 20.0 × (20.0 × – 20.0 ×) | reached |" in text
    assert "| topic 1 → 1 | ActiveMQ | ≥ 6 × | 5.00 × (5.00 × – 5.00 ×) | **NOT reached** |" in text
    assert "| topic 1 → 1 | NATS | ≥ 0.8 × | — | not measured |" in text
    assert f"## Goals: 1 of {len(GOALS)} reached by the median, 1 in every round" in text


def test_a_goal_for_a_figure_has_its_unit_and_nobody_to_be_compared_with() -> None:
    costs = [measured("topics-10", value, figure="broker per delivery", unit=Unit.MICROSECONDS) for value in (2, 3, 2)]

    text = page.rendered(results_of(*(outcome("stompbroker", number, cost) for number, cost in enumerate(costs, 1))))

    assert "| 10 topics in turn | — | ≤ 2.5 µs | 2.00 µs (2.00 µs – 3.00 µs) | reached; 2 of 3 rounds do |" in text


def test_a_table_has_no_column_for_a_broker_that_took_no_part_in_it() -> None:
    text = page.rendered(
        results_of(
            outcome("stompbroker", 1, measured("report-day", 40, figure="report", unit=Unit.SECONDS)),
            outcome("rabbitmq", 1, measured("topic-1-to-1", 24_000)),
        )
    )

    assert "### The nightly report, on two cores\n\n|  | stompbroker |\n|---|---|\n" in text


def test_a_goal_that_not_every_round_reaches_says_how_many_do() -> None:
    ours = [
        outcome("stompbroker", number, measured("topic-1-to-1", value)) for number, value in ((1, 20), (2, 30), (3, 2))
    ]
    theirs = [outcome("rabbitmq", number, measured("topic-1-to-1", 1)) for number in (1, 2, 3)]

    text = page.rendered(results_of(*ours, *theirs))

    assert "| topic 1 → 1 | RabbitMQ | ≥ 12 × | 20.0 × (2.00 × – 30.0 ×) | reached; 2 of 3 rounds do |" in text
    assert f"## Goals: 1 of {len(GOALS)} reached by the median, 0 in every round" in text


def test_machine_versions_commit_configurations_and_what_is_missing_are_said() -> None:
    text = page.rendered(results_of(), ["../docs/plots/peers-topics.svg"])

    assert "| commit | 0123456789ab |" in text
    assert "2 cores (a processor), 8 GiB, Linux 6.1" in text
    assert "ext4 on /dev/disk; an fsync of 4 KiB takes 0.50 ms" in text
    assert "| RabbitMQ | 3.10 |" in text
    assert "| NATS | **missing**: apt-get install nats-server |" in text
    assert "### RabbitMQ 3.10\n\n```\nstomp.listeners.tcp\n```" in text
    assert "![peers-topics](../docs/plots/peers-topics.svg)" in text


def test_a_cell_without_a_figure_has_its_reason_below_the_table() -> None:
    results = results_of(
        outcome("stompbroker", 1, measured("nack-storm", 10_000)),
        unmeasured("activemq", "nack-storm", "a NACK makes a dead letter at once", is_broken=False),
        unmeasured("rabbitmq", "nack-storm", "it died\nwith a long log", is_broken=True),
        unmeasured("rabbitmq", "durable-1-to-10", "it died\nwith a long log", is_broken=True),
    )

    text = page.rendered(results)

    assert "- ActiveMQ, every tenth message refused once: a NACK makes a dead letter at once\n" in text
    assert "- RabbitMQ, every tenth message refused once; 1 → 10: **BROKEN**: it died with a long log\n" in text


def test_a_quick_run_says_that_it_is_no_measure() -> None:
    assert "no measure of anything" in page.rendered(replace(results_of(), is_quick=True))
    assert "no measure of anything" not in page.rendered(results_of())


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (1_260_000, Unit.PER_SECOND, "1.26 M/s"),
        (83_400, Unit.PER_SECOND, "83 k/s"),
        (3_340, Unit.PER_SECOND, "3.3 k/s"),
        (334, Unit.PER_SECOND, "334 /s"),
        (0.4567, Unit.MILLISECONDS, "0.46 ms"),
        (120.0, Unit.KIBIBYTES, "120 KiB"),
    ],
)
def test_a_quantity_has_as_many_digits_as_mean_something(value: float, unit: Unit, shown: str) -> None:
    assert page.quantity(value, unit) == shown


@pytest.mark.parametrize(("ratio", "shown"), [(0.456, "0.46 ×"), (12.34, "12.3 ×"), (123.4, "123 ×")])
def test_a_ratio_has_three_digits(ratio: float, shown: str) -> None:
    assert page.times(ratio) == shown
