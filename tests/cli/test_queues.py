"""Queues on the command line, with a real broker: wherever a topic is named, `/queue/NAME` works."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cli.failing_subscriber import client_of
from tests.support.broker_process import wait_until

if TYPE_CHECKING:
    from tests.cli.conftest import RunningBroker

QUEUE = "/queue/jobs"


def lines_of(broker: RunningBroker, *command: str) -> list[str]:
    done = broker.program.run(*command)
    assert (done.returncode, done.stderr) == (0, ""), done
    return [" ".join(line.split()) for line in done.stdout.splitlines()]


@pytest.fixture
def message_ids(own_broker: RunningBroker) -> list[str]:
    """Of three messages in a queue: two of them are dead letters, the last waits. A topic has the same name."""
    with client_of(own_broker) as client:
        for destination in (QUEUE, QUEUE, QUEUE, "/topic/jobs"):
            client.send("SEND", b"work", destination=destination)
        client.subscribe(QUEUE, ack="client-individual")
        messages = [client.next_message() for _ in range(3)]
        for message in messages[:2]:
            client.send("NACK", id=message.headers["ack"], requeue="false", reason="no hands", receipt="refused")
            client.expect_receipt("refused")
        client.send("DISCONNECT", receipt="bye")
        client.expect_receipt("bye")
    wait_until(lambda: f"{QUEUE} 2" in "\n".join(lines_of(own_broker, "dead-letters", "list")), "two dead letters")
    return [message.headers["message-id"] for message in messages]


def test_dead_letters_of_a_queue_are_listed_redriven_and_purged(
    own_broker: RunningBroker, message_ids: list[str]
) -> None:
    for name in (QUEUE, "/queue/DLQ.jobs"):
        assert len(lines_of(own_broker, "dead-letters", "list", name)) == 3, name
    assert lines_of(own_broker, "dead-letters", "show", QUEUE, "0")[0] == f"Dead letter 0 of {QUEUE}"

    unconfirmed = own_broker.program.run("dead-letters", "redrive", QUEUE, "--to", "topic")
    assert f"would be sent to {QUEUE}" in unconfirmed.stderr
    lines_of(own_broker, "dead-letters", "redrive", QUEUE, "--offset", "0", "--yes")
    lines_of(own_broker, "dead-letters", "purge", QUEUE, "--yes")

    assert lines_of(own_broker, "dead-letters", "list") == ["There are no dead letters."]
    (row,) = [line for line in lines_of(own_broker, "subscriptions") if line.startswith(QUEUE)]
    assert row.startswith(f"{QUEUE} {QUEUE} individual last seen ")
    assert " ago 2 0 0 " in row


def test_a_message_in_a_queue_is_traced(own_broker: RunningBroker, message_ids: list[str]) -> None:
    dead, _, waiting = message_ids

    assert lines_of(own_broker, "trace", waiting)[0] == "Queue jobs, offset 2"
    traced = lines_of(own_broker, "trace", dead)
    assert f"Dead letter 0 of {QUEUE}" in traced
    assert f"stompbroker dead-letters show {QUEUE} 0" in traced


def test_what_a_queue_keeps_is_explained(own_broker: RunningBroker, message_ids: list[str]) -> None:
    lines = lines_of(own_broker, "gc", "explain", QUEUE)

    assert lines[0] == f"{QUEUE}:"
    assert any("for consumers to come: nobody has been attached since" in line for line in lines)
    with own_broker.subscriber(QUEUE), own_broker.subscriber(QUEUE):
        lines = lines_of(own_broker, "gc", "explain", "/queue/DLQ.jobs")
        assert lines[0] == "/queue/DLQ.jobs:"
    refused = own_broker.program.run("gc", "explain", "/queue/none")
    assert "there is no queue 'none'" in refused.stderr


def test_queues_are_told_from_topics_in_statistics(own_broker: RunningBroker, message_ids: list[str]) -> None:
    with own_broker.subscriber(QUEUE, "--exclusive"), own_broker.subscriber(QUEUE, "--exclusive"):
        stats, top = lines_of(own_broker, "stats", "--interval", "0"), lines_of(own_broker, "top", "--once")

    assert [line.split()[0] for line in stats if "jobs" in line][:3] == [QUEUE, "/queue/DLQ.jobs", "jobs"]
    for lines in (stats, top):
        assert any(line.startswith(QUEUE) and "2 members" in line for line in lines), lines
    assert any("topics 1 queues 2 subscriptions 2" in line for line in top), top


def test_browsing_shows_what_is_there_and_takes_nothing(own_broker: RunningBroker) -> None:
    own_broker.run("publish", QUEUE, "{n}", "--number", "--count", "700")

    for _ in range(2):
        done = own_broker.run("subscribe", QUEUE, "--browse", "--body-only")

        assert (done.returncode, done.stdout.split()) == (0, [str(number) for number in range(1, 701)])
        assert "Ctrl-C" not in done.stderr
    first = own_broker.run("subscribe", QUEUE, "--browse", "--body-only", "--count", "1")
    assert (first.returncode, first.stdout) == (0, "1\n")
    nothing = own_broker.run("subscribe", "/queue/none", "--browse")
    assert (nothing.returncode, nothing.stdout) == (0, "")
    assert [one["key"] for one in own_broker.statistics()["subscriptions"]] == [QUEUE]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["/topic/a", "--browse"], "is for queues; name one as /queue/NAME"),
        ([QUEUE, "--browse", "--ack", "client"], "leave --ack out"),
        ([QUEUE, "--browse", "--durable", "d"], "leave --durable out"),
        ([QUEUE, "--browse", "--exclusive"], "leave --exclusive out"),
        ([QUEUE, "--browse", "--group", "g"], "is for topics"),
        ([QUEUE, "--browse", "-H", "browser:true"], "--browse"),
    ],
)
def test_what_browsing_cannot_be_is_refused(broker: RunningBroker, arguments: list[str], reason: str) -> None:
    done = broker.run("subscribe", *arguments)

    assert done.returncode == 2
    assert reason in " ".join(done.stderr.replace("│", " ").split())
