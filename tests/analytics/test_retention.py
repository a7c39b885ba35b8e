"""Old results go, and nothing beside them."""

from __future__ import annotations

import os
from datetime import date
from typing import TYPE_CHECKING

import pytest

from stompbroker_report.errors import Cause, ReportError
from stompbroker_report.sinks import delete_before

if TYPE_CHECKING:
    from pathlib import Path

FIRST_KEPT = date(2026, 11, 15)


def put(out: Path, *names: str) -> None:
    for name in names:
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text("something")


def names_in(out: Path) -> list[str]:
    return sorted(path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file())


def test_dates_before_the_first_that_is_kept_are_deleted(tmp_path: Path) -> None:
    put(tmp_path, "reports/dt=2026-11-13/report.html", "reports/dt=2026-11-15/report.html", "reports/index.html")
    put(tmp_path, "marts/topics/dt=2026-11-14/a.parquet", "marts/topics/dt=2026-11-15/a.parquet")

    deleted = delete_before(str(tmp_path), FIRST_KEPT)

    assert deleted == [date(2026, 11, 13), date(2026, 11, 14)]
    assert names_in(tmp_path) == [
        "marts/topics/dt=2026-11-15/a.parquet",
        "reports/dt=2026-11-15/report.html",
        "reports/index.html",
    ]
    assert delete_before(str(tmp_path), FIRST_KEPT) == []


def test_what_is_not_ours_stays(tmp_path: Path) -> None:
    names = [
        "dt=2020-01-01/mine",
        "lake/deliveries/dt=2020-01-01/mine",
        "marts/others/dt=2020-01-01/mine",
        "reports/2020-01-01/mine",
        "reports/dt=2020-01-01",
        "reports/dt=last-week/mine",
    ]
    put(tmp_path, *names)

    assert delete_before(str(tmp_path), FIRST_KEPT) == []
    assert names_in(tmp_path) == sorted(names)


def test_nothing_yet_is_nothing_to_delete(tmp_path: Path) -> None:
    assert delete_before(str(tmp_path / "nowhere"), FIRST_KEPT) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may delete everything")
def test_what_cannot_be_deleted_is_a_sentence(tmp_path: Path) -> None:
    put(tmp_path, "reports/dt=2020-01-01/report.html")
    (tmp_path / "reports/dt=2020-01-01").chmod(0o500)

    with pytest.raises(ReportError, match="cannot be deleted") as raised:
        delete_before(str(tmp_path), FIRST_KEPT)

    assert raised.value.cause is Cause.UNWRITABLE
