"""How long a start takes with a backlog, against an empty store, and how much memory the broker needs with it.

A start is timed from the new process to the line with its address. The very first start is not counted: it creates the
tables and compiles the code. The backlog is filled through the broker; the start after a kill finds a write-ahead log
that was not checkpointed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.broker_watch import BrokerWatch
from benchmarks.measurement import Figure, FigureKey, Measurement, ProcessorShare, Unit
from benchmarks.measuring.backlog import (
    ABSENT,
    DESTINATION,
    MEBIBYTE,
    drain,
    fill,
    filling_of,
    raise_if_not_drained,
    subscribe_and_leave,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.scenarios import StartUp
    from benchmarks.target import Target


def measure(scenario: StartUp, target: Target, stall_s: float, show: Callable[[str], None]) -> Measurement:
    target.restart()
    empty_s, empty_bytes = target.started_in_s, target.resident_bytes()
    subscribe_and_leave(target, ABSENT, DESTINATION)
    filled = fill(filling_of(scenario), target, BrokerWatch(target), stall_s, show)
    filling_s = filled.finished_at - filled.started_at
    target.restart(is_killed=True)
    killed_s = target.started_in_s
    target.restart()
    full_s, full_bytes = target.started_in_s, target.resident_bytes()
    watch = BrokerWatch(target, measures_memory=True)
    drained = drain(scenario.messages, target, watch, stall_s, show)
    machine_share, broker_share = watch.machine_share(), watch.broker_share()
    raise_if_not_drained(scenario, drained)

    empty_start = Figure(name="start, empty", value=empty_s * 1000, unit=Unit.MILLISECONDS)
    empty_memory = Figure(name="memory, empty", value=empty_bytes / MEBIBYTE, unit=Unit.MEBIBYTES)
    return Measurement(
        scenario=scenario.name,
        figures=(
            empty_start,
            _beside(scenario, empty_start, "start, backlog", full_s * 1000),
            _beside(scenario, empty_start, "start after a kill", killed_s * 1000),
            empty_memory,
            _beside(scenario, empty_memory, "memory, backlog", full_bytes / MEBIBYTE),
            _beside(scenario, empty_memory, "peak memory, draining", watch.peak_resident_bytes / MEBIBYTE),
            Figure(name="fill", value=scenario.messages / filling_s, unit=Unit.PER_SECOND),
            Figure(name="drain", value=scenario.messages / drained.elapsed_s, unit=Unit.PER_SECOND),
            Figure(name="first message after", value=drained.first_after_s * 1000, unit=Unit.MILLISECONDS),
        ),
        machine=machine_share,
        broker=broker_share,
        generators=(
            ProcessorShare("publisher", filled.processor_s / filling_s),
            ProcessorShare("subscriber", drained.processor_s / drained.elapsed_s),
        ),
    )


def _beside(scenario: StartUp, empty: Figure, name: str, value: float) -> Figure:
    return Figure(name=name, value=value, unit=empty.unit, compared_with=FigureKey(scenario.name, empty.name))
