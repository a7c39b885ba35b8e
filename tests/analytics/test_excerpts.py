"""What a report shows of a mart: the first rows, and how much the rest is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from stompbroker_report.excerpts import LISTED_GROUPS, MEMBER_ROWS, REASON_ROWS, excerpts_of
from stompbroker_report.sinks import Results
from tests.analytics.made_records import DATE

if TYPE_CHECKING:
    from pathlib import Path


def _write_reasons(out: Path, deliveries: list[int]) -> None:
    folder = out / "marts" / "reasons" / f"dt={DATE}"
    folder.mkdir(parents=True)
    names = [f"reason {number:02}" for number in range(len(deliveries))]
    table = pa.table({"reason": names, "deliveries": deliveries, "nacks": deliveries, "dead": [0] * len(names)})
    # Two files, in small pieces: order must not depend on how rows lie.
    pq.write_table(table.slice(0, 3), folder / "part-0.parquet")
    pq.write_table(table.slice(3), folder / "part-1.parquet", row_group_size=2)


def test_first_rows_are_shown_and_all_are_summed_up(tmp_path: Path) -> None:
    deliveries = [1, 50, 2, *(10 + number for number in range(REASON_ROWS)), 50]
    _write_reasons(tmp_path, deliveries)

    excerpt = excerpts_of(Results(str(tmp_path)), DATE)["reasons"]

    assert [row["deliveries"] for row in excerpt.rows] == sorted(deliveries, reverse=True)[:REASON_ROWS]
    assert [row["reason"] for row in excerpt.rows[:2]] == ["reason 01", f"reason {len(deliveries) - 1:02}"]
    assert excerpt.total_rows == len(deliveries)
    assert excerpt.totals == {"deliveries": sum(deliveries), "nacks": sum(deliveries), "dead": 0}


def test_of_the_busiest_groups_the_busiest_members_are_listed(tmp_path: Path) -> None:
    rows = [
        {"subscription": f"group {group}", "member": f"{place:02}", "place": place, "group_deliveries": 100 - group}
        for group in range(LISTED_GROUPS + 2)
        for place in range(1, MEMBER_ROWS + 3)
    ]
    folder = tmp_path / "marts" / "members" / f"dt={DATE}"
    folder.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows[::-1]), folder / "part-0.parquet")

    excerpts = excerpts_of(Results(str(tmp_path)), DATE)

    groups, members = excerpts["groups"], excerpts["members"].rows
    assert [row["subscription"] for row in groups.rows] == [f"group {group}" for group in range(LISTED_GROUPS + 2)]
    assert groups.total_rows == LISTED_GROUPS + 2
    assert [(row["subscription"], row["place"]) for row in members] == [
        (f"group {group}", place) for group in range(LISTED_GROUPS) for place in range(1, MEMBER_ROWS + 1)
    ]


def test_mart_without_the_date_is_empty(tmp_path: Path) -> None:
    excerpt = excerpts_of(Results(str(tmp_path)), DATE)["reasons"]

    assert (excerpt.rows, excerpt.total_rows, excerpt.totals) == ([], 0, {"deliveries": 0, "nacks": 0, "dead": 0})
