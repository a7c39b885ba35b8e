"""A long run is cut into slices, and flat if the last ones cost what earlier ones did."""

from __future__ import annotations

from array import array

import pytest

from benchmarks.measuring.backlog import MEBIBYTE
from benchmarks.scaling.long_run import LongRun, Sample, flatness, slices_of
from tests.benchmarks.scaling.made_growth import slices

MILLISECOND_NS = 1_000_000


@pytest.mark.parametrize(("minutes", "count", "slice_s"), [(0.2, 12, 1.0), (2, 12, 10.0), (14, 16, 52.5), (60, 60, 60)])
def test_slices_are_a_multiple_of_four_and_about_a_minute_at_most(minutes: float, count: int, slice_s: float) -> None:
    run = LongRun(minutes=minutes)

    assert run.slices == count
    assert run.slice_s == pytest.approx(slice_s)


def test_a_slice_has_what_was_used_and_received_in_it() -> None:
    run = LongRun(minutes=0.2, messages_per_s=1000, timed_per_s=10)
    samples = [Sample(float(at), at * 0.05, (100 + at) * MEBIBYTE) for at in range(13)]
    latencies_ns = array("q", [number // 10 * MILLISECOND_NS for number in range(120)])

    found = slices_of(run, samples, latencies_ns)

    assert len(found) == 12
    assert [each.cost_us for each in found] == pytest.approx([50.0] * 12)
    assert [each.p99_ms for each in found] == list(range(12))
    assert [each.memory_mib for each in found] == [101 + number for number in range(12)]


def test_a_sample_behind_the_end_of_the_run_is_no_slice() -> None:
    run = LongRun(minutes=0.2)
    samples = [Sample(float(at), 0.1 * at, 0) for at in range(14)]

    assert len(slices_of(run, samples, array("q", range(120)))) == 12


def test_a_run_is_flat_if_the_last_quarter_costs_what_the_second_did_whatever_the_first_cost() -> None:
    assert flatness(slices(*[90.0] * 3, *[50.0] * 6, *[50.0] * 3)) == 1.0
    assert flatness(slices(*[50.0] * 3, *[50.0] * 6, *[75.0] * 3)) == 1.5
