"""The whole report on small lakes: its numbers against the test's own count, and what stands in its way."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stompbroker_report.errors import Cause, ReportError
from stompbroker_report.job import STEPS, run
from stompbroker_report.json_report import from_json
from stompbroker_report.measures import Direction, Measure, Scope
from stompbroker_report.schemas import MARTS
from tests.analytics.made_records import DATE, delivery, write_lake
from tests.analytics.sample_run import GENERATED_AT, QUIET, request_for

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from stompbroker_report.content import ReportContent
    from tests.analytics.sample_run import SampleRun

#: Columns of which the files say so, as those of all releases do: files of several dates are read together.
NEVER_NULL: Final = {
    "members": {"place", "group_members"},
    "reasons": {"readings"},
    "changes": {"measure", "previous"},
}


@pytest.fixture(scope="module")
def content(sample_run: SampleRun) -> ReportContent:
    """Of the sample's last date."""
    return sample_run.contents[0]


@pytest.fixture(scope="module")
def records(sample_run: SampleRun) -> pa.Table:
    return pq.read_table(sample_run.lake / "deliveries" / f"dt={DATE}", partitioning=None)


def test_numbers_are_those_of_the_lake(content: ReportContent, records: pa.Table) -> None:
    rows = records.to_pylist()
    by_outcome: Counter[str] = Counter()
    for row in rows:
        by_outcome[row["outcome"]] += row["weight"]

    day = content.day
    assert day.records == len(rows)
    assert day.deliveries == sum(row["weight"] for row in rows)
    assert {word: getattr(day.outcomes, word) for word in by_outcome} == by_outcome
    assert day.nacks == sum(row["nacks"] * row["weight"] for row in rows)
    assert day.body_bytes == sum(row["body_bytes"] * row["weight"] for row in rows)
    assert day.redelivered == sum(row["weight"] for row in rows if row["attempts"] > 1)
    assert sum(hour.deliveries for hour in content.hours) == day.deliveries
    assert sum(topic.figures.deliveries for topic in content.topics.rows) == day.deliveries
    assert sum(reading.figures.deliveries for reading in content.readings.rows) == day.deliveries
    assert sum(sum(topic.deliveries) for topic in content.topic_hours) == day.deliveries
    assert content.dead_letters.deliveries == by_outcome["dead"] > 0


def test_percentiles_are_those_of_the_lake(content: ReportContent, records: pa.Table) -> None:
    waited_us = [
        (row["settled_at"] - row["last_sent_at"]) // timedelta(microseconds=1)
        for row in records.to_pylist()
        if row["outcome"] == "acked" and row["subscription"] == "mailer/smtp"
    ]
    kept_us = [us if us < 1_000_000 else us - us % 1000 for us in waited_us]

    [mailer] = [row for row in content.subscriptions.rows if row.subscription == "mailer/smtp"]

    assert mailer.figures.time_to_ack.deliveries == len(waited_us)
    assert mailer.figures.time_to_ack.p99_s == pytest.approx(np.percentile(kept_us, 99) / 1e6, abs=1e-6)
    assert mailer.figures.time_to_ack.max_s == max(waited_us) / 1e6


def test_bad_day_of_the_sample_stands_out(content: ReportContent) -> None:
    found = {(change.scope, change.name, change.measure): change.direction for change in content.changes}

    assert found[Scope.SUBSCRIPTION, "mailer/smtp", Measure.REDELIVERY_RATE] is Direction.HIGHER
    assert found[Scope.TOPIC, "mail.outgoing", Measure.P99_TO_ACK_S] is Direction.HIGHER
    assert [day.date for day in content.history] == [DATE - timedelta(days=days) for days in range(7, -1, -1)]
    assert content.slowest[0].subscription == "mailer/smtp"


def test_head_says_what_the_reader_must_know(content: ReportContent) -> None:
    head = content.head

    assert (head.date, head.generated_at, head.is_complete) == (DATE, GENERATED_AT, True)
    assert head.complete_until == datetime(2026, 11, 16, tzinfo=UTC)
    assert head.duplicate_records == 0
    assert head.weighted_deliveries > head.weighted_records > 0
    assert len(head.previous_dates) == 7


def test_files_are_there_and_say_the_same(content: ReportContent, sample_run: SampleRun) -> None:
    folder = sample_run.out / "reports" / f"dt={DATE}"

    assert from_json((folder / "report.json").read_text()) == content
    assert (folder / "report.html").read_text().startswith("<!doctype html>")
    assert (sample_run.out / "reports" / "index.html").exists()
    assert not list(sample_run.out.rglob(".unfinished*"))


def test_marts_have_the_columns_of_their_contract(sample_run: SampleRun) -> None:
    for mart, contract in MARTS.items():
        found = pq.read_table(sample_run.out / "marts" / mart / f"dt={DATE}", partitioning=None)
        assert ["dt", *found.column_names] == contract.names
        assert {field.name for field in found.schema if not field.nullable} == NEVER_NULL.get(mart, set()), mart


def test_times_in_the_marts_say_that_they_are_utc(sample_run: SampleRun) -> None:
    """Others take them for times of their machine, and so did we where that was not on UTC."""
    times = [
        field.type
        for mart in MARTS
        for field in pq.read_schema(next((sample_run.out / "marts" / mart / f"dt={DATE}").glob("*.parquet")))
        if pa.types.is_timestamp(field.type)
    ]
    assert set(times) == {pa.timestamp("us", "UTC")}


def test_members_are_those_of_the_lake(content: ReportContent, records: pa.Table) -> None:
    counted: defaultdict[str, Counter[str | None]] = defaultdict(Counter)
    for row in records.to_pylist():
        counted[row["subscription"]][row["member"]] += row["weight"]

    found = {
        group.subscription: Counter(
            {one.member: one.deliveries for one in group.busiest} | {None: group.without_member}
        )
        for group in content.groups.rows
    }

    assert found == {name: counted[name] for name in ("/queue/pictures.resize", "group:invoices @ orders.created")}
    for group in content.groups.rows:
        shares = [one.share_rate for one in group.busiest]
        assert (group.largest_share_rate, group.least_share_rate) == (max(shares), min(shares))
        assert sum(shares) == pytest.approx(1.0)


def test_steps_are_said_in_order(sample_run: SampleRun) -> None:
    assert sample_run.said == list(STEPS)


def test_each_table_is_one_job_and_few_steps_read_the_lake(sample_run: SampleRun) -> None:
    """However many dates: of each job and each reading, planning is what a small report spends its time on."""
    # Two more broadcast the smaller side of a join: the durations, and the duplicates.
    assert sample_run.counts.jobs == len(MARTS) + 2
    # Records: sums, durations of reported and of earlier days, duplicates, failures. And the snapshots.
    assert sample_run.counts.scans == 5 + 1


def test_duplicates_are_said_in_the_head(sample_run: SampleRun) -> None:
    after = sample_run.contents[1]

    assert (after.head.duplicate_records, after.day.deliveries) == (1, 9)
    assert after.backlog.unsettled_at is None


def test_date_on_which_nothing_was_settled_is_a_report(sample_run: SampleRun) -> None:
    quiet = sample_run.contents[2]

    assert (quiet.day.deliveries, quiet.day.redelivery_rate, len(quiet.hours)) == (0, None, 24)
    assert [point.lag_messages for point in quiet.backlog.points] == [3]
    assert (quiet.backlog.is_closing, quiet.head.is_complete) == (False, False)


def test_date_that_is_not_there_is_a_sentence(spark: SparkSession, sample_run: SampleRun) -> None:
    with pytest.raises(ReportError, match=r"nothing for 2026-11-18; it goes from 2026-11-08 to 2026-11-17") as raised:
        run(spark, request_for(sample_run.directory, DATE, QUIET + timedelta(days=1)))

    assert raised.value.cause is Cause.NO_DATE


def test_results_that_cannot_be_written_are_a_sentence(spark: SparkSession, tmp_path: Path) -> None:
    write_lake(tmp_path / "lake", "deliveries", [delivery()])
    (tmp_path / "out").write_text("a file")

    with pytest.raises(ReportError, match=f"Results cannot be written to {tmp_path}/out") as raised:
        run(spark, request_for(tmp_path))

    assert raised.value.cause is Cause.UNWRITABLE


def test_file_that_breaks_off_in_the_middle_is_a_sentence(spark: SparkSession, tmp_path: Path) -> None:
    place = tmp_path / "a place"
    write_lake(place / "lake", "deliveries", [delivery(offset=number) for number in range(1000)])
    path = place / "lake" / "deliveries" / f"dt={DATE}" / "export-1.parquet"
    whole = path.read_bytes()
    # Its footer is whole, so only the reading itself finds out.
    path.write_bytes(whole[:4] + bytes(400) + whole[404:])

    with pytest.raises(ReportError, match=rf"{path} begins and ends like a Parquet file") as raised:
        run(spark, request_for(place))

    assert raised.value.cause is Cause.UNREADABLE_FILE


def test_text_that_is_not_utf_8_is_a_sentence_that_names_its_file(spark: SparkSession, tmp_path: Path) -> None:
    write_lake(tmp_path / "lake", "deliveries", [delivery()])
    path = tmp_path / "lake" / "deliveries" / f"dt={DATE}" / "foreign.parquet"
    table = pq.read_table(path.with_name("export-1.parquet"), partitioning=None)
    broken = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff\xfe"]).buffers())
    pq.write_table(table.set_column(1, table.schema.field(1), broken), path)

    with pytest.raises(ReportError, match=rf"{path} .*: its column 'topic' has a text that is not UTF-8") as raised:
        run(spark, request_for(tmp_path))

    assert raised.value.cause is Cause.UNREADABLE_FILE
