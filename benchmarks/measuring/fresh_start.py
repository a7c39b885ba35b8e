"""How long a broker takes from a start on an empty store to its first CONNECTED, and the memory of its processes then.

The broker has already been started and had a client; this reads how that went.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.broker_watch import BrokerWatch
from benchmarks.measurement import Figure, Measurement, Unit
from benchmarks.measuring.backlog import MEBIBYTE

if TYPE_CHECKING:
    from benchmarks.scenarios import FreshStart
    from benchmarks.target import Target


def measure(scenario: FreshStart, target: Target) -> Measurement:
    watch = BrokerWatch(target, measures_memory=True)
    return Measurement(
        scenario=scenario.name,
        figures=(
            Figure(name="start", value=target.started_in_s, unit=Unit.SECONDS),
            Figure(name="memory", value=watch.peak_resident_bytes / MEBIBYTE, unit=Unit.MEBIBYTES),
        ),
        machine=watch.machine_share(),
        broker=watch.broker_share(),
        generators=(),
    )
