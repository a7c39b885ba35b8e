"""Keeps an eye on the broker during a measurement.

Law: `look` is called every few milliseconds and does nothing but sample; it raises when the broker has died. What a
scenario wants to look at besides looks when it does.
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
    """Processor shares since `restart`, and peak memory since it was made, if that is asked for.

    It is not free: the kernel walks through all pages of a broker to say how much memory it has, and holds the broker
    up for milliseconds, several times a second. A message in fifty came late for nothing else.
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
    """Processor time of all cores that is gone: used by anyone, or taken by a host that shares them with others."""
    times: dict[str, float] = psutil.cpu_times()._asdict()
    not_gone = ("idle", "iowait", "guest", "guest_nice")  # guests are counted in "user" already
    return sum(seconds for name, seconds in times.items() if name not in not_gone)
