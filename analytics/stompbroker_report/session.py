"""Starts the SparkSession that a report runs in: settings and their reasons.

Under `spark-submit` the Java process is already running with its own settings; then only those are set that the results
depend on.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stompbroker_report.errors import Cause, ReportError
from stompbroker_report.java import find_java_home

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

    from stompbroker_report.class_cache import ClassCache

DEFAULT_MASTER: Final = "local[*]"
#: Heap of the one Java process in local mode. Ten million deliveries need less (`benchmarks/report_scale.py`), and a
#: machine that also runs the broker can spare it.
DEFAULT_MEMORY: Final = "2g"

_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
#: Settings that the results depend on.
_MEANING: Final = {
    # Dates and hours are in UTC, in the lake and in the report.
    "spark.sql.session.timeZone": "UTC",
    # An overflow or a lossy cast ends the run instead of giving a wrong number.
    "spark.sql.ansi.enabled": "true",
    # The default, INT96, has no timezone: readers of the marts would assume their own.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
_COMMON: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Debugging triples the calls to Java while frames are built.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # An upper bound (adaptive execution merges small partitions) that keeps the partitions of a big day small.
    "spark.sql.shuffle.partitions": "8",
    # Files of the lake have up to 64 MiB; splits of 16 MiB keep all cores busy and each one's memory small.
    "spark.sql.files.maxPartitionBytes": "16m",
    "spark.sql.files.openCostInBytes": "1m",
    # Java's default shares the processors with the report while it collects: a tenth of ten million deliveries.
    _JAVA_OPTIONS: "-XX:+UseParallelGC",
}
#: For less than this much of a lake, some two million deliveries: Spark itself takes most of the time then.
_SMALL_BYTES: Final = 64 * 1024 * 1024
_SMALL: Final = {
    # The optimizing compiler would take a third of the run and finish when it is over; so would a parallel collector.
    _JAVA_OPTIONS: "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    # Nothing has to be merged or planned again.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}
_LOGGING: Final = Path(__file__).with_name("log4j2.properties")


def require_spark() -> None:
    """Raises ReportError."""
    if importlib.util.find_spec("pyspark") is None:
        raise ReportError(
            Cause.NO_SPARK,
            "The report is computed by Spark, which is not installed: pip install 'stompbroker[analytics]'.",
        )


@contextmanager
def spark_session(
    master: str = DEFAULT_MASTER,
    *,
    memory: str = DEFAULT_MEMORY,
    lake_bytes: int | None = None,
    class_cache: ClassCache | None = None,
    settings: Mapping[str, str] | None = None,
) -> Iterator[SparkSession]:
    """A session on `master`, stopped at the end. `settings` override everything set here.

    `lake_bytes` is how much is going to be read, if that is known: little data gets settings of its own. With
    `class_cache` Java starts sooner, or makes that one can be made.

    Raises:
        ReportError: no pyspark, no Java, or Spark does not start.
    """
    require_spark()
    # Imported late: it takes half a second, and may be missing.
    from pyspark.sql import SparkSession

    from stompbroker_report.spark_failures import spark_failures

    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if is_submitted:
        chosen, environment = dict(_MEANING), {}
    else:
        java_home = find_java_home()
        chosen, environment = _all_settings(master, memory, lake_bytes), _launch_environment(master, java_home)
        if class_cache is not None:
            chosen[_JAVA_OPTIONS] += f" {shlex.join(class_cache.java_options(java_home))}"
    builder = SparkSession.builder.appName("stompbroker report")
    for name, value in {**chosen, **(settings or {})}.items():
        builder = builder.config(name, value)
    with spark_failures(f"Spark did not start on {master}"):
        with _environment(environment):
            spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def _all_settings(master: str, memory: str, lake_bytes: int | None) -> dict[str, str]:
    settings = {
        **_MEANING,
        **_COMMON,
        "spark.master": master,
        "spark.driver.memory": memory,
    }
    if lake_bytes is not None and lake_bytes < _SMALL_BYTES:
        settings |= _SMALL
    if _is_local(master):
        # By default it listens on an external address, and fails to start if the host name does not resolve.
        settings["spark.driver.host"] = "127.0.0.1"
        settings["spark.driver.bindAddress"] = "127.0.0.1"
    return settings


def _launch_environment(master: str, java_home: Path) -> dict[str, str]:
    variables = {
        "JAVA_HOME": str(java_home),
        # The `python3` on PATH may lack our packages.
        "PYSPARK_PYTHON": sys.executable,
        # Otherwise Spark first reads its own log settings, and says so.
        "SPARK_SUBMIT_OPTS": f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}",
    }
    if _is_local(master):
        variables["SPARK_LOCAL_IP"] = "127.0.0.1"
    return variables


def _is_local(master: str) -> bool:
    return master.startswith(("local", "spark://127.0.0.1:", "spark://localhost:"))


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set these variables while Spark starts, and restore the old values."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
