"""Watches the broker during a measurement.

`look` is called every few milliseconds: it samples the broker, calls what a scenario wants sampled besides, and raises
if the broker has died.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, final

import psutil

from benchmarks.measurement import ProcessorShare

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.target import Target


@final
class BrokerWatch:
    """Processor shares since `restart` and, on request, peak memory since it was made.

    Memory is not free to sample: the kernel walks through all pages and holds the broker up for milliseconds, several
    times a second. That alone made one message in fifty late.
    """

    def __init__(
        self, target: Target, *, measures_memory: bool = False, also: Callable[[], None] = lambda: None
    ) -> None:
        self._target = target
        self._also = also
        self._measures_memory = measures_memory
        self._peak_resident_bytes = target.resident_bytes() if measures_memory else 0
        self.restart()

    @property
    def peak_resident_bytes(self) -> int:
        assert self._measures_memory, "nobody has asked for it to be measured"
        return self._peak_resident_bytes

    def restart(self) -> None:
        self._started_at = time.monotonic()
        self._processor_at_start = self._target.processor_s()
        self._machine_at_start = _machine_processor_s()

    def look(self) -> None:
        self._target.raise_if_dead()
        if self._measures_memory:
            self._peak_resident_bytes = max(self._peak_resident_bytes, self._target.resident_bytes())
        self._also()

    def broker_processor_s(self) -> float:
        return self._target.processor_s() - self._processor_at_start

    def broker_share(self) -> ProcessorShare:
        return ProcessorShare("broker", self.broker_processor_s() / (time.monotonic() - self._started_at))

    def machine_share(self) -> ProcessorShare:
        used_s = _machine_processor_s() - self._machine_at_start
        return ProcessorShare("machine", used_s / (time.monotonic() - self._started_at))


def _machine_processor_s() -> float:
    """Processor time of all cores that was used by anyone, or taken by the host of a virtual machine."""
    times: dict[str, float] = psutil.cpu_times()._asdict()
    not_gone = ("idle", "iowait", "guest", "guest_nice")  # guests are part of "user"
    return sum(seconds for name, seconds in times.items() if name not in not_gone)
