"""The soak with topics and connections that come and go: what is said, and how it is judged."""

from __future__ import annotations

from typing import Any, Final

import pytest

from soak.churn_run import MAX_PAUSE_S, ChurnOutcome, ChurnSettings
from soak.churning import Way, said_by
from soak.command_line import parse
from soak.measured_broker import Longest
from stompbroker.stomp import FrameReader, Limits, Version

MIB: Final = 1024 * 1024
CONNECT: Final = b"CONNECT\naccept-version:1.2\nhost:test\n\n\0"


def outcome(**changed: Any) -> ChurnOutcome:
    found: dict[str, Any] = {
        "elapsed_s": 10.0,
        "connections": 5000,
        "topics": 20_000,
        "took_ns": [1, 2, 200_000_000],
        "longest": Longest(3_000_000, "worker", 1),
        "broker_share": 0.5,
        "memory_bytes": [100 * MIB, 101 * MIB, 102 * MIB],
    }
    return ChurnOutcome(**(found | changed))


@pytest.mark.parametrize("way", Way)
def test_every_connection_says_frames_and_publishes_to_topics_of_its_own(way: Way) -> None:
    reader = FrameReader(Limits())
    reader.version = Version.V1_2
    frames = reader.receive(said_by(way, 7, 4, CONNECT))
    while reader.has_more:
        frames += reader.receive(b"")

    published = {frame.headers["destination"] for frame in frames if frame.command == "SEND"}
    assert published == {f"/topic/churn.7.{each}" for each in range(4)}
    assert frames[0].command == "CONNECT"
    assert frames[-1].command in ("DISCONNECT", "BEGIN", "NONSENSE")


def test_nothing_is_wrong_with_messages_that_were_late_for_others_sake() -> None:
    assert outcome().complaints() == []


def test_an_event_loop_that_worked_for_too_long_is_a_pause() -> None:
    (complaint,) = outcome(longest=Longest(int(MAX_PAUSE_S * 1e9) + 1, "worker", 0)).complaints()

    assert complaint.startswith("PAUSED")


def test_memory_that_goes_on_growing_is_noticed() -> None:
    (complaint,) = outcome(memory_bytes=[100 * MIB, 103 * MIB, 106 * MIB]).complaints()

    assert complaint.startswith("GREW")


def test_what_was_reached_is_said() -> None:
    assert "500 and 2,000 a second" in outcome().lines()[0]


def test_as_many_topics_are_allowed_as_come_until_they_go() -> None:
    settings = ChurnSettings(connections_per_s=500, topics_per_s=2000, duration_s=120)

    assert settings.topics_per_connection == 4
    assert "max_topics = 80000" in settings.broker_settings


def test_rates_and_duration_are_options() -> None:
    assert parse(["--churn"]).churn == ChurnSettings(connections_per_s=500, topics_per_s=2000, duration_s=120)
    asked = parse(["--churn", "5", "--churn-connections", "10", "--churn-topics", "20"]).churn
    assert asked == ChurnSettings(connections_per_s=10, topics_per_s=20, duration_s=5)
    assert parse([]).churn is None
