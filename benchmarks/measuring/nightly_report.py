"""How long the nightly report takes on a made-up ledger, with the processes of Spark and their memory.

The broker is there and has nothing to do. A ledger is made once and serves all rounds; so does the cache of Java's
classes, which the first report makes. That one is a figure of its own.
"""

from __future__ import annotations

import atexit
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.broken import Broken
from benchmarks.broker_watch import BrokerWatch
from benchmarks.measurement import Figure, Measurement, Unit
from benchmarks.measuring.backlog import MEBIBYTE
from benchmarks.report_scale import LAST_DATE, MASTER, Measured, measured
from stompbroker_report.session import DEFAULT_MEMORY

if TYPE_CHECKING:
    from benchmarks.scenarios import NightlyReport
    from benchmarks.target import Target


def measure(scenario: NightlyReport, target: Target) -> Measurement:
    lake = _lake(scenario.deliveries, scenario.days)
    watch = BrokerWatch(target)
    try:
        cache_home, first_s = _after_first_report(lake)
        found = _report(lake, cache_home)
    except subprocess.CalledProcessError as error:
        raise Broken(f"the report failed: {error}") from error
    return Measurement(
        scenario=scenario.name,
        figures=(
            Figure(name="report", value=found.wall_s, unit=Unit.SECONDS),
            Figure(name="first report", value=first_s, unit=Unit.SECONDS),
            Figure(name="processor time", value=found.processor_s, unit=Unit.SECONDS),
            Figure(name="peak memory", value=found.peak_bytes / MEBIBYTE, unit=Unit.MEBIBYTES),
        ),
        machine=watch.machine_share(),
        broker=watch.broker_share(),
        generators=(),
    )


def _report(lake: Path, cache_home: Path) -> Measured:
    return measured(lake, 0, "last", LAST_DATE, master=MASTER, heap=DEFAULT_MEMORY, cache_home=cache_home)


@cache
def _after_first_report(lake: Path) -> tuple[Path, float]:
    """A cache of Java's classes, and how long the report took that made it."""
    cache_home = Path(tempfile.mkdtemp(prefix="cache-"))
    atexit.register(shutil.rmtree, cache_home, ignore_errors=True)
    return cache_home, _report(lake, cache_home).wall_s


@cache
def _lake(deliveries: int, days: int) -> Path:
    """Is removed when we end. Made by another process: it takes gigabytes of memory."""
    lake = Path(tempfile.mkdtemp(prefix="lake-"))
    atexit.register(shutil.rmtree, lake, ignore_errors=True)
    arguments = ["--date", str(LAST_DATE), "--days", str(days), "--deliveries", str(deliveries)]
    command = [sys.executable, "-m", "stompbroker_report.generate", "--lake", str(lake), *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return lake
