"""Makes a report every night, on the day before.

Each run is a process of its own: nothing of Spark stays in memory, and a failure does not touch the next night.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time as machine_time
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: The longest time between two looks at the clock, in seconds: machines sleep and clocks are set.
LOOK_S: Final = 60.0


def report_every_night(command: Sequence[str], at: time, out: str, say: Callable[[str], None]) -> NoReturn:
    """Run the command each day at that time in UTC, until SIGTERM or Ctrl-C.

    If that time has passed today and yesterday's report is missing, because the machine was off, run it at once too.
    """
    # The first process of a container gets only the signals that it handles.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        now = datetime.now(UTC)
        if now.time() >= at and not has_report_of(now - timedelta(days=1), out):
            _report_once(command, say)
        while True:
            due = next_start(datetime.now(UTC), at)
            say(f"The next report is made at {due:%Y-%m-%d %H:%M} UTC.")
            while (left_s := (due - datetime.now(UTC)).total_seconds()) > 0:
                machine_time.sleep(min(left_s, LOOK_S))
            _report_once(command, say)
    except KeyboardInterrupt:
        sys.exit(0)


def next_start(now: datetime, at: time) -> datetime:
    """The first instant after `now` at that time of the day."""
    today = datetime.combine(now.date(), at, UTC)
    return today if today > now else today + timedelta(days=1)


def has_report_of(day: datetime, out: str) -> bool:
    """Whether the report exists. For an object store, which is not asked, the answer is yes."""
    return "://" in out or (Path(out) / "reports" / f"dt={day:%Y-%m-%d}" / "report.html").exists()


def _report_once(command: Sequence[str], say: Callable[[str], None]) -> None:
    done = subprocess.run(command, check=False)
    if done.returncode:
        say(f"There is no report tonight (exit code {done.returncode}).")
