"""Turns the exceptions of Spark and its bridge to Java into sentences.

Any other exception is our own bug and passes through.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from stompbroker_report.errors import Cause, ReportError, first_line

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Part of Spark's message if a file's footer is intact and something before it is not.
_UNREADABLE: Final = re.compile(r"Encountered error while reading file (?:file://)?(\S+?)\.?\s")


@contextmanager
def spark_failures(what: str) -> Iterator[None]:
    """Turn a failure of Spark into a ReportError; `what` failed, as the beginning of a sentence."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        text = str(error)
        unreadable = _UNREADABLE.search(text)
        if unreadable is not None:
            raise ReportError(
                Cause.UNREADABLE_FILE,
                f"{unquote(unreadable[1])} begins and ends like a Parquet file but cannot be read: move it out of the "
                "lake, or restore it from a backup.",
            ) from error
        raise ReportError(Cause.SPARK_FAILED, f"{what}: {_root_cause(error)}.") from error


def _root_cause(error: PySparkException | Py4JError) -> str:
    """One line: the first cause, not what followed from it."""
    if not isinstance(error, Py4JJavaError):
        return first_line(error)
    cause = error.java_exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    return first_line(cause.toString())
