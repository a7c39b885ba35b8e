"""How long a message takes at a fixed rate, from the moment it was due.

Percentiles are of one run; all messages arrived in order. `roles.paced` explains "due".
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from benchmarks.broken import Broken
from benchmarks.broker_watch import BrokerWatch
from benchmarks.measurement import Figure, FigureKey, Measurement, ProcessorShare, Unit
from benchmarks.percentiles import percentile
from benchmarks.role_process import RoleProcess
from benchmarks.roles import paced
from benchmarks.roles.child_end import Go, Stage
from benchmarks.roles.paced import PacedAssignment, PacedReport

if TYPE_CHECKING:
    from benchmarks.scenarios import Latency
    from benchmarks.target import Target

_MILLISECOND_NS = 1_000_000


def measure(scenario: Latency, target: Target, stall_s: float) -> Measurement:
    assignment = PacedAssignment(
        address=target.address,
        destination="/topic/benchmark",
        body_bytes=scenario.body_bytes,
        messages_per_s=scenario.messages_per_s,
        messages=round(scenario.messages_per_s * scenario.duration_s),
        companions=scenario.companions,
        is_durable=scenario.is_durable,
        stall_s=stall_s,
    )
    watch = BrokerWatch(target)
    with RoleProcess(paced.run, assignment, watch=watch.look) as paced_process:
        paced_process.wait_stage(Stage.READY)
        watch.restart()
        paced_process.tell(Go())
        report = paced_process.wait_report()
        machine_share, broker_share = watch.machine_share(), watch.broker_share()
    raise_if_not_in_order(report)

    return Measurement(
        scenario=scenario.name,
        figures=(
            latency_figure("p50", report, 500),
            latency_figure("p99", report, 990),
            latency_figure("p99.9", report, 999),
            lateness_figure("generator late, p99", report),
        ),
        machine=machine_share,
        broker=broker_share,
        generators=(ProcessorShare("generator", report.processor_s / report.elapsed_s),),
        is_paced=True,
    )


def raise_if_not_in_order(report: PacedReport) -> None:
    if report.received < report.sent:
        raise Broken(f"{report.sent - report.received:,} of {report.sent:,} messages are lost")
    if report.misplaced:
        raise Broken(f"{report.misplaced:,} of {report.sent:,} messages came twice or out of order")


def latency_figure(name: str, report: PacedReport, thousandths: int) -> Figure:
    value_ns = percentile(sorted(report.latencies_ns), thousandths)
    return Figure(name=name, value=value_ns / _MILLISECOND_NS, unit=Unit.MILLISECONDS)


def compared_latencies(scenario: str, alone: PacedReport, beside: PacedReport) -> tuple[Figure, ...]:
    """p50 and p99 of the same traffic, alone and beside a disturbance, the second compared with the first."""
    figures: list[Figure] = []
    for name, thousandths in (("p50", 500), ("p99", 990)):
        quiet = latency_figure(f"{name} alone", alone, thousandths)
        compared_with = FigureKey(scenario, quiet.name)
        figures += [
            quiet,
            replace(latency_figure(f"{name} beside", beside, thousandths), compared_with=compared_with),
        ]
    return (*figures, lateness_figure("generator late, p99", beside))


def lateness_figure(name: str, report: PacedReport) -> Figure:
    value_ns = percentile(sorted(report.lateness_ns), 990)
    return Figure(name=name, value=value_ns / _MILLISECOND_NS, unit=Unit.MILLISECONDS)
