"""The made-up lake: the broker's schema, the same every time, and with something to report."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow.compute as pc
import pyarrow.parquet as pq

from stompbroker_report.generate import generate_lake, main
from stompbroker_report.lake import open_lake
from stompbroker_report.lake_schema import OUTCOMES, TABLES
from tests.analytics.made_records import DATE

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def _contents(lake: Path) -> dict[str, bytes]:
    return {str(path.relative_to(lake)): path.read_bytes() for path in sorted(lake.rglob("*")) if path.is_file()}


def test_same_arguments_give_the_same_files(tmp_path: Path) -> None:
    for name in ("one", "other"):
        generate_lake(tmp_path / name, last_date=DATE, days=3, deliveries=3000)
    generate_lake(tmp_path / "another seed", last_date=DATE, days=3, deliveries=3000, seed=2)

    assert _contents(tmp_path / "one") == _contents(tmp_path / "other")
    assert _contents(tmp_path / "one") != _contents(tmp_path / "another seed")


def test_lake_has_the_schema_and_about_as_many_records_as_asked_for(tmp_path: Path) -> None:
    records = generate_lake(tmp_path, last_date=DATE, days=4, deliveries=20_000)

    lake = open_lake(str(tmp_path))
    assert lake.dates == [DATE - timedelta(days=days) for days in (3, 2, 1, 0)]
    assert lake.is_complete(DATE)
    counted = 0
    for table, schema in TABLES.items():
        for paths in lake.files[table].values():
            for path in paths:
                file = pq.read_table(path, partitioning=None)
                assert file.schema.equals(schema)
                file.validate(full=True)
                counted += file.num_rows if table == "deliveries" else 0
    assert counted == records
    assert 0.9 < records / 20_000 < 1.1


def test_records_are_in_the_folder_of_their_day_and_in_order(tmp_path: Path) -> None:
    generate_lake(tmp_path, last_date=DATE, days=2, deliveries=5000)

    rows = pq.read_table(tmp_path / "deliveries" / f"dt={DATE}", partitioning=None)

    start = datetime(DATE.year, DATE.month, DATE.day, tzinfo=UTC)
    assert pc.min(rows["settled_at"]).as_py() >= start
    assert pc.max(rows["settled_at"]).as_py() < start + timedelta(days=1)
    assert set(rows["outcome"].to_pylist()) <= set(OUTCOMES)
    sent = rows.filter(pc.field("attempts") > 0)
    for before, after in [("published_at", "first_sent_at"), ("first_sent_at", "last_sent_at")]:
        assert pc.all(pc.less_equal(sent[before], sent[after])).as_py()
    assert pc.all(pc.less_equal(rows["nacks"], rows["attempts"])).as_py()


def test_snapshots_close_with_what_the_next_day_settles(tmp_path: Path) -> None:
    generate_lake(tmp_path, last_date=DATE, days=2, deliveries=20_000)
    midnight = datetime(DATE.year, DATE.month, DATE.day, tzinfo=UTC)

    yesterday = pq.read_table(tmp_path / "backlog" / f"dt={DATE - timedelta(days=1)}", partitioning=None)
    today = pq.read_table(tmp_path / "deliveries" / f"dt={DATE}", partitioning=None)

    left = yesterday.filter(pc.field("is_closing") & (pc.field("subscription") == "search/indexer"))
    caught_up = today.filter((pc.field("published_at") < midnight) & (pc.field("subscription") == "search/indexer"))
    assert left["lag_messages"].to_pylist() == [caught_up.num_rows]
    assert caught_up.num_rows > 0


def test_program_says_how_much_it_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--lake", str(tmp_path), "--date", "2026-11-15", "--days", "1", "--deliveries", "1000"])

    assert "records on 1 days" in capsys.readouterr().out
