"""A short run of `make soak ARGS="--client"`, and its judge: it sees what it should."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from soak.client_run import ClientSettings, Record, Seen, judge, run_client

if TYPE_CHECKING:
    from pathlib import Path

TOPIC, QUEUE = "/topic/client", "/queue/client"


def test_a_client_keeps_its_promises_while_its_broker_comes_and_goes(store_directory: Path) -> None:
    outcome = run_client(ClientSettings(messages=300, interruptions=3, seed=3), store_directory)

    assert outcome.complaints == []
    assert outcome.interruptions.total() >= 3
    assert min(outcome.seen.published.values()) >= 300
    assert outcome.seen.calls["answered"]


def seen_by_all(bodies: dict[str, bytes]) -> Seen:
    """Publisher 0 has published 3 messages to the topic, and publisher 2 none to the queue."""
    return Seen(
        published={0: 3, 2: 0},
        publishers={TOPIC: [0], QUEUE: [2]},
        bodies={"reader": bodies, "auditor": bodies, QUEUE: {}},
    )


def recorded(*ids: str, outcome: str = "acked") -> list[Record]:
    """In this order in the log."""
    return [
        Record(TOPIC, subscription, offset, id, outcome)
        for subscription in ("reader", "auditor")
        for offset, id in enumerate(ids)
    ]


GOOD = {"a": b"0 1", "b": b"0 2", "c": b"0 3", "d": b"end"}


def test_nothing_is_said_against_what_is_right() -> None:
    assert judge(seen_by_all(GOOD), reversed(recorded("a", "b", "c", "d"))) == []


@pytest.mark.parametrize(
    ("bodies", "records", "fault"),
    [
        (GOOD, recorded("a", "c", "d"), "LOST of publisher 0"),
        (GOOD | {"e": b"0 2"}, recorded("a", "b", "c", "e", "d"), "DOUBLED of publisher 0"),
        (GOOD, recorded("b", "a", "c", "d"), "DISORDERED of publisher 0"),
        (GOOD, recorded("a", "b", "c", "d", "c"), "RECORDED TWICE"),
        (GOOD, recorded("a", "b", "c", "d", outcome="dead"), "UNACKNOWLEDGED"),
        (GOOD, recorded("a", "b", "c", "d", "x"), "INVENTED"),
    ],
)
def test_the_judge_sees(bodies: dict[str, bytes], records: list[Record], fault: str) -> None:
    complaints = judge(seen_by_all(bodies), records)

    assert any(complaint.startswith(f"{fault}, reader: ") for complaint in complaints), complaints
    assert any(complaint.startswith(f"{fault}, auditor: ") for complaint in complaints), complaints


def test_an_answer_for_somebody_else_is_wrong() -> None:
    seen = seen_by_all(GOOD)
    seen.wrong_answers = 1

    assert judge(seen, recorded("a", "b", "c", "d")) == ["WRONG: 1 calls got another's answer"]
