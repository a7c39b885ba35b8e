"""Why there is no report, as a sentence for the person who asked for it.

One exception, with the causes that a caller may want to tell apart. Any other exception is a bug, and keeps its
traceback.
"""

from __future__ import annotations

from enum import Enum
from typing import final


@final
class Cause(Enum):
    """Why there is no report."""

    NO_SPARK = "pyspark is not installed"
    NO_JAVA = "no Java that Spark can run on"
    SPARK_FAILED = "Spark did not start, or gave up"
    NO_LAKE = "nothing to read"
    NO_DATE = "the lake has nothing for a date"
    UNREADABLE_FILE = "a file of the lake cannot be read"
    UNWRITABLE = "the results cannot be written"


@final
class ReportError(Exception):
    """There is no report; `str()` says why, and what to do."""

    def __init__(self, cause: Cause, sentence: str) -> None:
        super().__init__(sentence)
        self.cause = cause


def first_line(error: object) -> str:
    """What a library's exception says, without the full stop: the middle of our own sentence."""
    return next(iter(str(error).splitlines()), type(error).__name__).rstrip(".")
