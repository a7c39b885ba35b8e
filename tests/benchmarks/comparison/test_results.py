"""What a run has found, written to a file and read again."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.comparison.results import from_json, to_json
from benchmarks.measurement import FigureKey, Unit
from tests.benchmarks.comparison.made_results import measured, outcome, results_of, unmeasured


def test_what_is_read_from_the_file_is_what_was_written() -> None:
    found = measured("latency", 0.5, figure="p99", unit=Unit.MILLISECONDS, is_paced=True)
    compared = replace(found.figures[0], compared_with=FigureKey("latency", "p50"))
    results = results_of(
        outcome("stompbroker", 1, replace(found, figures=(*found.figures, compared), broken=("a promise",))),
        unmeasured("nats", "latency", "speaks no STOMP", is_broken=False),
    )

    assert from_json(to_json(results)) == results
