"""How much memory a broker uses after many messages have gone through it.

One publisher, one subscriber, a topic that keeps nothing: what remains is the broker's own.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from benchmarks.broker_watch import BrokerWatch
from benchmarks.measurement import Figure, Unit
from benchmarks.measuring import throughput
from benchmarks.measuring.backlog import MEBIBYTE
from benchmarks.scenarios import Throughput

if TYPE_CHECKING:
    from benchmarks.measurement import Measurement
    from benchmarks.scenarios import PassedThrough
    from benchmarks.target import Target


def measure(scenario: PassedThrough, target: Target, stall_s: float) -> Measurement:
    passing = Throughput(
        name=scenario.name,
        title=scenario.title,
        duration_s=math.inf,
        most_messages=scenario.messages,
        body_bytes=scenario.body_bytes,
    )
    watch = BrokerWatch(target, measures_memory=True)
    before_bytes = target.resident_bytes()
    measured = throughput.measure(passing, target, stall_s, watch)
    memory = {
        "memory before": before_bytes,
        "memory after": target.resident_bytes(),
        "peak memory": watch.peak_resident_bytes,
    }
    return replace(
        measured,
        figures=tuple(
            Figure(name=name, value=occupied_bytes / MEBIBYTE, unit=Unit.MEBIBYTES)
            for name, occupied_bytes in memory.items()
        ),
    )
