"""Whole measurements, with their real processes, against a server that follows a script."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from benchmarks.broken import Broken
from benchmarks.measuring.throughput import raise_if_not_exactly_once
from benchmarks.roles.subscriber import SubscriberReport
from benchmarks.rounds import run_round
from benchmarks.scenarios import IdleConnections, Latency, Scenario, Throughput
from tests.benchmarks.scripted_server import Script, ScriptedServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.rounds import Round
    from benchmarks.target import Target

#: A window, so that the scripted server is never behind by more than that.
TO_ONE: Final = Throughput(name="to-one", title="to one", duration_s=0.02, receipt_window=50)
TO_THREE: Final = Throughput(name="to-three", title="to three", duration_s=0.02, receipt_window=50, subscribers=3)
ACKNOWLEDGED: Final = Throughput(name="acked", title="acked", duration_s=0.02, receipt_window=50, acknowledges=True)
QUEUE: Final = Throughput(
    name="queue", title="queue", duration_s=0.02, receipt_window=50, acknowledges=True, is_queue=True
)
PACED: Final = Latency(name="paced", title="paced", messages_per_s=1000, duration_s=0.02)
IDLE: Final = IdleConnections(name="idle", title="idle", connections=5)
#: Seconds of silence that count as the end; only the tests that lose messages wait for it.
STALL_S: Final = 1.0


def measure(scenario: Scenario, server: ScriptedServer) -> Round:
    @contextmanager
    def open_target(settings: str) -> Iterator[Target]:
        yield server

    return run_round([scenario], 1, open_target=open_target, announce=lambda *_: None, stall_s=STALL_S)


@pytest.mark.parametrize("scenario", [TO_ONE, TO_THREE, ACKNOWLEDGED, QUEUE, PACED, IDLE], ids=lambda one: one.name)
def test_a_server_that_delivers_everything_once_is_measured(scenario: Scenario) -> None:
    with ScriptedServer(Script()) as server:
        found = measure(scenario, server)

    assert found.breakages == ()
    assert [measurement.scenario for measurement in found.measurements] == [scenario.name]
    assert all(share.share >= 0 for share in found.measurements[0].generators)


def test_every_message_is_acknowledged_once_and_in_order() -> None:
    with ScriptedServer(Script()) as server:
        measure(ACKNOWLEDGED, server)

    assert server.messages > 0
    assert server.acknowledged == [f"a-{number}" for number in range(server.messages)]


@pytest.mark.parametrize("scenario", [TO_ONE, TO_THREE, ACKNOWLEDGED, PACED], ids=lambda one: one.name)
def test_a_lost_message_is_reported_as_broken(scenario: Scenario) -> None:
    with ScriptedServer(Script(lost=frozenset({1}))) as server:
        found = measure(scenario, server)

    lost = 3 if scenario is TO_THREE else 1
    assert found.measurements == ()
    assert found.breakages[0].text.startswith(f"{lost} of {server.messages * lost:,} ")
    assert "lost" in found.breakages[0].text


@pytest.mark.parametrize("scenario", [TO_ONE, PACED], ids=lambda one: one.name)
def test_a_message_that_comes_twice_is_reported_as_broken(
    scenario: Scenario,
) -> None:
    with ScriptedServer(Script(doubled=frozenset({1}))) as server:
        found = measure(scenario, server)

    assert found.measurements == ()
    assert "too many" in found.breakages[0].text or "twice" in found.breakages[0].text


@pytest.mark.parametrize("scenario", [TO_ONE, ACKNOWLEDGED, PACED], ids=lambda one: one.name)
def test_a_message_too_many_behind_the_last_one_is_reported_as_broken(scenario: Scenario) -> None:
    with ScriptedServer(Script(has_farewell=True)) as server:
        found = measure(scenario, server)

    assert found.measurements == ()
    assert "too many" in found.breakages[0].text or "twice" in found.breakages[0].text


def test_consumers_of_a_queue_who_each_get_every_message_get_too_many() -> None:
    with ScriptedServer(Script()) as server:
        found = measure(replace(QUEUE, subscribers=2), server)

    assert "too many" in found.breakages[0].text


def test_idle_connections_that_get_no_message_are_reported_as_broken() -> None:
    with ScriptedServer(Script(lost=frozenset({0}))) as server:
        found = measure(IDLE, server)

    assert found.breakages[0].text == "5 of 5 got not exactly one message"


def test_what_the_broker_says_in_an_error_is_reported() -> None:
    with ScriptedServer(Script(error_at=1)) as server:
        found = measure(TO_ONE, server)

    assert found.measurements == ()
    assert "the script says so" in found.breakages[0].text


@pytest.mark.parametrize(
    ("received", "byte_count", "complaint"),
    [
        ((10, 9), 20_000, "1 of 20 deliveries are lost"),
        ((10, 11), 20_000, "1 deliveries too many beside 20"),
        ((9, 11), 20_000, "1 of 20 deliveries are lost"),  # the sum is right, and still one is missing
        ((10, 10), 1_999, "20 messages came in only 1,999 bytes"),
    ],
)
def test_each_connection_is_owed_each_message(received: tuple[int, ...], byte_count: int, complaint: str) -> None:
    report = SubscriberReport(received=received, byte_count=byte_count, finished_at=1.0, processor_s=0.0, busy_s=1.0)

    with pytest.raises(Broken, match=complaint):
        raise_if_not_exactly_once(10, report, body_bytes=100)
