"""What a message costs the broker, minute after minute.

Durable 1 → 1 at a fixed rate with ledger and statistics, so that every slice of the run has the same work. The cost is
the broker's processor time per message. It is flat if the last quarter costs as much as the second; the first is left
out, because caches fill and files grow in it.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from benchmarks.broker_watch import BrokerWatch
from benchmarks.measuring.backlog import MEBIBYTE
from benchmarks.measuring.latency import raise_if_not_in_order
from benchmarks.percentiles import percentile
from benchmarks.role_process import RoleProcess
from benchmarks.roles import paced
from benchmarks.roles.child_end import Go, Stage
from benchmarks.roles.paced import PacedAssignment

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Sequence

    from benchmarks.target import Target

_QUARTERS: Final = 4
#: Runs shorter than so many minutes have slices of less than a minute.
_FEWEST_SLICES: Final = 12
_MILLISECOND_NS: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LongRun:
    minutes: float
    #: Messages a second, of which `timed_per_s` are timed.
    messages_per_s: int = 5000
    timed_per_s: int = 200
    body_bytes: int = 256

    @property
    def slices(self) -> int:
        """A multiple of four."""
        return _QUARTERS * max(_FEWEST_SLICES // _QUARTERS, round(self.minutes / _QUARTERS))

    @property
    def slice_s(self) -> float:
        return self.minutes * 60 / self.slices


@dataclass(frozen=True, slots=True)
class Sample:
    """The broker at one instant."""

    at_s: float
    processor_s: float
    resident_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    #: Since the start of the run, when it ended.
    ended_at_s: float
    cost_us: float
    p99_ms: float
    memory_mib: float


def measure(run: LongRun, target: Target, stall_s: float, show: Callable[[str], None]) -> tuple[Slice, ...]:
    """Raises `Broken`."""
    assignment = PacedAssignment(
        address=target.address,
        destination="/topic/benchmark",
        body_bytes=run.body_bytes,
        messages_per_s=run.timed_per_s,
        messages=round(run.timed_per_s * run.minutes * 60),
        companions=run.messages_per_s // run.timed_per_s - 1,
        is_durable=True,
        stall_s=stall_s,
    )
    samples: list[Sample] = []
    started_at = 0.0

    def sample() -> None:
        elapsed_s = time.monotonic() - started_at
        if started_at and elapsed_s >= len(samples) * run.slice_s:
            samples.append(Sample(elapsed_s, target.processor_s(), target.resident_bytes()))

    watch = BrokerWatch(target, also=sample)
    with RoleProcess(
        paced.run,
        assignment,
        watch=watch.look,
        show_progress=lambda timed: show(f"{timed / run.timed_per_s / 60:.1f} of {run.minutes:g} minutes"),
    ) as process:
        process.wait_stage(Stage.READY)
        started_at = time.monotonic()
        sample()
        process.tell(Go())
        report = process.wait_report()
    samples.append(Sample(time.monotonic() - started_at, target.processor_s(), target.resident_bytes()))
    raise_if_not_in_order(report)
    return slices_of(run, samples, report.latencies_ns)


def slices_of(run: LongRun, samples: Sequence[Sample], latencies_ns: array[int]) -> tuple[Slice, ...]:
    """Slices from samples at their borders; the last sample may be a little late."""
    found: list[Slice] = []
    for number, (before, after) in enumerate(pairwise(samples[: run.slices + 1])):
        timed = latencies_ns[_border(run, number, latencies_ns) : _border(run, number + 1, latencies_ns)]
        messages = run.messages_per_s * (after.at_s - before.at_s)
        found.append(
            Slice(
                ended_at_s=after.at_s,
                cost_us=(after.processor_s - before.processor_s) / messages * 1e6,
                p99_ms=percentile(sorted(timed), 990) / _MILLISECOND_NS,
                memory_mib=after.resident_bytes / MEBIBYTE,
            )
        )
    return tuple(found)


def _border(run: LongRun, number: int, latencies_ns: array[int]) -> int:
    return len(latencies_ns) * number // run.slices


def flatness(slices: Sequence[Slice]) -> float:
    """Cost of a message in the last quarter over that in the second: 1 if it is flat."""
    quarter = len(slices) // _QUARTERS
    last, second = slices[-quarter:], slices[quarter : 2 * quarter]
    return statistics.fmean(each.cost_us for each in last) / statistics.fmean(each.cost_us for each in second)
