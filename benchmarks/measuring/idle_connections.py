"""The cost of an idle connection, and how fast connections are made.

Memory is the growth of the broker's resident set divided by the number of connections. The role's first connection pays
for lazy imports and caches beforehand. At the end every connection is served once.
"""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING

from benchmarks.broken import Broken
from benchmarks.broker_watch import BrokerWatch
from benchmarks.measurement import Figure, Measurement, ProcessorShare, Unit
from benchmarks.role_process import RoleProcess
from benchmarks.roles import idle_crowd
from benchmarks.roles.child_end import Go, Stage
from benchmarks.roles.idle_crowd import IdleCrowdAssignment

if TYPE_CHECKING:
    from benchmarks.scenarios import IdleConnections
    from benchmarks.target import Target

_KIBIBYTE = 1024
#: File descriptors that the broker and the role need besides one per connection.
_SPARE_DESCRIPTORS = 100


def measure(scenario: IdleConnections, target: Target, stall_s: float) -> Measurement:
    assignment = IdleCrowdAssignment(
        address=target.address,
        destination="/topic/benchmark",
        connections=scenario.connections,
        body_bytes=scenario.body_bytes,
        stall_s=stall_s,
    )
    watch = BrokerWatch(target)
    with RoleProcess(idle_crowd.run, assignment, watch=watch.look) as crowd_process:
        crowd_process.wait_stage(Stage.READY)
        resident_before = target.resident_bytes()
        watch.restart()
        crowd_process.tell(Go())
        crowd_process.wait_stage(Stage.CROWD_CONNECTED)
        machine_share, broker_share = watch.machine_share(), watch.broker_share()
        resident_after = target.resident_bytes()
        crowd_process.tell(Go())
        report = crowd_process.wait_report()
    if report.served != scenario.connections:
        raise Broken(
            f"{scenario.connections - report.served:,} of {scenario.connections:,} got not exactly one message"
        )

    return Measurement(
        scenario=scenario.name,
        figures=(
            Figure(
                name="memory per connection",
                value=(resident_after - resident_before) / scenario.connections / _KIBIBYTE,
                unit=Unit.KIBIBYTES,
            ),
            Figure(name="connects", value=scenario.connections / report.connecting_s, unit=Unit.PER_SECOND),
            Figure(name="one message to all", value=report.serving_s * 1000, unit=Unit.MILLISECONDS),
        ),
        machine=machine_share,
        broker=broker_share,
        generators=(ProcessorShare("generator", report.processor_s / report.connecting_s),),
    )


def allow_open_files(connections: int) -> None:
    """Raise this process's limit of open files, which broker and roles inherit, as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + _SPARE_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < needed:
        most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
