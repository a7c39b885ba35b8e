"""A cache of the classes that Java loads for Spark: with it, a report starts in two seconds instead of five.

Java 25 records what one report loads. When that report is done, another Java makes a file of it (`-XX:AOTCache`), which
later reports start with. Nothing here raises: without a file, or with one that does not fit, Java starts as ever.

    ~/.cache/stompbroker/classes-KEY.aot          empty: Java failed to make it, so nobody tries again
    ~/.cache/stompbroker/classes-KEY.unfinished/  of the one report that records
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from stompbroker_report.java import user_cache

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Older ones have no such cache, or need three runs to make one.
_FIRST_JAVA: Final = 25
_DIAGNOSTIC: Final = "-XX:+UnlockDiagnosticVMOptions"
#: Otherwise Java's own lines about the cache come among the results.
_QUIET: Final = "-Xlog:aot*=off,cds*=off"
#: Classes alone: with what a small day says of which methods are worth compiling, a large day takes twice the time.
_RECORDING: Final = ("-XX:AOTMode=record", _QUIET, _DIAGNOSTIC, "-XX:-DisplayVMOutput", "-XX:-AOTRecordTraining")
_USING: Final = (_QUIET, _DIAGNOSTIC, "-XX:-AOTReplayTraining")
_RECORDED: Final = "recorded"
#: A file has 210 MB, and what is recorded for it has less.
_NEEDED_BYTES: Final = 1024 * 1024 * 1024
#: Files that are kept, the latest: one for each environment with a Spark of its own.
_KEPT: Final = 2
#: Making a file takes 30 s of processor time; after this it has failed.
_MAKING_S: Final = 300.0
#: After this, whoever was recording is gone. No report takes as long.
_ABANDONED_S: Final = 24 * 3600.0


@final
class ClassCache:
    """The cache as one process sees it.

    Invariants:
        `_unfinished` is None, or a directory that this process has made and nobody else uses
    """

    def __init__(self, *, is_wanted: bool) -> None:
        self._is_wanted = is_wanted
        self._file = Path()
        self._unfinished: Path | None = None

    def java_options(self, java_home: Path) -> list[str]:
        """How Java starts: with the file if there is one; else so that it records, unless somebody does already."""
        if not self._is_wanted:
            return []
        try:
            key = _key(java_home)
            if key is None:
                return []
            self._file = user_cache() / f"classes-{key}.aot"
            if self._file.exists():
                return [f"-XX:AOTCache={self._file}", *_USING] if self._file.stat().st_size else []
            unfinished = self._file.with_suffix(".unfinished")
            _remove_abandoned(unfinished)
            unfinished.parent.mkdir(parents=True, exist_ok=True)
            if shutil.disk_usage(unfinished.parent).free < _NEEDED_BYTES:
                return []
            unfinished.mkdir()
        except (OSError, RuntimeError):
            # No home, no permission to write there, or another report was first.
            return []
        self._unfinished = unfinished
        return [*_RECORDING, f"-XX:AOTConfiguration={unfinished / _RECORDED}"]

    def make(self, say: Callable[[str], None]) -> None:
        """If Java has recorded: end it, and make the file. Ctrl-C leaves that to the next report."""
        if self._unfinished is None:
            return
        from py4j.protocol import Py4JError  # only now: needs pyspark

        made = self._unfinished / "made"
        say(f"making a cache in {self._file.parent}, once, so that the next reports start sooner; Ctrl-C skips it")
        try:
            command = _end_of_recording()
            options = ["-XX:AOTMode=create", f"-XX:AOTConfiguration={self._unfinished / _RECORDED}"]
            arguments = [command[0], *options, f"-XX:AOTCache={made}", *command[1:]]
            subprocess.run(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=_MAKING_S,
                check=True,
            )
            made.replace(self._file)
            _remove_older_than(self._file)
        except KeyboardInterrupt:
            return
        except (OSError, subprocess.SubprocessError, Py4JError):
            with suppress(OSError):
                self._file.touch()

    def discard(self) -> None:
        """Remove what is unfinished."""
        if self._unfinished is not None:
            shutil.rmtree(self._unfinished, ignore_errors=True)
            self._unfinished = None


@contextmanager
def class_cache(say: Callable[[str], None], *, is_wanted: bool = True) -> Iterator[ClassCache]:
    """For one report; if the block ends well, a missing cache is made for the next. That ends this process's Java."""
    cache = ClassCache(is_wanted=is_wanted)
    try:
        yield cache
        cache.make(say)
    finally:
        cache.discard()


def _key(java_home: Path) -> str | None:
    """Differs for each Java and each Spark; None if this Java has no such cache."""
    release = (java_home / "release").read_text()
    version = re.search(r'^JAVA_VERSION="(\d+)', release, re.MULTILINE)
    spark = importlib.util.find_spec("pyspark")
    if version is None or int(version[1]) < _FIRST_JAVA or spark is None or spark.origin is None:
        return None
    jars = Path(os.environ.get("SPARK_HOME") or Path(spark.origin).parent) / "jars"
    parts = release, str(java_home), str(jars), str(jars.stat().st_mtime_ns)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _end_of_recording() -> list[str]:
    """End the Java of this process, which writes what it recorded; returns how it was started."""
    from pyspark import SparkContext

    gateway, jvm = SparkContext._gateway, SparkContext._jvm
    assert gateway is not None
    assert jvm is not None
    home, class_path = (jvm.java.lang.System.getProperty(name) for name in ("java.home", "java.class.path"))
    arguments = jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
    command = [f"{home}/bin/java", "-cp", class_path, *(one for one in arguments if not one.startswith("-XX:AOT"))]
    # PySpark would give it to the next session of this process.
    SparkContext._gateway = SparkContext._jvm = None
    gateway.proc.stdin.close()
    gateway.proc.wait(_MAKING_S)
    return command


def _remove_abandoned(unfinished: Path) -> None:
    with suppress(FileNotFoundError):
        if time.time() - unfinished.stat().st_mtime > _ABANDONED_S:
            shutil.rmtree(unfinished, ignore_errors=True)


def _remove_older_than(file: Path) -> None:
    files = sorted(file.parent.glob("classes-*.aot"), key=lambda one: one.stat().st_mtime, reverse=True)
    for old in files[_KEPT:]:
        old.unlink(missing_ok=True)
    for unfinished in file.parent.glob("classes-*.unfinished"):
        _remove_abandoned(unfinished)
