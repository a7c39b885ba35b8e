"""Counts what Spark does while a block runs: jobs, and readings of files.

Law: told by Spark's own events, so what is planned and then not done does not count. A frame that two tables need and
nobody caches is read once for each.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, final

from pyspark.java_gateway import ensure_callback_server_started

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession


@final
class SparkCounts:
    """A listener of Spark's, which calls the methods by these names."""

    class Java:
        implements = ("org.apache.spark.scheduler.SparkListenerInterface",)

    def __init__(self) -> None:
        #: Java has another object for it each time it is named, so it cannot be removed.
        self.is_counting = True
        self.jobs = 0
        self._scans: set[int] = set()

    @property
    def scans(self) -> int:
        """Each reads all files of a table that were asked for."""
        return len(self._scans)

    def onJobStart(self, _: Any) -> None:  # noqa: N802 - Spark's name
        self.jobs += self.is_counting

    def onStageSubmitted(self, event: Any) -> None:  # noqa: N802 - likewise
        steps = event.stageInfo().rddInfos()
        for number in range(steps.size() if self.is_counting else 0):
            if steps.apply(number).name() == "FileScanRDD":
                self._scans.add(steps.apply(number).id())

    def __getattr__(self, name: str) -> Callable[[Any], None]:
        if name.startswith("on"):
            return lambda _: None
        raise AttributeError(name)


@contextmanager
def counted(spark: SparkSession) -> Iterator[SparkCounts]:
    """All events of the block are counted when it ends."""
    context = spark.sparkContext
    assert context._gateway is not None
    ensure_callback_server_started(context._gateway)  # type: ignore[no-untyped-call]
    scala_context = context._jsc.sc()
    counts = SparkCounts()
    # What Spark has not told anybody yet of earlier work, it would tell a new listener, too.
    scala_context.listenerBus().waitUntilEmpty()
    scala_context.addSparkListener(counts)
    try:
        yield counts
        scala_context.listenerBus().waitUntilEmpty()
    finally:
        counts.is_counting = False
