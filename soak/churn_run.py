"""Topics and connections that come and go, beside somebody who does not.

Law: the churn and the steady pair are processes of their own. What is judged: how long the broker's event loop worked
on anything else while a message of the steady pair waited, and whether its memory has stopped growing.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from benchmarks.broker_process import running_broker
from benchmarks.broker_watch import BrokerWatch
from benchmarks.operating import ask
from benchmarks.percentiles import percentile
from benchmarks.role_process import RoleProcess
from benchmarks.roles.child_end import Go, Stage, Stop
from soak import churning, steady
from soak.churning import ChurnAssignment
from soak.steady import SteadyAssignment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.target import Target

#: How long the event loop may work while a message waits.
MAX_PAUSE_S: Final = 0.05
#: What memory may grow by from the first third of what is looked at to the last: allocators come to rest slowly.
MAX_GROWTH: Final = 1.05
#: How long a topic that nobody uses stays; and until memory is looked at, in such times: by then as many go as come.
_TOPIC_IDLE_S: Final = 10.0
_WARM_UP: Final = 3
_STEADY_INTERVAL_S: Final = 0.005
#: Between two looks at memory: the kernel holds the broker up for each.
_LOOK_S: Final = 2.0
_MILLION: Final = 1_000_000


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
        """Twice as many topics as there can be, since they are collected once a second."""
        max_topics = int(2 * self.topics_per_s * (_TOPIC_IDLE_S + 10))
        return f'max_topics = {max_topics}\ntopic_idle_s = {_TOPIC_IDLE_S:g}\nlog_level = "warning"\n'


@dataclass(frozen=True, slots=True, kw_only=True)
class ChurnOutcome:
    elapsed_s: float
    connections: int
    topics: int
    #: How long the messages of the steady pair took, and how long the event loop worked meanwhile; ascending.
    took_ns: Sequence[int]
    worked_ns: Sequence[int]
    #: What the broker itself says: its longest stretch without a checkpoint, and whose it was.
    longest_stretch_ms: float
    longest_stretch_actor: str
    #: Of one processor.
    broker_share: float
    #: After the warm-up, in the order of time.
    memory_bytes: Sequence[int]

    def complaints(self) -> list[str]:
        complaints = []
        if self.worked_ns[-1] > MAX_PAUSE_S * 1e9:
            complaints.append(f"PAUSED: a message waited while the event loop worked for {_ms(self.worked_ns[-1])}")
        before, after = self.memory_before_and_after
        if after > MAX_GROWTH * before:
            complaints.append(f"GREW: from {before / 2**20:.1f} to {after / 2**20:.1f} MiB")
        return complaints

    @property
    def memory_before_and_after(self) -> tuple[int, int]:
        """The most in the first and in the last third."""
        third = max(1, len(self.memory_bytes) // 3)
        return max(self.memory_bytes[:third]), max(self.memory_bytes[-third:])

    def lines(self) -> list[str]:
        before, after = self.memory_before_and_after
        shares = 500, 990, 999, 1000
        took, worked = ([_ms(percentile(each, share)) for share in shares] for each in (self.took_ns, self.worked_ns))
        return [
            f"{self.connections:,} connections and {self.topics:,} topics in {self.elapsed_s:.0f} s: "
            f"{self.connections / self.elapsed_s:,.0f} and {self.topics / self.elapsed_s:,.0f} a second, with "
            f"{self.broker_share:.0%} of a processor",
            f"{len(self.took_ns):,} messages beside them took {', '.join(took)} (p50, p99, p99.9, most)",
            f"the event loop worked for {', '.join(worked)} of that",
            f"longest stretch without a checkpoint: {self.longest_stretch_ms:.1f} ms, {self.longest_stretch_actor}",
            f"memory: {before / 2**20:.1f} MiB after the warm-up, {after / 2**20:.1f} MiB at the end",
        ]


def _ms(nanoseconds: int) -> str:
    return f"{nanoseconds / _MILLION:.1f} ms"


def run_churn(settings: ChurnSettings, *, show: Callable[[str], None]) -> ChurnOutcome:
    """Raises `Broken`."""
    with running_broker(settings.broker_settings) as target:
        memory = _Memory(target)
        watch = BrokerWatch(target, also=memory.look)
        churn = ChurnAssignment(
            address=target.address,
            connections_per_s=settings.connections_per_s,
            topics_per_connection=settings.topics_per_connection,
            duration_s=settings.duration_s,
        )
        pair = SteadyAssignment(address=target.address, broker_pid=target.pid, interval_s=_STEADY_INTERVAL_S)

        def show_progress(connections: int) -> None:
            show(f"{connections:,} connections, {memory.last_bytes >> 20} MiB")

        with (
            RoleProcess(steady.run, pair, watch=watch.look) as steady_process,
            RoleProcess(churning.run, churn, watch=watch.look, show_progress=show_progress) as churning_process,
        ):
            steady_process.wait_stage(Stage.READY)
            churning_process.wait_stage(Stage.READY)
            watch.restart()
            steady_process.tell(Go())
            churning_process.tell(Go())
            churned = churning_process.wait_report()
            broker_share = watch.broker_share().share
            steady_process.tell(Stop())
            measured = steady_process.wait_report()
        said = ask(target.data, "statistics")["broker"]
    return ChurnOutcome(
        elapsed_s=churned.elapsed_s,
        connections=churned.connections,
        topics=churned.topics,
        took_ns=sorted(measured.took_ns),
        worked_ns=sorted(measured.worked_ns),
        longest_stretch_ms=said["longest_stretch_ms"],
        longest_stretch_actor=said["longest_stretch_actor"],
        broker_share=broker_share,
        memory_bytes=memory.after(_WARM_UP * _TOPIC_IDLE_S),
    )


@final
class _Memory:
    """What the broker and its writing process have of it, whenever that was looked up anew."""

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
