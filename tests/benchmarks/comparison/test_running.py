"""What becomes of a round in which something breaks."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from benchmarks.broken import Broken
from benchmarks.comparison.results import Outcome, Unmeasured
from benchmarks.comparison.running import ComparedRound
from benchmarks.comparison.sittings import chosen
from benchmarks.peers.peer import Installed, Peer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from benchmarks.target import Target


def test_a_scenario_of_ours_alone_starts_no_other_broker() -> None:
    def open_never(settings: str) -> AbstractContextManager[Target]:
        raise AssertionError("it was started")

    peer = Peer(name="other", title="Other", configuration="", installed=lambda: Installed("1"), open=open_never)
    outcomes: list[Outcome] = []

    sittings = chosen(frozenset({"report-day", "topics-10000"}), is_quick=True)
    ComparedRound(1, broke={}, announce=lambda *_: None, note=outcomes.append).run(sittings, [peer])

    assert sittings
    assert outcomes == []


def test_what_broke_is_not_tried_in_the_next_round_and_noted_again() -> None:
    opened: list[str] = []

    @contextmanager
    def open_one_that_dies(settings: str) -> Iterator[Target]:
        opened.append(settings)
        raise Broken("it died")
        yield

    peer = Peer(
        name="frail", title="Frail", configuration="", installed=lambda: Installed("1"), open=open_one_that_dies
    )
    sittings = chosen(frozenset({"latency"}), is_quick=True)
    outcomes: list[Outcome] = []

    ComparedRound(1, broke={}, announce=lambda *_: None, note=outcomes.append).run(sittings, [peer])
    (first,) = outcomes
    assert first.found == Unmeasured("it died", is_broken=True)
    assert len(opened) == 1

    broke = {("frail", "latency"): first.found}
    ComparedRound(2, broke=broke, announce=lambda *_: None, note=outcomes.append).run(sittings, [peer])

    assert len(opened) == 1
    assert [(outcome.round_number, outcome.found) for outcome in outcomes] == [(1, first.found), (2, first.found)]
