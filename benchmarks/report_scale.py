"""How the nightly report scales with the ledger: `python -m benchmarks.report_scale`.

Every report is its own process on a generated lake, as `stompbroker report` runs it: Spark on two cores with its usual
heap. Memory is the peak of all its processes, Python and Java. Two questions:

    all     every date of the lake, in one run
    last    the last date, compared with those before it: what a night costs
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil

from stompbroker_report.generate import generate_lake
from stompbroker_report.session import DEFAULT_MEMORY

if TYPE_CHECKING:
    from collections.abc import Sequence

LAST_DATE: Final = date(2026, 11, 13)
MASTER: Final = "local[2]"
DAYS: Final = 7
#: Seconds between two memory samples: memory grows slowly.
LOOK_S: Final = 0.2
MILLION: Final = 1_000_000
MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    records: int
    lake_bytes: int
    what: str
    wall_s: float
    #: Processor time of all cores, which other load hardly affects.
    processor_s: float
    peak_bytes: int


def measured(
    lake: Path, records: int, what: str, first_date: date, *, master: str, heap: str, cache_home: Path | None = None
) -> Measured:
    """One report, from the start of its process to its end; without `cache_home` Java has no cache of its classes.

    Raises:
        subprocess.CalledProcessError: it failed; stderr says why.
    """
    command = [sys.executable, "-m", "stompbroker_report", "--lake", str(lake), "--master", master, "--memory", heap]
    with tempfile.TemporaryDirectory(prefix="report-") as out:
        began_at = time.monotonic()
        arguments = ["--out", out, "--from", str(first_date), "--to", str(LAST_DATE)]
        environment = dict(os.environ)
        if cache_home is None:
            arguments.append("--no-class-cache")
        else:
            environment["XDG_CACHE_HOME"] = str(cache_home)
        process = psutil.Popen(
            [*command, *arguments], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        assert process.stderr is not None
        peak_bytes, processor_s = 0, 0.0
        while process.poll() is None:
            resident_bytes, used_s = _used(process)
            peak_bytes, processor_s = max(peak_bytes, resident_bytes), max(processor_s, used_s)
            time.sleep(LOOK_S)
        wall_s = time.monotonic() - began_at
        said = process.stderr.read().decode()
        process.stderr.close()
        if process.returncode:
            print(said, file=sys.stderr)
            raise subprocess.CalledProcessError(process.returncode, command)
    lake_bytes = sum(path.stat().st_size for path in lake.rglob("*.parquet"))
    return Measured(
        records=records,
        lake_bytes=lake_bytes,
        what=what,
        wall_s=wall_s,
        processor_s=processor_s,
        peak_bytes=peak_bytes,
    )


def _used(process: psutil.Popen) -> tuple[int, float]:
    """Memory now, and processor time until now."""
    resident_bytes, processor_s = 0, 0.0
    try:
        for one in [process, *process.children(recursive=True)]:
            with one.oneshot():
                times = one.cpu_times()
                resident_bytes += one.memory_info().rss
                processor_s += times.user + times.system
    except psutil.NoSuchProcess:
        pass  # it has just ended
    return resident_bytes, processor_s


def line(row: Measured, first: Measured) -> str:
    return (
        f"{row.records:>12,}  {row.lake_bytes / MIB:>8,.0f}  {row.what:<5}  {row.wall_s:>7.1f}  "
        f"{row.wall_s / first.wall_s:>8.2f}  {row.processor_s:>11.1f}  {row.peak_bytes / MIB:>9,.0f}"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report_scale", description=__doc__.partition("\n")[0])
    parser.add_argument("--millions", type=float, nargs="+", default=[1, 3, 10], help="deliveries on seven days")
    parser.add_argument("--what", nargs="+", choices=["all", "last"], default=["all", "last"])
    parser.add_argument("--master", default=MASTER)
    parser.add_argument("--heap", default=DEFAULT_MEMORY, help="of Spark's driver (default %(default)s)")
    parser.add_argument("--directory", type=Path, help="for the lakes; a temporary one if none is given")
    asked = parser.parse_args(arguments)
    first_dates = {"all": LAST_DATE - timedelta(days=DAYS - 1), "last": LAST_DATE}
    print(f"Spark on {asked.master}, heap {asked.heap}; {DAYS} days")
    print("     records  lake MiB  dates   wall s  to first  processor s  peak MiB")
    firsts: dict[str, Measured] = {}
    with tempfile.TemporaryDirectory(prefix="lake-", dir=asked.directory) as directory:
        for millions in asked.millions:
            lake = Path(directory) / f"{millions:g}"
            records = generate_lake(lake, last_date=LAST_DATE, days=DAYS, deliveries=round(millions * MILLION))
            for what in asked.what:
                row = measured(lake, records, what, first_dates[what], master=asked.master, heap=asked.heap)
                print(line(row, firsts.setdefault(what, row)), flush=True)


if __name__ == "__main__":
    main()
