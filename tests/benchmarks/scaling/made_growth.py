"""Growth with made-up numbers: what a run finds, without one."""

from __future__ import annotations

from benchmarks.comparison.results import OURS, Unmeasured
from benchmarks.measurement import Figure, Measurement, ProcessorShare, Unit
from benchmarks.scaling.long_run import LongRun, Slice
from benchmarks.scaling.results import Growth, LongRunFound
from tests.benchmarks.comparison.made_results import CONTESTANTS, outcome, results_of, unmeasured

RUN = LongRun(minutes=2.0)


def point(name: str, deliveries: float, cost_us: float, *, publisher_share: float = 0.1) -> Measurement:
    return Measurement(
        scenario=name,
        figures=(
            Figure(name="deliveries", value=deliveries, unit=Unit.PER_SECOND),
            Figure(name="broker per delivery", value=cost_us, unit=Unit.MICROSECONDS),
        ),
        machine=ProcessorShare("machine", 1.2),
        broker=ProcessorShare("broker", 0.95),
        generators=(ProcessorShare("publisher", publisher_share), ProcessorShare("subscriber", 0.2)),
    )


def slices(*costs_us: float) -> tuple[Slice, ...]:
    return tuple(
        Slice(ended_at_s=10.0 * number, cost_us=cost_us, p99_ms=1.5, memory_mib=120.0)
        for number, cost_us in enumerate(costs_us, start=1)
    )


def growth(long_run: LongRunFound | Unmeasured | None = None) -> Growth:
    """Two points of the subscribers, in two rounds, one of the bodies, and one of the topics that broke."""
    return Growth(
        series=results_of(
            outcome(OURS, 1, point("subscribers-1", 400_000, 2.0)),
            outcome(OURS, 2, point("subscribers-1", 600_000, 2.0)),
            outcome(OURS, 1, point("subscribers-10", 1_500_000, 0.5, publisher_share=0.99)),
            outcome(OURS, 2, point("subscribers-10", 1_500_000, 0.5, publisher_share=0.99)),
            outcome(OURS, 1, point("body-1048576", 500, 2_000.0)),
            unmeasured(OURS, "topics-10", "it died\nwith a log", is_broken=True),
            contestants=CONTESTANTS[:1],
        ),
        long_run=long_run,
    )
