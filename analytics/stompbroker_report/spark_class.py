"""`python -m stompbroker_report.spark_class CLASS …` runs one of Spark's own programs, such as a master or a worker.

Sets its environment and becomes it. The pyspark wheel has no scripts for a standalone cluster, only `spark-class`,
which needs a Java.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

from stompbroker_report.errors import Cause, ReportError
from stompbroker_report.java import find_java_home


def program() -> Path:
    """The `spark-class` script.

    Raises:
        ReportError: pyspark is not installed.
    """
    return _spark_home() / "bin" / "spark-class"


def environment() -> dict[str, str]:
    """The variables to add to its environment.

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
