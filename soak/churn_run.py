"""Topics and connections that come and go, beside a steady pair of clients.

Both are processes of their own. Judged are the longest time that the broker's event loop worked between two
checkpoints, and whether its memory stops growing.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from benchmarks.broker_process import running_process
from benchmarks.broker_watch import BrokerWatch
from benchmarks.disk_directory import disk_directory
from benchmarks.percentiles import percentile
from benchmarks.role_process import RoleProcess
from benchmarks.roles.child_end import Go, Stage, Stop
from soak import churning, steady
from soak.churning import ChurnAssignment
from soak.measured_broker import measured
from soak.steady import SteadyAssignment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from benchmarks.broker_process import BrokerProcess
    from benchmarks.target import Target
    from soak.measured_broker import Longest

#: How long the event loop may work between two checkpoints.
MAX_PAUSE_S: Final = 0.05
#: How much memory may grow from the first to the last third of the samples: allocators settle slowly.
MAX_GROWTH: Final = 1.05
#: How long an unused topic stays, and after how many such periods memory is sampled: by then as many go as come.
_TOPIC_IDLE_S: Final = 10.0
_WARM_UP: Final = 3
_STEADY_INTERVAL_S: Final = 0.005
#: Seconds between two memory samples: the kernel holds the broker up for each.
_LOOK_S: Final = 2.0
_MILLION: Final = 1_000_000
_REPORT: Final = "longest.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChurnSettings:
    connections_per_s: float
    topics_per_s: float
    duration_s: float

    @property
    def topics_per_connection(self) -> int:
        return max(1, round(self.topics_per_s / self.connections_per_s))

    @property
    def broker_settings(self) -> str:
        """Twice the expected number, since topics are collected once a second."""
        max_topics = int(2 * self.topics_per_s * (_TOPIC_IDLE_S + 10))
        return f'max_topics = {max_topics}\ntopic_idle_s = {_TOPIC_IDLE_S:g}\nlog_level = "warning"\n'


@dataclass(frozen=True, slots=True, kw_only=True)
class ChurnOutcome:
    elapsed_s: float
    connections: int
    topics: int
    #: Latencies of the steady pair, ascending.
    took_ns: Sequence[int]
    longest: Longest
    #: Share of one processor.
    broker_share: float
    #: Samples after the warm-up, in order.
    memory_bytes: Sequence[int]

    def complaints(self) -> list[str]:
        complaints = []
        if self.longest.step_ns > MAX_PAUSE_S * 1e9:
            complaints.append(f"PAUSED: nobody else had a turn for {_ms(self.longest.step_ns)}")
        before, after = self.memory_before_and_after
        if after > MAX_GROWTH * before:
            complaints.append(f"GREW: from {before / 2**20:.1f} to {after / 2**20:.1f} MiB")
        return complaints

    @property
    def memory_before_and_after(self) -> tuple[int, int]:
        """The maximum of the first and of the last third."""
        third = max(1, len(self.memory_bytes) // 3)
        return max(self.memory_bytes[:third]), max(self.memory_bytes[-third:])

    def lines(self) -> list[str]:
        before, after = self.memory_before_and_after
        took = [_ms(percentile(self.took_ns, share)) for share in (500, 990, 999, 1000)]
        return [
            f"{self.connections:,} connections and {self.topics:,} topics in {self.elapsed_s:.0f} s: "
            f"{self.connections / self.elapsed_s:,.0f} and {self.topics / self.elapsed_s:,.0f} a second, with "
            f"{self.broker_share:.0%} of a processor",
            f"{len(self.took_ns):,} messages beside them took {', '.join(took)} (p50, p99, p99.9, most)",
            f"longest step between two checkpoints, in processor time: {_ms(self.longest.step_ns)}, "
            f"{self.longest.task}; longest search for reference cycles: {_ms(self.longest.search_ns)}",
            f"memory: {before / 2**20:.1f} MiB after the warm-up, {after / 2**20:.1f} MiB at the end",
        ]


def _ms(nanoseconds: int) -> str:
    return f"{nanoseconds / _MILLION:.1f} ms"


def run_churn(settings: ChurnSettings, *, show: Callable[[str], None]) -> ChurnOutcome:
    """Raises `Broken`."""
    with disk_directory("stompbroker-soak-") as directory, _measured_broker(settings, directory) as target:
        report = directory / _REPORT
        memory = _Memory(target)
        watch = BrokerWatch(target, also=memory.look)
        churn = ChurnAssignment(
            address=target.address,
            connections_per_s=settings.connections_per_s,
            topics_per_connection=settings.topics_per_connection,
            duration_s=settings.duration_s,
        )
        pair = SteadyAssignment(address=target.address, interval_s=_STEADY_INTERVAL_S)

        def show_progress(connections: int) -> None:
            show(f"{connections:,} connections, {memory.last_bytes >> 20} MiB")

        with (
            RoleProcess(steady.run, pair, watch=watch.look) as steady_process,
            RoleProcess(churning.run, churn, watch=watch.look, show_progress=show_progress) as churning_process,
        ):
            steady_process.wait_stage(Stage.READY)
            churning_process.wait_stage(Stage.READY)
            watch.restart()
            measured(target.pid, report)  # discards what was measured during the start
            steady_process.tell(Go())
            churning_process.tell(Go())
            churned = churning_process.wait_report()
            broker_share = watch.broker_share().share
            longest = measured(target.pid, report)
            steady_process.tell(Stop())
            steadily = steady_process.wait_report()
    return ChurnOutcome(
        elapsed_s=churned.elapsed_s,
        connections=churned.connections,
        topics=churned.topics,
        took_ns=sorted(steadily.took_ns),
        longest=longest,
        broker_share=broker_share,
        memory_bytes=memory.after(_WARM_UP * _TOPIC_IDLE_S),
    )


def _measured_broker(settings: ChurnSettings, directory: Path) -> AbstractContextManager[BrokerProcess]:
    data, config = directory / "data", directory / "broker.toml"
    config.write_text(settings.broker_settings)
    command = [sys.executable, "-m", "soak.measured_broker", str(directory / _REPORT), "serve"]
    command += ["--port", "0", "--http-port", "0", "--data", str(data), "--config", str(config)]
    return running_process(command, data)


@final
class _Memory:
    """Memory of the broker and its writing process, when there is a new sample."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._began_at = time.monotonic()
        self._looks: list[tuple[float, int]] = []

    @property
    def last_bytes(self) -> int:
        return self._looks[-1][1] if self._looks else 0

    def look(self) -> None:
        now = time.monotonic()
        if not self._looks or now >= self._looks[-1][0] + _LOOK_S:
            self._looks.append((now, self._target.resident_bytes()))

    def after(self, warm_up_s: float) -> list[int]:
        return [size_bytes for at, size_bytes in self._looks if at >= self._began_at + warm_up_s] or [self.last_bytes]
