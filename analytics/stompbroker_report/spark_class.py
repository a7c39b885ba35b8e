"""`python -m stompbroker_report.spark_class CLASS …`: one of Spark's own programs, such as a master or a worker.

Law: sets what such a program has to find in its environment, and becomes it. The wheel of pyspark has no scripts that
start a standalone cluster, only `spark-class`, which wants a Java.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

from stompbroker_report.errors import Cause, ReportError
from stompbroker_report.java import find_java_home

__all__ = ["environment", "program"]


def program() -> Path:
    """The script that starts a class.

    Raises:
        ReportError: pyspark is not installed.
    """
    return _spark_home() / "bin" / "spark-class"


def environment() -> dict[str, str]:
    """What it has to be started with, beside what is there already.

    Raises:
        ReportError: pyspark or a Java is missing.
    """
    return {
        "JAVA_HOME": str(find_java_home()),
        "SPARK_HOME": str(_spark_home()),
        "PYSPARK_PYTHON": sys.executable,
    }


def _spark_home() -> Path:
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise ReportError(Cause.NO_SPARK, "Spark is not installed: pip install 'stompbroker[analytics]'.")
    return Path(found.origin).parent


if __name__ == "__main__":
    try:
        script, variables = program(), environment()
    except ReportError as error:
        sys.exit(str(error))
    os.execve(script, [str(script), *sys.argv[1:]], {**os.environ, **variables})
