"""Runs the report of one or more dates, from the lake to the results.

The only module that reads and writes: it opens the lake, runs the steps, and writes marts and reports. One pass over
the lake covers all dates of a run and the seven days before the first, which they are compared with.
"""

from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final, final

from stompbroker_report.assembly import DateFacts, content_of, history_of
from stompbroker_report.changes import Calendar
from stompbroker_report.errors import Cause, ReportError
from stompbroker_report.excerpts import excerpts_of
from stompbroker_report.json_report import from_json, to_json
from stompbroker_report.lake import Lake, open_lake
from stompbroker_report.measures import earlier_dates
from stompbroker_report.schemas import MARTS
from stompbroker_report.sinks import Results
from stompbroker_report.spark_failures import spark_failures
from stompbroker_report.tables import tables_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future
    from datetime import date, datetime

    from pyspark.sql import DataFrame, SparkSession

    from stompbroker_report.content import ReportContent
    from stompbroker_report.sinks import Row

#: Tables that are written at a time: while Spark plans the next, the other core computes.
_WRITERS: Final = 2
#: What the report says of earlier days is in these: one row a date, and 25.
_OF_EARLIER_DAYS: Final = ("days", "backlog_hours")

#: The names of the steps, in order, as `on_step` gets them.
STEPS: Final = (
    "looking at the lake",
    "checking its files",
    *(f"writing the table {name}" for name in MARTS),
    "writing the report",
)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRequest:
    """What to report, from where, and to where: paths or URIs. Results cannot go to an object store."""

    lake: str
    out: str
    first_date: date
    last_date: date
    #: Shown in the report; nothing else in it depends on when it was made.
    generated_at: datetime

    @property
    def dates(self) -> list[date]:
        return [self.first_date + timedelta(days=day) for day in range((self.last_date - self.first_date).days + 1)]


def run(
    spark: SparkSession, request: ReportRequest, *, on_step: Callable[[str], None] = lambda _: None
) -> list[ReportContent]:
    """Compute and write everything; returns the content of each date's report.

    Raises:
        ReportError: why there is no report. Marts that were finished by then stay.
    """
    steps, one_at_a_time = iter(STEPS), Lock()

    def begin_step() -> None:
        with one_at_a_time:
            on_step(next(steps))

    begin_step()
    lake = open_lake(request.lake)
    calendar = _calendar(lake, request)
    results = Results(request.out)
    begin_step()
    window = sorted({*request.dates, *(day for date in request.dates for day in earlier_dates(date))})
    with _readable_by(spark, lake, window) as source, spark_failures("Spark gave up"), _kept() as keep:
        deliveries = source.read(spark, "deliveries", window)
        snapshots = source.read(spark, "backlog", window)
        tables = tables_of(deliveries, snapshots, calendar, keep)
        days, hours = _written(results, tables, request.dates, begin_step)
    history = history_of(days, hours, window)
    begin_step()
    with _texts_of(lake, window):
        contents = [content_of(_facts(lake, request, day), excerpts_of(results, day), history) for day in request.dates]
    _write_reports(results, contents)
    return contents


def _written(
    results: Results, tables: Iterator[tuple[str, DataFrame]], days: list[date], begin_step: Callable[[], None]
) -> list[list[Row]]:
    """Write all tables; returns the rows of those in `_OF_EARLIER_DAYS`, of all dates.

    The first tables are computed while the frames of others are still being made.
    """

    def write(name: str, frame: DataFrame) -> list[Row]:
        begin_step()
        if name in _OF_EARLIER_DAYS:
            return results.write_and_read_mart(name, frame, days)
        results.write_mart(name, frame, days)
        return []

    with ThreadPoolExecutor(_WRITERS) as pool:
        try:
            written: dict[str, Future[list[Row]]] = {}
            for name, frame in tables:
                written[name] = pool.submit(write, name, frame)
                for one in written.values():
                    if one.done():
                        one.result()  # if it failed, so do we, at once
            rows = {name: one.result() for name, one in written.items()}
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [rows[name] for name in _OF_EARLIER_DAYS]


@contextmanager
def _readable_by(spark: SparkSession, lake: Lake, days: list[date]) -> Iterator[Lake]:
    """The lake itself, or a temporary copy of these dates."""
    if not lake.is_in_object_store:
        yield lake
        return
    master = spark.sparkContext.master or ""
    if not master.startswith("local"):
        raise ReportError(
            Cause.NO_LAKE,
            f"The lake is in an object store, which Spark on {master} cannot read: its workers do not see what this "
            "machine fetches. Use --master 'local[*]', or a copy of the lake under a path that all of them have.",
        )
    with tempfile.TemporaryDirectory(prefix="stompbroker-lake-") as directory:
        yield lake.fetch(days, Path(directory))


@contextmanager
def _texts_of(lake: Lake, days: list[date]) -> Iterator[None]:
    """Name the file if a text is not UTF-8: Spark passes it through, and it fails only here."""
    try:
        yield
    except UnicodeDecodeError:
        lake.raise_for_broken_texts(days)
        raise


def _calendar(lake: Lake, request: ReportRequest) -> Calendar:
    lake.require(request.dates)
    dates = lake.dates
    return Calendar(
        reported=request.dates,
        in_lake=dates,
        with_backlog=list(lake.files["backlog"]),
        complete=[day for day in dates if lake.is_complete(day)],
    )


def _facts(lake: Lake, request: ReportRequest, day: date) -> DateFacts:
    return DateFacts(
        day=day,
        generated_at=request.generated_at,
        lake=request.lake,
        complete_until=lake.complete_until,
        is_complete=lake.is_complete(day),
        previous_dates=tuple(earlier for earlier in earlier_dates(day) if earlier in lake.dates),
    )


def _write_reports(results: Results, contents: list[ReportContent]) -> None:
    from stompbroker_report.page import index, page  # only now: plots take a second to load

    for content in contents:
        results.write_text(content.head.date, "report.json", to_json(content))
        results.write_text(content.head.date, "report.html", page(content))
    results.write_overview("index.html", index(_readable(results.reports("report.json"))))


def _readable(texts: list[str]) -> list[ReportContent]:
    """Reports that this release can read. Others keep their page but are not in the overview."""
    contents = []
    for text in texts:
        try:
            contents.append(from_json(text))
        except ValueError:
            continue
    return contents


@contextmanager
def _kept() -> Iterator[Callable[[DataFrame], DataFrame]]:
    """Cache frames until the end; Spark spills to disk what does not fit."""
    frames: list[DataFrame] = []

    def keep(frame: DataFrame) -> DataFrame:
        frames.append(frame.cache())
        return frames[-1]

    try:
        yield keep
    finally:
        for frame in frames:
            frame.unpersist()
