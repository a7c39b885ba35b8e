"""Whether a topic suffers when another one is flooded and its subscriber does not read.

Both phases run on one broker with the same schedule, the quiet one first; the flood begins with the second, so its
onset is measured too. The steady topic loses nothing. The subscriber that does not read is still connected at the end,
and under a policy that holds publishers back the flood has stopped by then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.broken import Broken
from benchmarks.broker_watch import BrokerWatch
from benchmarks.measurement import Figure, FigureKey, Measurement, ProcessorShare, Unit
from benchmarks.measuring.latency import compared_latencies, raise_if_not_in_order
from benchmarks.role_process import RoleProcess
from benchmarks.roles import flood, paced
from benchmarks.roles.child_end import Go, Stage, Stop
from benchmarks.roles.flood import FloodAssignment, FloodReport
from benchmarks.roles.paced import PacedAssignment

if TYPE_CHECKING:
    from benchmarks.scenarios import Isolation
    from benchmarks.target import Target

_MEBIBYTE = 1024 * 1024
#: Longer than any measurement, so that `block` does not disconnect the subscriber.
_BLOCK_TIMEOUT_S = 600


def settings(scenario: Isolation) -> str:
    return f"""\
memory_limit = "{scenario.memory_limit_mib} MiB"

[[topics]]
pattern = "flood.>"
slow_subscriber = "{scenario.slow_subscriber}"
block_timeout_s = {_BLOCK_TIMEOUT_S}
"""


def measure(scenario: Isolation, target: Target, stall_s: float) -> Measurement:
    steady = PacedAssignment(
        address=target.address,
        destination="/topic/steady.benchmark",
        body_bytes=scenario.body_bytes,
        messages_per_s=scenario.messages_per_s,
        messages=round(scenario.messages_per_s * scenario.duration_s),
        stall_s=stall_s,
    )
    flooding = FloodAssignment(
        address=target.address,
        destination="/topic/flood.benchmark",
        body_bytes=scenario.flood_body_bytes,
        settles_after_s=scenario.duration_s / 2,
    )
    watch = BrokerWatch(target, measures_memory=True)
    with RoleProcess(paced.run, steady, watch=watch.look) as alone_process:
        alone_process.wait_stage(Stage.READY)
        alone_process.tell(Go())
        alone = alone_process.wait_report()
    with (
        RoleProcess(paced.run, steady, watch=watch.look) as beside_process,
        RoleProcess(flood.run, flooding, watch=watch.look) as flood_process,
    ):
        beside_process.wait_stage(Stage.READY)
        flood_process.wait_stage(Stage.READY)
        watch.restart()
        beside_process.tell(Go())
        flood_process.tell(Go())
        beside = beside_process.wait_report()
        machine_share, broker_share = watch.machine_share(), watch.broker_share()
        flood_process.tell(Stop())
        flooded = flood_process.wait_report()
    for report in (alone, beside):
        raise_if_not_in_order(report)
    raise_if_not_a_flood(scenario, flooded)

    return Measurement(
        scenario=scenario.name,
        figures=(
            Figure(name="steady rate", value=beside.received / beside.elapsed_s, unit=Unit.PER_SECOND),
            *compared_latencies(scenario.name, alone, beside),
            _flood_figure(scenario, flooded),
            Figure(
                name="peak memory",
                value=watch.peak_resident_bytes / _MEBIBYTE,
                unit=Unit.MEBIBYTES,
                compared_with=FigureKey(scenario.name, "memory limit"),
            ),
            Figure(name="memory limit", value=scenario.memory_limit_mib, unit=Unit.MEBIBYTES),
        ),
        machine=machine_share,
        broker=broker_share,
        generators=(
            ProcessorShare("steady", beside.processor_s / beside.elapsed_s),
            ProcessorShare("flood", flooded.processor_s / flooded.elapsed_s),
        ),
        is_paced=True,
    )


def _flood_figure(scenario: Isolation, report: FloodReport) -> Figure:
    if scenario.holds_back:
        taken_bytes = report.messages * scenario.flood_body_bytes
        return Figure(name="flood stopped after", value=taken_bytes / _MEBIBYTE, unit=Unit.MEBIBYTES)
    return Figure(name="flood", value=report.messages / report.elapsed_s, unit=Unit.PER_SECOND)


def raise_if_not_a_flood(scenario: Isolation, report: FloodReport) -> None:
    """Check what the policy promises about the flooded topic; otherwise isolation was not tested."""
    if not report.is_subscriber_connected:
        raise Broken(f"the subscriber that does not read was disconnected, in spite of {scenario.slow_subscriber}")
    if scenario.holds_back and report.messages_late:
        raise Broken(f"{report.messages_late:,} messages passed in spite of {scenario.slow_subscriber}")
    if not scenario.holds_back and not report.messages_late:
        raise Broken(f"the flood was held back in spite of {scenario.slow_subscriber}")
