"""Why there is no report: always a sentence for whoever asked for it.

Law: one exception, and the causes that a caller may want to tell apart. What is not in here is our own mistake, and
keeps its traceback.
"""

from __future__ import annotations

from enum import Enum
from typing import final

__all__ = ["Cause", "ReportError"]


@final
class Cause(Enum):
    """What stands in the way."""

    NO_SPARK = "pyspark is not installed"
    NO_JAVA = "no Java that Spark can run on"
    SPARK_FAILED = "Spark did not start, or gave up"
    NO_LAKE = "nothing to read"
    NO_DATE = "the lake has nothing for a date"
    UNREADABLE_FILE = "a file of the lake cannot be read"
    UNWRITABLE = "the results cannot be written"


@final
class ReportError(Exception):
    """There is no report; `str()` is a sentence that names the thing and says what to do."""

    def __init__(self, cause: Cause, sentence: str) -> None:
        super().__init__(sentence)
        self.cause = cause
