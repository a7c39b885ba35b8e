"""A lake is read as it is, or refused with a sentence that names the file."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stompbroker_report.errors import Cause, ReportError
from stompbroker_report.lake import open_lake
from stompbroker_report.lake_schema import DELIVERIES
from tests.analytics.made_records import DATE, delivery, rows, snapshot, write_lake

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


YEAR_14000_US = 379_633_305_600_000_000


def test_rows_come_with_the_date_of_their_folder(spark: SparkSession, tmp_path: Path) -> None:
    earlier = DATE - timedelta(days=1)
    write_lake(tmp_path, "deliveries", [delivery(), delivery(message_id="m-2", dt=earlier)])

    lake = open_lake(str(tmp_path))

    assert lake.dates == [earlier, DATE]
    found = rows(lake.read(spark, "deliveries", [DATE, earlier]), "message_id", "dt")
    assert sorted(found, key=lambda row: str(row["dt"])) == [
        {"message_id": "m-2", "dt": earlier},
        {"message_id": "m-1", "dt": DATE},
    ]


def test_only_the_dates_that_are_asked_for_are_read(spark: SparkSession, tmp_path: Path) -> None:
    write_lake(tmp_path, "deliveries", [delivery(), delivery(message_id="m-2", dt=DATE - timedelta(days=1))])

    assert rows(open_lake(str(tmp_path)).read(spark, "deliveries", [DATE]), "message_id") == [{"message_id": "m-1"}]


def test_date_that_a_table_has_not_is_empty(spark: SparkSession, tmp_path: Path) -> None:
    write_lake(tmp_path, "backlog", [snapshot()])

    assert rows(open_lake(str(tmp_path)).read(spark, "deliveries", [DATE])) == []


def test_newer_and_older_files_are_read(spark: SparkSession, tmp_path: Path) -> None:
    write_lake(tmp_path, "deliveries", [delivery(message_id="m-1")])
    folder = tmp_path / "deliveries" / f"dt={DATE}"
    made = pq.read_table(folder / "export-1.parquet")
    pq.write_table(made.append_column("colour", pa.array(["red"])), folder / "newer.parquet")
    pq.write_table(made.drop_columns(["publisher"]), folder / "older.parquet")

    assert len(rows(open_lake(str(tmp_path)).read(spark, "deliveries", [DATE]), "publisher")) == 3


def test_kind_tells_a_queue_from_a_topic_and_older_files_have_topics(spark: SparkSession, tmp_path: Path) -> None:
    write_lake(tmp_path, "deliveries", [delivery(), delivery(kind="queue"), delivery(kind=None)])
    write_lake(tmp_path, "backlog", [snapshot()])
    for table in ("deliveries", "backlog"):
        folder = tmp_path / table / f"dt={DATE}"
        made = pq.read_table(folder / "export-1.parquet").slice(0, 1)
        pq.write_table(made.drop_columns(["kind"]), folder / "older.parquet")

    lake = open_lake(str(tmp_path))

    names = [(row["kind"], row["topic"]) for row in rows(lake.read(spark, "deliveries", [DATE]), "kind", "topic")]
    assert sorted(names) == [("queue", "/queue/orders"), *[("topic", "orders")] * 3]
    assert rows(lake.read(spark, "backlog", [DATE]), "kind", "topic") == [{"kind": "topic", "topic": "orders"}] * 2


def test_unfinished_files_are_not_data(spark: SparkSession, tmp_path: Path) -> None:
    write_lake(tmp_path, "deliveries", [delivery()])
    (tmp_path / "deliveries" / f"dt={DATE}" / ".export-2.parquet.tmp").write_bytes(b"PAR1 half")

    assert len(rows(open_lake(str(tmp_path)).read(spark, "deliveries", [DATE]))) == 1


def test_torn_file_is_named(spark: SparkSession, tmp_path: Path) -> None:
    write_lake(tmp_path, "deliveries", [delivery()])
    torn = tmp_path / "deliveries" / f"dt={DATE}" / "export-1.parquet"
    torn.write_bytes(torn.read_bytes()[:-10])

    with pytest.raises(ReportError, match=rf"{torn} is not a whole Parquet file .*move it away") as raised:
        open_lake(str(tmp_path)).read(spark, "deliveries", [DATE])

    assert raised.value.cause is Cause.UNREADABLE_FILE


@pytest.mark.parametrize(
    ("foreign", "said"),
    [
        (pa.table({"colour": ["red"]}), "it has no column 'topic'"),
        (
            pa.Table.from_pylist(
                [{name: value for name, value in delivery().items() if name != "dt"}], schema=DELIVERIES
            ).cast(DELIVERIES.set(17, pa.field("last_reason", pa.binary()))),
            "its column 'last_reason' is binary, not string",
        ),
        (
            pa.Table.from_pylist(
                [{name: value for name, value in delivery().items() if name not in ("dt", "topic")}],
                schema=pa.schema([field.with_nullable(True) for field in DELIVERIES]),
            ),
            "its column 'topic' has nulls",
        ),
        (
            pa.Table.from_pylist(
                [{name: value for name, value in delivery().items() if name not in ("dt", "published_at")}],
                schema=DELIVERIES,
            ).set_column(11, DELIVERIES.field(11), pa.array([YEAR_14000_US]).cast(DELIVERIES.field(11).type)),
            "its column 'published_at' has a time before the year 1 or after the year 9999",
        ),
    ],
    ids=["other columns", "other type", "nulls", "times that nobody knows"],
)
def test_foreign_file_is_named(foreign: pa.Table, said: str, spark: SparkSession, tmp_path: Path) -> None:
    write_lake(tmp_path, "deliveries", [delivery()])
    path = tmp_path / "deliveries" / f"dt={DATE}" / "foreign.parquet"
    pq.write_table(foreign, path)

    with pytest.raises(ReportError, match=f"{path} is not a file of the table 'deliveries': {said}") as raised:
        open_lake(str(tmp_path)).read(spark, "deliveries", [DATE])

    assert raised.value.cause is Cause.UNREADABLE_FILE


@pytest.mark.parametrize("name", ["dt=yesterday", "dt=20261115", "dt=2026-W46-7", "dt=9999-12-31"])
def test_folder_with_a_wrong_date_is_named(name: str, tmp_path: Path) -> None:
    (tmp_path / "deliveries" / name).mkdir(parents=True)

    with pytest.raises(ReportError, match=f"{name} is named like a date but is not one"):
        open_lake(str(tmp_path))


def test_lake_may_lie_where_its_path_looks_like_a_pattern(spark: SparkSession, tmp_path: Path) -> None:
    for name, message_id in (("lake[1]", "m-1"), ("lake1", "m-2"), ("la*e {1,2}?", "m-3")):
        write_lake(tmp_path / name, "deliveries", [delivery(message_id=message_id)])

        found = rows(open_lake(str(tmp_path / name)).read(spark, "deliveries", [DATE]), "message_id")

        assert found == [{"message_id": message_id}]


@pytest.mark.parametrize("where", ["", "nowhere", "deliveries"])
def test_empty_lake_is_a_sentence(where: str, tmp_path: Path) -> None:
    (tmp_path / "deliveries").mkdir()

    with pytest.raises(ReportError, match=r"There is nothing in the lake .*'stompbroker ledger export'") as raised:
        open_lake(str(tmp_path / where))

    assert raised.value.cause is Cause.NO_LAKE


def test_address_that_nobody_understands_is_a_sentence() -> None:
    with pytest.raises(ReportError, match=r"The lake gopher://lake cannot be read"):
        open_lake("gopher://lake")


@pytest.mark.parametrize(
    ("until", "is_complete"),
    [("2026-11-16T00:00:00+00:00", True), ("2026-11-15T23:59:59.999999Z", False), ("2026-11-16T01:00:00+01:00", True)],
)
def test_date_is_complete_when_the_lake_is_complete_until_its_end(
    until: str, is_complete: bool, tmp_path: Path
) -> None:
    write_lake(tmp_path, "deliveries", [delivery()])
    (tmp_path / "_complete_until.json").write_text(f'{{"complete_until": "{until}"}}')

    lake = open_lake(str(tmp_path))

    assert lake.is_complete(DATE) is is_complete
    assert lake.complete_until is not None
    assert lake.complete_until.tzinfo is UTC


def test_lake_that_does_not_say_is_not_complete(tmp_path: Path) -> None:
    write_lake(tmp_path, "deliveries", [delivery()])

    lake = open_lake(f"file://{tmp_path}")

    assert (lake.complete_until, lake.is_complete(DATE)) == (None, False)


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"complete_until": 5}', b"\xff"])
def test_broken_word_about_completeness_is_a_sentence(text: bytes, tmp_path: Path) -> None:
    write_lake(tmp_path, "deliveries", [delivery()])
    (tmp_path / "_complete_until.json").write_bytes(text)

    with pytest.raises(ReportError, match=r"_complete_until\.json does not say .* Delete it"):
        open_lake(str(tmp_path))


def test_complete_until_is_a_moment(tmp_path: Path) -> None:
    write_lake(tmp_path, "deliveries", [delivery(dt=date(2026, 1, 1))])
    (tmp_path / "_complete_until.json").write_text('{"complete_until": "2026-01-01T12:00:00Z", "exports": 3}')

    assert open_lake(str(tmp_path)).complete_until == datetime(2026, 1, 1, 12, tzinfo=UTC)
