"""The isolation figures mean nothing unless the flood was one; these are the ways in which it was not."""

from __future__ import annotations

import socket
import tomllib
from typing import Final

import pytest

from benchmarks.broken import Broken
from benchmarks.measuring.isolation import raise_if_not_a_flood, settings
from benchmarks.roles.flood import FloodReport, is_connected
from benchmarks.scenarios import SCENARIOS, Isolation
from benchmarks.session import Session

BLOCK: Final = Isolation(name="block", title="block", slow_subscriber="block", holds_back=True)
DROP: Final = Isolation(name="drop", title="drop", slow_subscriber="drop-oldest", holds_back=False)


def flooded(*, late: int, is_subscriber_connected: bool = True) -> FloodReport:
    return FloodReport(
        messages=1000,
        messages_late=late,
        elapsed_s=1.0,
        processor_s=0.1,
        is_subscriber_connected=is_subscriber_connected,
    )


@pytest.mark.parametrize("scenario", [one for one in SCENARIOS if isinstance(one, Isolation)], ids=lambda one: one.name)
def test_the_policy_is_set_for_the_flooded_topics_alone_and_nobody_is_disconnected_meanwhile(
    scenario: Isolation,
) -> None:
    written = tomllib.loads(settings(scenario))

    assert written["memory_limit"] == "512 MiB"
    [topics] = written["topics"]
    assert topics["pattern"] == "flood.>"
    assert topics["slow_subscriber"] == scenario.slow_subscriber
    assert topics["block_timeout_s"] > 2 * scenario.duration_s


@pytest.mark.parametrize(
    ("scenario", "report"), [(BLOCK, flooded(late=0)), (DROP, flooded(late=500))], ids=["block", "drop"]
)
def test_a_flood_that_goes_as_its_policy_says_is_accepted(scenario: Isolation, report: FloodReport) -> None:
    raise_if_not_a_flood(scenario, report)


@pytest.mark.parametrize(
    ("scenario", "report", "complaint"),
    [
        (BLOCK, flooded(late=1), "1 messages passed in spite of block"),
        (DROP, flooded(late=0), "held back in spite of drop-oldest"),
        (BLOCK, flooded(late=0, is_subscriber_connected=False), "disconnected, in spite of block"),
    ],
    ids=["not held back", "held back", "disconnected"],
)
def test_a_policy_that_is_not_kept_is_reported_as_broken(
    scenario: Isolation, report: FloodReport, complaint: str
) -> None:
    with pytest.raises(Broken, match=complaint):
        raise_if_not_a_flood(scenario, report)


def test_a_subscriber_that_was_disconnected_finds_the_end_behind_what_it_had_not_read() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            theirs.sendall(b"x" * 1000)

        assert not is_connected(Session(ours), silence_s=0.001)


def test_a_subscriber_that_finds_no_end_is_still_connected() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"x" * 1000)

        assert is_connected(Session(ours), silence_s=0.001)
