"""A report each night, by a program that goes on running: for containers, where there is no cron.

Law: knows when, and starts this same program anew each time; so nothing of Spark stays in memory over the day, and a
night that fails does not touch the next one. The caller's clock is the machine's, looked at anew all the time, because
machines sleep and clocks are set.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time as machine_time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from stompbroker.cli.terminal import complain, say

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import time

__all__ = ["has_report_of", "next_start", "report_every_night"]

#: Longest time between two looks at the clock, in seconds.
LOOK_S = 60.0


def report_every_night(arguments: Sequence[str], at: time, out: str) -> NoReturn:
    """Run `stompbroker` with these arguments each day at that time in UTC, until SIGTERM or Ctrl-C.

    At once as well, if that time is over today and yesterday's report is missing: the machine was off.
    """
    # As the first process of a container, which no signal ends that it does not handle.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        now = datetime.now(UTC)
        if now.time() >= at and not has_report_of(now - timedelta(days=1), out):
            _report(arguments)
        while True:
            due = next_start(datetime.now(UTC), at)
            say(f"The next report is made at {due:%Y-%m-%d %H:%M} UTC.", err=True)
            _wait_until(due)
            _report(arguments)
    except KeyboardInterrupt:
        sys.exit(0)


def next_start(now: datetime, at: time) -> datetime:
    """The first instant after `now` at that time of the day."""
    today = datetime.combine(now.date(), at, UTC)
    return today if today > now else today + timedelta(days=1)


def has_report_of(day: datetime, out: str) -> bool:
    """Whether it lies there; of another machine's store that is not known, and taken as so."""
    return "://" in out or (Path(out) / "reports" / f"dt={day:%Y-%m-%d}" / "report.html").exists()


def _wait_until(due: datetime) -> None:
    while (left_s := (due - datetime.now(UTC)).total_seconds()) > 0:
        machine_time.sleep(min(left_s, LOOK_S))


def _report(arguments: Sequence[str]) -> None:
    done = subprocess.run([sys.executable, "-m", "stompbroker", *arguments], check=False)
    if done.returncode:
        complain(f"There is no report tonight (exit code {done.returncode}).")
