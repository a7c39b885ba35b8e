"""`python -m soak.measured_broker FILE serve …`: a broker that measures how long its event loop is blocked.

The real broker with a trio instrument and a garbage collection callback. Only processor time of the event loop's thread
counts, not time that the machine gives to others. On SIGUSR1 it writes what it measured since the last one to FILE.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import thread_time_ns
from typing import Final, NamedTuple, final

import trio

from benchmarks.broken import Broken
from stompbroker.cli import main

_ANSWER_S: Final = 30.0


class Longest(NamedTuple):
    """How long the event loop was blocked, in nanoseconds."""

    #: The longest step of a task between two checkpoints, and which task it was.
    step_ns: int
    task: str
    #: The longest search for reference cycles, which is part of a step.
    search_ns: int


def measured(pid: int, report: Path) -> Longest:
    """What a broker has measured since it was last asked. Raises `Broken`."""
    report.unlink(missing_ok=True)
    os.kill(pid, signal.SIGUSR1)
    gives_up_at = time.monotonic() + _ANSWER_S
    while time.monotonic() < gives_up_at:
        with suppress(FileNotFoundError):
            return Longest(*json.loads(report.read_text()))
        time.sleep(0.01)
    raise Broken(f"the broker did not say within {_ANSWER_S:g} s how long its longest step was")


@final
class _Instrument(trio.abc.Instrument):
    def __init__(self, report: Path) -> None:
        self._report = report
        self._began_at_ns = self._search_began_at_ns = 0
        self._longest = Longest(0, "", 0)

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._began_at_ns = thread_time_ns()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        step_ns = thread_time_ns() - self._began_at_ns
        if step_ns > self._longest.step_ns:
            self._longest = self._longest._replace(step_ns=step_ns, task=task.name)

    def note_search(self, phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            self._search_began_at_ns = thread_time_ns()
        elif (search_ns := thread_time_ns() - self._search_began_at_ns) > self._longest.search_ns:
            self._longest = self._longest._replace(search_ns=search_ns)

    def write(self, *_: object) -> None:
        unfinished = self._report.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(self._longest))
        unfinished.rename(self._report)
        self._longest = Longest(0, "", 0)


if __name__ == "__main__":
    instrument = _Instrument(Path(sys.argv.pop(1)))
    signal.signal(signal.SIGUSR1, instrument.write)
    gc.callbacks.append(instrument.note_search)
    trio.run = partial(trio.run, instruments=[instrument])  # type: ignore[assignment]
    main()
