"""A report on a lake in an object store is the same as on that lake in a directory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from pyarrow import fs

from stompbroker_report.errors import Cause, ReportError
from stompbroker_report.job import run
from stompbroker_report.lake import open_lake
from stompbroker_report.sinks import Results
from tests.analytics.made_records import DATE, delivery, write_lake
from tests.analytics.sample_run import marts, request_for
from tests.support.object_store import Bucket, new_bucket

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.analytics.sample_run import SampleRun


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Bucket:
    return new_bucket(monkeypatch)


def put(lake: Path, bucket: Bucket) -> str:
    fs.copy_files(
        str(lake),
        f"{bucket.name}/lake",
        source_filesystem=fs.LocalFileSystem(),
        destination_filesystem=bucket.filesystem,
    )
    return bucket.address("lake")


def test_report_is_the_same_as_from_a_directory(
    spark: SparkSession, sample_run: SampleRun, bucket: Bucket, tmp_path: Path
) -> None:
    address = put(sample_run.lake, bucket)

    (content,) = run(spark, replace(request_for(tmp_path), lake=address))

    assert marts(tmp_path / "out") == marts(sample_run.out)
    of_directory = sample_run.contents[0]
    assert content == replace(of_directory, head=replace(of_directory.head, lake=address))


def test_torn_object_is_named_as_it_is_called_there(bucket: Bucket, tmp_path: Path) -> None:
    write_lake(tmp_path / "lake", "deliveries", [delivery()])
    (tmp_path / "lake" / "deliveries" / f"dt={DATE}" / "torn.parquet").write_bytes(b"PAR1")
    lake = open_lake(put(tmp_path / "lake", bucket))

    with pytest.raises(ReportError, match=rf"{bucket.name}/lake/deliveries/dt={DATE}/torn.parquet is not") as caught:
        lake.fetch([DATE], tmp_path / "copy")

    assert caught.value.cause is Cause.UNREADABLE_FILE


def test_only_the_dates_that_are_needed_are_fetched(sample_run: SampleRun, bucket: Bucket, tmp_path: Path) -> None:
    fetched = open_lake(put(sample_run.lake, bucket)).fetch([DATE], tmp_path / "copy")

    assert fetched.dates == [DATE]
    assert {path.parent.name for path in (tmp_path / "copy").rglob("*.parquet")} == {f"dt={DATE}"}


def test_results_do_not_go_to_an_object_store() -> None:
    with pytest.raises(ReportError, match=r"Results cannot be written to s3://bucket/out\?region=x: Spark") as caught:
        Results("s3://bucket/out?region=x")

    assert caught.value.cause is Cause.UNWRITABLE
