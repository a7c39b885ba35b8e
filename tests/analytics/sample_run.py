"""One report on one small lake, which several files look at: the job takes seconds.

Law: where it is, how it is asked for, and what it has written; nothing is judged here.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, final

import pyarrow.parquet as pq

from stompbroker_report.generate import generate_lake
from stompbroker_report.job import ReportRequest, run
from stompbroker_report.schemas import MARTS
from tests.analytics.made_records import DATE, delivery, snapshot, write_lake
from tests.analytics.spark_counting import counted

if TYPE_CHECKING:
    from datetime import date
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.analytics.made_records import Row

GENERATED_AT: Final = datetime(2026, 11, 16, 3, tzinfo=UTC)
#: After the sample's last date: one with a delivery twice and with a file of a release that did not know members, and
#: one on which nothing was settled.
AFTER: Final = DATE + timedelta(days=1)
QUIET: Final = DATE + timedelta(days=2)
#: With members, on the date of the older file.
GROUP: Final = "group:workers @ orders"


def request_for(directory: Path, first: date = DATE, last: date = DATE) -> ReportRequest:
    """From `lake` to `out`."""
    return ReportRequest(
        lake=str(directory / "lake"),
        out=str(directory / "out"),
        first_date=first,
        last_date=last,
        generated_at=GENERATED_AT,
    )


def marts(out: Path, day: date = DATE) -> dict[str, list[Row]]:
    """Every mart of a date, in the order in which its rows lie."""
    folders = {mart: out / "marts" / mart / f"dt={day}" for mart in MARTS}
    return {
        mart: pq.read_table(folder, partitioning=None).to_pylist() if folder.exists() else []
        for mart, folder in folders.items()
    }


@final
class SampleRun:
    """A week and a day of the sample, the two odd days after it, and the reports of the last three dates."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.directory = directory
        self.lake = directory / "lake"
        self.out = directory / "out"
        # Enough for the bad day: what was sent less than a hundred times has no rate that could stand out.
        generate_lake(self.lake, last_date=DATE, days=8, deliveries=40_000)
        twice = [delivery(dt=AFTER), delivery(dt=AFTER), delivery(dt=AFTER, message_id="m-2")]
        with_members = [delivery(dt=AFTER, message_id=name, subscription=GROUP, member=name) for name in ("a", "b")]
        no_group = delivery(dt=AFTER, message_id="m-3", subscription="/queue/jobs")
        write_lake(self.lake, "deliveries", [*twice, *with_members, no_group])
        path = self.lake / "deliveries" / f"dt={AFTER}" / "export-1.parquet"
        table = pq.read_table(path, partitioning=None).slice(len(twice))
        older = table.set_column(0, "message_id", [["c", "d", "e"]]).drop_columns(["member"])
        pq.write_table(older.cast(older.schema), path.with_name("older.parquet"))
        write_lake(self.lake, "backlog", [snapshot(dt=QUIET, lag_messages=3, lag_s=9.0)])
        self.said: list[str] = []
        with counted(spark) as self.counts:
            self.contents = run(spark, request_for(directory, DATE, QUIET), on_step=self.said.append)
