"""`stompbroker stats`, against a real broker and against none."""

from __future__ import annotations

from typing import TYPE_CHECKING

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


def test_no_broker_is_a_sentence(program: Program) -> None:
    done = program.run("stats")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("stompbroker: No broker is running with the data directory data ")
