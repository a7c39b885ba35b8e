"""The process that writes the lake, as it is started by the broker; on both engines."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from stompbroker.ledger import FileWritten, Kind, Payload, export_process
from stompbroker.ledger.schema import BACKLOG, DELIVERIES
from stompbroker.storage import paging
from tests.ledger.records import DAY, backlog_draft, deliveries, packed

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

    from tests.ledger.ledger_on_store import LedgerOnStore


def plan(on_store: LedgerOnStore) -> None:
    on_store.exports.plan(1_800_000_000_000_000_000)
    on_store.write()


def test_a_file_has_the_fixed_schema_and_every_value(on_store: LedgerOnStore) -> None:
    records = deliveries(range(100))
    on_store.write(records)
    on_store.exports.add(Kind.BACKLOG, DAY, 2, 1, Payload(lambda: backlog_draft(2)))
    on_store.write()
    plan(on_store)

    done = on_store.run_process(on_store.order())

    assert (done.returncode, done.stderr) == (0, b"")
    behind, delivered = FileWritten.read_all(done.stdout)
    assert (behind.records, delivered.records) == (2, 100)
    assert delivered.path == "deliveries/dt=2026-11-16/deliveries-1a2b3c4d-1-2-20270115T080000Z.parquet"
    found = pq.ParquetFile(on_store.lake / delivered.path)
    assert found.schema_arrow.equals(DELIVERIES)
    assert found.read() == pa.Table.from_batches([records])
    assert {found.metadata.row_group(0).column(index).compression for index in range(len(DELIVERIES))} == {"ZSTD"}
    assert pq.ParquetFile(on_store.lake / behind.path).schema_arrow.equals(BACKLOG)
    assert on_store.complete_until() == "2027-01-15T08:00:00.123Z"


def test_many_batches_are_read_a_few_at_a_time_and_in_order(
    on_store: LedgerOnStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paging, "LEDGER_PAGE_ROWS", 3)
    on_store.settle(*[1] * 10)
    plan(on_store)

    on_store.write_files()

    assert on_store.in_lake() == on_store.settled


def test_memory_is_bounded_by_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the batches unpack to: those that are read wait for no more than one row group."""
    monkeypatch.setattr(export_process, "ROW_GROUP_RECORDS", 1000)
    file = BytesIO()
    written: list[int] = []

    def batches() -> Iterator[tuple[int, bytes]]:
        for number in range(10):
            written.append(file.tell())
            yield number, packed(deliveries(range(number * 400, (number + 1) * 400)))

    assert export_process._write_parquet(Kind.DELIVERIES, batches(), file) == 4000

    found = pq.ParquetFile(file)
    assert [found.metadata.row_group(number).num_rows for number in range(found.num_row_groups)] == (
        [1000, 200, 1000, 200, 1000, 200, 400]
    )
    assert len(set(written)) >= 4  # it grew on the way
    assert found.read().column("offset").to_pylist() == list(range(4000))


def test_a_broken_payload_is_a_sentence_and_all_others_are_exported(on_store: LedgerOnStore) -> None:
    on_store.settle(3, day=DAY - 1)
    on_store.settle(3)
    plan(on_store)
    blob = "BLOB" if on_store.place.is_sqlite else "BYTEA"
    on_store.place.query(f"UPDATE ledger_batches SET payload = CAST('broken!!!' AS {blob}) WHERE id = 1")

    done = on_store.run_process(on_store.order())

    assert done.returncode == 3
    assert done.stderr.decode().startswith("The ledger is damaged: batch 1 of the ledger cannot be read: ")
    assert [file.export for file in FileWritten.read_all(done.stdout)] == [2]
    assert [name.split("/")[1] for name in on_store.files()] == ["dt=2026-11-16"]
    assert not (on_store.lake / "_complete_until.json").exists()


def test_a_lake_that_cannot_be_written_is_a_sentence(on_store: LedgerOnStore) -> None:
    on_store.settle(1)
    plan(on_store)
    on_store.lake.write_text("in the way")

    done = on_store.run_process(on_store.order())

    assert done.returncode == 1
    assert done.stdout == b""
    assert b"The lake cannot be written at " in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_database_that_is_not_there_is_a_sentence_without_its_password(on_store: LedgerOnStore) -> None:
    on_store.settle(1)
    plan(on_store)
    elsewhere = {"data": str(on_store.place.directory / "elsewhere")}
    if not on_store.place.is_sqlite:
        elsewhere = {"database": "postgresql+psycopg://user:secret@127.0.0.1:1/nothing"}

    done = on_store.run_process(on_store.order(**elsewhere))

    assert done.returncode == 1
    assert done.stderr.decode().startswith("Cannot read the ledger in ")
    assert b"secret" not in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert on_store.files() == []


def test_days_that_are_too_old_go_and_unfinished_files_too(on_store: LedgerOnStore) -> None:
    old, unfinished = on_store.lake / "deliveries/dt=2026-01-01", on_store.lake / "backlog/dt=2026-11-16"
    old.mkdir(parents=True)
    unfinished.mkdir(parents=True)
    (unfinished / ".backlog-1a2b3c4d-1-1-x.parquet.1.tmp").touch()
    on_store.settle(1, day=DAY)
    plan(on_store)

    done = on_store.run_process(on_store.order(delete_before_day=DAY))

    assert done.returncode == 0
    assert not old.exists()
    assert list(unfinished.iterdir()) == []
    assert len(on_store.files()) == 1
