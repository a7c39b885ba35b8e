"""`stompbroker stats` and `top`, against a real broker and against none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from stompbroker import __version__

if TYPE_CHECKING:
    from tests.cli.conftest import Program, RunningBroker


def test_json_is_what_the_broker_says(own_broker: RunningBroker) -> None:
    with own_broker.subscriber("prices.*", "--ack", "client"):
        own_broker.run("publish", "prices.gold", "12345", "--count", "3")

        statistics = own_broker.statistics()

    (topic,) = statistics["topics"]
    assert (topic["name"], topic["published"], topic["subscribers"]) == ("prices.gold", 3, 1)
    (subscription,) = statistics["subscriptions"]
    assert (subscription["destination"], subscription["ack"]) == ("prices.*", "client")
    assert [one["id"] for one in statistics["connections"]] == [subscription["connection"]]
    assert statistics["totals"]["published"] == 3
    assert statistics["broker"]["version"] == __version__
    assert (statistics["topics_total"], statistics["subscriptions_total"], statistics["connections_total"]) == (1, 1, 1)


def test_people_see_tables(own_broker: RunningBroker) -> None:
    with own_broker.subscriber("prices.*"):
        own_broker.run("publish", "prices.gold", "12345", "--count", "3")

        done = own_broker.program.run(
            "stats", "--interval", "0.01"
        )  # finds the data directory in the settings' default

    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["prices.gold", "3", "0", "1"] in [row[:4] for row in rows]
    assert any(row[0] == "prices.*" for row in rows if row)
    assert f"stompbroker {__version__}" in done.stdout


def test_once_shows_rates_topics_and_subscriptions(own_broker: RunningBroker) -> None:
    with own_broker.subscriber("prices.*", "--ack", "client"):
        own_broker.run("publish", "prices.gold", "12345", "--count", "3")

        done = own_broker.program.run("top", "--once")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"stompbroker {__version__}, running, up ")
    rows = [line.split() for line in done.stdout.splitlines()]
    (topic,) = [row for row in rows if row[:1] == ["prices.gold"]]
    assert topic[2:5] == ["3", "1", "1"] or topic[2:5] == ["3", "0", "1"]  # published, publishers, subscribers
    assert any("prices.*" in row for row in rows)


def test_a_wrong_order_is_refused_with_what_is_allowed(own_broker: RunningBroker) -> None:
    done = own_broker.program.run("top", "--once", "--sort", "beauty")

    assert done.returncode == 1
    assert "sort is one of key, backlog" in done.stderr


@pytest.mark.parametrize("command", [["stats"], ["top", "--once"]])
def test_no_broker_is_a_sentence(program: Program, command: list[str]) -> None:
    done = program.run(*command)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("stompbroker: No broker is running with the data directory data ")
