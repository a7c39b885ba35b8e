"""The SparkSession that a report runs in; nobody else makes one.

Law: knows settings and their reasons, and no table. Under `spark-submit` the Java process and its settings are there
already, and only what the results depend on is set.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stompbroker_report.errors import Cause, ReportError
from stompbroker_report.java import find_java_home

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

__all__ = ["DEFAULT_MASTER", "DEFAULT_MEMORY", "spark_session"]

DEFAULT_MASTER: Final = "local[*]"
#: Heap of the one Java process in local mode. Ten million deliveries in a window of days need less
#: (`benchmarks/report_scale.py`); a machine that also runs the broker can spare it.
DEFAULT_MEMORY: Final = "2g"

#: What the results depend on, wherever they are computed.
_MEANING: Final = {
    # A date is a date in UTC, in the lake's folders and in every hour of the report.
    "spark.sql.session.timeZone": "UTC",
    # An overflow, or a cast that loses something, ends the run instead of giving a number.
    "spark.sql.ansi.enabled": "true",
    # Its default, INT96, has no timezone: readers of the marts, ours too, would take a time for one of their machine.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
_COMMON: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Asks Java three times as often while frames are put together, to say where in Python a column came from.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # Adaptive execution joins what is too small, so this is an upper bound: it keeps the pieces of a big day small.
    "spark.sql.shuffle.partitions": "8",
    # A file of the lake has up to 64 MiB; pieces of 16 MiB keep all cores busy and what one of them holds small.
    "spark.sql.files.maxPartitionBytes": "16m",
    "spark.sql.files.openCostInBytes": "1m",
}
_LOGGING: Final = Path(__file__).with_name("log4j2.properties")


@contextmanager
def spark_session(
    master: str = DEFAULT_MASTER, *, memory: str = DEFAULT_MEMORY, settings: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """A session on `master`, stopped in the end. `settings` win over everything that is set here.

    Raises:
        ReportError: no pyspark, no Java, or Spark does not start.
    """
    if importlib.util.find_spec("pyspark") is None:
        raise ReportError(
            Cause.NO_SPARK,
            "The report is computed by Spark, which is not installed: pip install 'stompbroker[analytics]'.",
        )
    # Only now: it takes half a second, and may be missing.
    from pyspark.sql import SparkSession

    from stompbroker_report.spark_failures import spark_failures

    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    chosen = dict(_MEANING) if is_submitted else _all_settings(master, memory)
    builder = SparkSession.builder.appName("stompbroker report")
    for name, value in {**chosen, **(settings or {})}.items():
        builder = builder.config(name, value)
    with spark_failures(f"Spark did not start on {master}"):
        with _environment({} if is_submitted else _launch_environment(master)):
            spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def _all_settings(master: str, memory: str) -> dict[str, str]:
    settings = {
        **_MEANING,
        **_COMMON,
        "spark.master": master,
        "spark.driver.memory": memory,
    }
    if _is_local(master):
        # Otherwise it listens on an outside address, and does not start where the host's name has none.
        settings["spark.driver.host"] = "127.0.0.1"
        settings["spark.driver.bindAddress"] = "127.0.0.1"
    return settings


def _launch_environment(master: str) -> dict[str, str]:
    variables = {
        "JAVA_HOME": str(find_java_home()),
        # Not the `python3` on PATH, which need not have our packages.
        "PYSPARK_PYTHON": sys.executable,
        # Spark's own log settings are read before ours otherwise, and announce themselves.
        "SPARK_SUBMIT_OPTS": f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}",
    }
    if _is_local(master):
        variables["SPARK_LOCAL_IP"] = "127.0.0.1"
    return variables


def _is_local(master: str) -> bool:
    return master.startswith(("local", "spark://127.0.0.1:", "spark://localhost:"))


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """These while Spark starts; what was there before comes back."""
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
