"""What Spark throws, as a sentence.

Law: knows how Spark and its bridge to Java report a failure, and nothing of what was computed. What is neither is our
own mistake, and passes.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from stompbroker_report.errors import Cause, ReportError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["spark_failures"]

#: In the middle of what Spark says when the footer of a file is whole, and something before it is not.
_UNREADABLE: Final = re.compile(r"Encountered error while reading file (?:file://)?(\S+?)\.?\s")


@contextmanager
def spark_failures(what: str) -> Iterator[None]:
    """Turns a failure of Spark into a ReportError; `what` is what did not succeed, as the beginning of a sentence."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        text = str(error)
        unreadable = _UNREADABLE.search(text)
        if unreadable is not None:
            raise ReportError(
                Cause.UNREADABLE_FILE,
                f"{unquote(unreadable[1])} begins and ends as a Parquet file does, and cannot be read: move it out of "
                "the lake, or restore it from a backup.",
            ) from error
        raise ReportError(Cause.SPARK_FAILED, f"{what}: {_root_cause(error)}.") from error


def _root_cause(error: PySparkException | Py4JError) -> str:
    """One line: what began it, rather than all that followed."""
    text = str(error)
    if isinstance(error, Py4JJavaError):
        cause = error.java_exception
        while cause.getCause() is not None:
            cause = cause.getCause()
        text = str(cause.toString())
    return next(iter(text.splitlines()), type(error).__name__).rstrip(".")
