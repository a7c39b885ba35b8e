"""Whether a durable subscriber that refuses everything disturbs others, and what it costs the broker.

An ordinary durable topic is measured twice on one broker, each time at a fixed rate and then at full speed: alone, and
beside a subscriber that attaches to the backlog of another topic and refuses all of it. The broker's own back-off
decides the waits, so refused messages come in waves: at once, and about 1, 3 and 7 s later. The paced part sees the
first of these, the fast part a later one. Statistics are requested at the same rate in both.

At most `max_waiting` messages may wait for redelivery; if more do, the figures are still shown. The ordinary topic
loses nothing.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final, final

from benchmarks.broker_watch import BrokerWatch
from benchmarks.durable_identity import DurableIdentity
from benchmarks.measurement import Figure, FigureKey, Measurement, ProcessorShare, Unit
from benchmarks.measuring import throughput
from benchmarks.measuring.backlog import MEBIBYTE, Filling, fill, subscribe_and_leave
from benchmarks.measuring.latency import compared_latencies, raise_if_not_in_order
from benchmarks.operating import ask
from benchmarks.role_process import RoleProcess
from benchmarks.roles import paced, refuser
from benchmarks.roles.child_end import Go, Stage, Stop
from benchmarks.roles.paced import PacedAssignment, PacedReport
from benchmarks.roles.refuser import RefuserAssignment
from benchmarks.scenarios import Throughput
from benchmarks.stored import Stored

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.scenarios import NackEverything
    from benchmarks.target import Target

_REFUSED: Final = "/topic/refused"
_REFUSER: Final = DurableIdentity(client_id="refuser", name="everything")
_KIBIBYTE: Final = 1024
#: Seconds between two samples of what waits.
_LOOK_S: Final = 0.2
#: Extra seconds for a slow machine to refuse so much that `max_waiting` is reached.
_TO_THE_BOUND_S: Final = 15.0


def settings(scenario: NackEverything) -> str:
    return f"max_waiting = {scenario.max_waiting}\n"


def measure(scenario: NackEverything, target: Target, stall_s: float, show: Callable[[str], None]) -> Measurement:
    subscribe_and_leave(target, _REFUSER, _REFUSED)
    filling = Filling(
        destination=_REFUSED,
        messages=scenario.max_waiting * scenario.backlog_factor,
        body_bytes=scenario.body_bytes,
        receipt_window=scenario.receipt_window,
    )
    fill(filling, target, BrokerWatch(target), stall_s, show)
    refusing = RefuserAssignment(address=target.address, destination=_REFUSED, identity=_REFUSER)
    with Stored(target.data) as stored:
        waiting = WaitingWatch(target, stored)
        alone_watch = BrokerWatch(target, measures_memory=True, also=waiting.look)
        paced_alone = _measure_paced(scenario, target, stall_s, alone_watch)
        fast_alone = throughput.measure(_fast(scenario), target, stall_s, alone_watch)
        beside_watch = BrokerWatch(target, measures_memory=True, also=waiting.look)
        with RoleProcess(refuser.run, refusing, watch=beside_watch.look) as refusing_process:
            refusing_process.wait_stage(Stage.READY)
            paced_beside = _measure_paced(
                scenario, target, stall_s, beside_watch, begin=lambda: refusing_process.tell(Go())
            )
            machine_share, broker_share = beside_watch.machine_share(), beside_watch.broker_share()
            fast_beside = throughput.measure(_fast(scenario), target, stall_s, beside_watch)
            waiting.look_until(scenario.max_waiting, _TO_THE_BOUND_S)
            refusing_process.tell(Stop())
            refused = refusing_process.wait_report()

    return Measurement(
        scenario=scenario.name,
        figures=(
            *_rate_figures(scenario, fast_alone, fast_beside),
            *compared_latencies(scenario.name, paced_alone, paced_beside),
            Figure(name="refused", value=refused.refused, unit=Unit.MESSAGES),
            Figure(
                name="waiting at most",
                value=waiting.most,
                unit=Unit.MESSAGES,
                compared_with=FigureKey(scenario.name, "max_waiting"),
            ),
            Figure(name="max_waiting", value=scenario.max_waiting, unit=Unit.MESSAGES),
            Figure(name="redelivery rows at most", value=waiting.most_redelivery_rows, unit=Unit.ROWS),
            Figure(name="cursor rows at most", value=waiting.most_cursor_rows, unit=Unit.ROWS),
            Figure(name="largest cursor", value=waiting.largest_cursor_bytes / _KIBIBYTE, unit=Unit.KIBIBYTES),
            Figure(name="peak memory alone", value=alone_watch.peak_resident_bytes / MEBIBYTE, unit=Unit.MEBIBYTES),
            Figure(
                name="peak memory beside",
                value=beside_watch.peak_resident_bytes / MEBIBYTE,
                unit=Unit.MEBIBYTES,
                compared_with=FigureKey(scenario.name, "peak memory alone"),
            ),
        ),
        machine=machine_share,
        broker=broker_share,
        generators=(
            ProcessorShare("paced", paced_beside.processor_s / paced_beside.elapsed_s),
            ProcessorShare("refuser", refused.processor_s / refused.elapsed_s),
        ),
        is_paced=True,
        broken=broken_promises(scenario, waiting.most),
    )


def _measure_paced(
    scenario: NackEverything,
    target: Target,
    stall_s: float,
    watch: BrokerWatch,
    *,
    begin: Callable[[], None] = lambda: None,
) -> PacedReport:
    """`begin` is called when the schedule begins."""
    assignment = PacedAssignment(
        address=target.address,
        destination=throughput.DESTINATION,
        body_bytes=scenario.body_bytes,
        messages_per_s=scenario.messages_per_s,
        messages=round(scenario.messages_per_s * scenario.duration_s),
        is_durable=True,
        stall_s=stall_s,
    )
    with RoleProcess(paced.run, assignment, watch=watch.look) as process:
        process.wait_stage(Stage.READY)
        watch.restart()
        process.tell(Go())
        begin()
        report = process.wait_report()
    raise_if_not_in_order(report)
    return report


def _fast(scenario: NackEverything) -> Throughput:
    return Throughput(
        name=scenario.name,
        title=scenario.title,
        duration_s=scenario.duration_s / 2,
        body_bytes=scenario.body_bytes,
        acknowledges=True,
        is_durable=True,
        receipt_window=scenario.receipt_window,
    )


def _rate_figures(scenario: NackEverything, alone: Measurement, beside: Measurement) -> tuple[Figure, Figure]:
    without = replace(alone.figures[0], name="rate alone", compared_with=None)
    return (
        without,
        replace(beside.figures[0], name="rate beside", compared_with=FigureKey(scenario.name, without.name)),
    )


def broken_promises(scenario: NackEverything, most_waiting: int) -> tuple[str, ...]:
    if most_waiting <= scenario.max_waiting:
        return ()
    return (f"{most_waiting:,} messages waited to be sent again, in spite of max_waiting {scenario.max_waiting:,}",)


@final
class WaitingWatch:
    """The maximum that waits for the refusing subscriber, in memory and on disk."""

    def __init__(self, target: Target, stored: Stored) -> None:
        self._target = target
        self._stored = stored
        self._next_at = 0.0
        self.most = 0
        self.most_redelivery_rows = 0
        self.most_cursor_rows = 0
        self.largest_cursor_bytes = 0

    def look(self) -> None:
        """May be called at any rate; samples a few times a second."""
        if time.monotonic() < self._next_at:
            return
        key = f"{_REFUSER.client_id}/{_REFUSER.name}"
        found = ask(self._target.data, "subscriptions", durable=True, q=key)["subscriptions"]
        self.most = max([self.most, *(each["waiting"] for each in found)])
        self.most_redelivery_rows = max(self.most_redelivery_rows, self._stored.row_count("redeliveries"))
        self.most_cursor_rows = max(self.most_cursor_rows, self._stored.row_count("cursors"))
        self.largest_cursor_bytes = max(self.largest_cursor_bytes, self._stored.largest_cursor_bytes())
        self._next_at = time.monotonic() + _LOOK_S

    def look_until(self, bound: int, patience_s: float) -> None:
        """Sample until so many have waited at once, or until the time is over."""
        gives_up_at = time.monotonic() + patience_s
        while self.most < bound and time.monotonic() < gives_up_at:
            time.sleep(_LOOK_S)
            self.look()
