"""The machine of a run, as far as it matters for the numbers.

Writes one small file on the brokers' disk to measure an fsync. What the system does not say is "unknown".
"""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import time
from pathlib import Path
from typing import Final

import psutil

from benchmarks.comparison.results import Machine
from benchmarks.disk_directory import disk_directory

_UNKNOWN: Final = "unknown"
_FSYNCS: Final = 50
_PAGE: Final = b"x" * 4096


def this_machine() -> Machine:
    with disk_directory("stompbroker-fsync-") as directory:
        return Machine(
            processor=_processor(),
            cores=os.cpu_count() or 1,
            memory_gib=psutil.virtual_memory().total / 1024**3,
            kernel=f"{platform.system()} {platform.release()}",
            python=platform.python_version(),
            disk=_disk(directory),
            fsync_ms=_fsync_ms(directory),
        )


def this_commit() -> str:
    """The measured commit, if there is a repository, and whether there are uncommitted changes."""
    repository = Path(__file__).parent

    def told(*command: str) -> str:
        return subprocess.run(["git", *command], cwd=repository, capture_output=True, text=True, check=True).stdout

    try:
        commit = told("rev-parse", "--short=12", "HEAD").strip()
        has_changes = bool(told("status", "--porcelain", "--untracked-files=no", "--", "../../stompbroker").strip())
    except (OSError, subprocess.CalledProcessError):
        return _UNKNOWN
    return f"{commit}, with changes to the broker since" if has_changes else commit


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or _UNKNOWN
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _disk(directory: Path) -> str:
    holders = [
        partition
        for partition in psutil.disk_partitions(all=True)
        if directory.resolve().is_relative_to(partition.mountpoint)
    ]
    if not holders:
        return _UNKNOWN
    holder = max(holders, key=lambda partition: len(partition.mountpoint))
    return f"{holder.fstype} on {holder.device}"


def _fsync_ms(directory: Path) -> float:
    taken_s: list[float] = []
    with (directory / "page").open("wb", buffering=0) as file:
        for _ in range(_FSYNCS):
            began_at = time.perf_counter()
            file.write(_PAGE)
            os.fsync(file.fileno())
            taken_s.append(time.perf_counter() - began_at)
    return statistics.median(taken_s) * 1000
