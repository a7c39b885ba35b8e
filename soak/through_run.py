"""Whether the files stay small while millions of messages pass through a durable topic with an active subscriber.

Samples the sizes of the database and its write-ahead log all the time. The peak of their sum has a bound that does not
depend on how many messages have passed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from benchmarks.broker_process import running_process
from benchmarks.broker_watch import BrokerWatch
from benchmarks.role_process import RoleProcess
from benchmarks.roles.child_end import Go, Stage
from benchmarks.stored import StoreSizes, sizes_in
from soak import passing
from soak.passing import PassingAssignment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

_MEBIBYTE: Final = 1024 * 1024
_DESTINATION: Final = "/topic/through"
_BODY_BYTES: Final = 256
_WINDOW: Final = 4000
_BATCH: Final = 100
_STALL_S: Final = 30.0

#: Allowed size with nothing in flight. That is the write-ahead log: a checkpoint is due at 64 MiB, the writer goes on
#: while it runs, and the file keeps its length up to 96 MiB when the log restarts.
CONSTANT_BYTES: Final = 128 * _MEBIBYTE
#: Allowed bytes per byte in flight. A message takes about one and a half times its size in table and index, and settled
#: ones stay until a thousand can be deleted together; short runs had about two bytes of database per byte in flight.
#: The rest is for a machine that stalls.
PER_BYTE_IN_FLIGHT: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughOutcome:
    messages: int
    elapsed_s: float
    in_flight_messages: int
    in_flight_bytes: int
    peak: StoreSizes
    #: Before and after the broker has ended.
    end: StoreSizes
    ended: StoreSizes
    resident_peak_bytes: int

    @property
    def allowed_bytes(self) -> int:
        return allowed_bytes(self.in_flight_bytes)

    @property
    def is_bounded(self) -> bool:
        return self.peak.total_bytes <= self.allowed_bytes


def allowed_bytes(in_flight_bytes: int) -> int:
    """How large the files may be."""
    return CONSTANT_BYTES + PER_BYTE_IN_FLIGHT * in_flight_bytes


@final
class PeakOfFiles:
    """Both sizes when their sum was largest."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self.now = self.peak = sizes_in(data)

    def look(self) -> None:
        self.now = sizes_in(self._data)
        self.peak = max(self.peak, self.now, key=lambda sizes: sizes.total_bytes)


def run_through(messages: int, data: Path, command: Sequence[str], *, show: Callable[[str], None]) -> ThroughOutcome:
    """`command` runs a broker with its data in `data`. Raises `Broken`."""
    with running_process(command, data) as target:
        files = PeakOfFiles(data)
        watch = BrokerWatch(target, measures_memory=True, also=files.look)
        assignment = PassingAssignment(
            address=target.address,
            destination=_DESTINATION,
            messages=messages,
            body_bytes=_BODY_BYTES,
            window=_WINDOW,
            batch=_BATCH,
            stall_s=_STALL_S,
        )

        def show_progress(settled: int) -> None:
            sizes = f"{files.now.total_bytes >> 20} MiB, at most {files.peak.total_bytes >> 20} MiB"
            show(f"{settled:,} of {messages:,} through, files {sizes}")

        with RoleProcess(passing.run, assignment, watch=watch.look, show_progress=show_progress) as process:
            process.wait_stage(Stage.READY)
            process.tell(Go())
            passed = process.wait_report()
        files.look()
    return ThroughOutcome(
        messages=passed.messages,
        elapsed_s=passed.elapsed_s,
        in_flight_messages=passed.in_flight_messages,
        in_flight_bytes=passed.in_flight_bytes,
        peak=files.peak,
        end=files.now,
        ended=sizes_in(data),
        resident_peak_bytes=watch.peak_resident_bytes,
    )
