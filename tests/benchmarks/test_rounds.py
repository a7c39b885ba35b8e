"""What a round makes of a measurement in which a promise was broken."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from benchmarks.measurement import Figure, Measurement, ProcessorShare, Unit
from benchmarks.measuring import nack_everything
from benchmarks.report import amount
from benchmarks.rounds import Breakage, run_round
from benchmarks.scenarios import NackEverything
from tests.benchmarks.scripted_server import Script, ScriptedServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

    from benchmarks.target import Target

SCENARIO: Final = NackEverything(name="nack", title="nack")
MEASURED: Final = Measurement(
    scenario="nack",
    figures=(Figure(name="rows", value=3, unit=Unit.ROWS),),
    machine=ProcessorShare("machine", 1.0),
    broker=ProcessorShare("broker", 1.0),
    generators=(),
)


@contextmanager
def idle_server(settings: str) -> Iterator[Target]:
    with ScriptedServer(Script()) as server:
        yield server


def test_a_promise_that_was_broken_is_reported_beside_the_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = replace(MEASURED, broken=("too many",))
    monkeypatch.setattr(nack_everything, "measure", lambda *_: measured)

    found = run_round([SCENARIO], 3, open_target=idle_server, announce=lambda *_: None)

    assert found.measurements == (measured,)
    assert found.breakages == (Breakage(scenario="nack", round_number=3, text="too many"),)


def test_what_is_counted_is_shown_as_a_whole_number() -> None:
    assert amount(3, Unit.ROWS) == "3"
    assert amount(12_345, Unit.MESSAGES) == "12,345"
    assert amount(3, Unit.SECONDS) == "3.00"
