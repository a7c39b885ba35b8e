"""Files come whole, stay as long as they should, and nothing else is touched."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest
from pyarrow.fs import LocalFileSystem

from stompbroker.errors import OperatorError
from stompbroker.ledger import Kind
from stompbroker.ledger.lake import Lake, LocalLake, open_lake, partition

if TYPE_CHECKING:
    from pathlib import Path

STORE_ID = "1a2b3c4d"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Which is not there yet."""
    return tmp_path / "a" / "lake"


@pytest.fixture(params=["directory", "objects"])
def lake(request: pytest.FixtureRequest, directory: Path) -> Lake:
    """An object store is played by a file system of pyarrow's, which has the same interface."""
    if request.param == "directory":
        return LocalLake(directory, STORE_ID)
    return Lake(LocalFileSystem(), str(directory))


def files(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


def put(lake: Lake, path: str, content: bytes = b"x") -> None:
    with lake.writing(path) as file:
        file.write(content)


def test_a_day_has_a_directory_by_its_date() -> None:
    assert partition(Kind.DELIVERIES, 0) == "deliveries/dt=1970-01-01"
    assert partition(Kind.BACKLOG, 20_773) == "backlog/dt=2026-11-16"


def test_a_file_is_there_when_it_is_whole(lake: Lake, directory: Path) -> None:
    with lake.writing("deliveries/dt=2026-11-16/a.parquet") as file:
        file.write(b"half, ")
        file.flush()
        assert not (directory / "deliveries/dt=2026-11-16/a.parquet").exists()
        file.write(b"whole")

    assert files(directory) == ["deliveries/dt=2026-11-16/a.parquet"]
    assert (directory / "deliveries/dt=2026-11-16/a.parquet").read_bytes() == b"half, whole"


def test_what_is_unfinished_has_a_name_that_readers_pass_over(directory: Path) -> None:
    with LocalLake(directory, STORE_ID).writing("deliveries/dt=2026-11-16/a.parquet") as file:
        file.write(b"x")
        (unfinished,) = files(directory)

    assert unfinished == f"deliveries/dt=2026-11-16/.a.parquet.{os.getpid()}.tmp"


def test_a_file_takes_the_place_of_its_earlier_self(lake: Lake, directory: Path) -> None:
    put(lake, "deliveries/a", b"longer than the other")
    put(lake, "deliveries/a", b"short")

    assert files(directory) == ["deliveries/a"]
    assert (directory / "deliveries/a").read_bytes() == b"short"


def test_what_fails_leaves_what_was_there(lake: Lake, directory: Path) -> None:
    put(lake, "deliveries/a", b"first")

    def fail() -> None:
        with lake.writing("deliveries/a") as file:
            file.write(b"second")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    assert files(directory) == ["deliveries/a"]
    assert (directory / "deliveries/a").read_bytes() == b"first"


def test_the_lake_says_up_to_when_it_is_complete(lake: Lake, directory: Path) -> None:
    lake.note_complete(1_800_000_000_123_456_789, 1_800_000_001_000_000_000)

    assert json.loads((directory / "_complete_until.json").read_text()) == {
        "complete_until": "2027-01-15T08:00:00.123Z",
        "exported_at": "2027-01-15T08:00:01.000Z",
    }


def test_what_is_too_old_goes_marts_included_and_nothing_else(lake: Lake, directory: Path) -> None:
    kept = [
        "deliveries/dt=2026-11-16/a.parquet",
        "deliveries/dt=2026-11-17/a.parquet",
        "deliveries/dt=2026-13-99/a.parquet",
        "deliveries/2020-01-01/a.parquet",
        "deliveries/dt=2020-01-01.old/a.parquet",
        "elsewhere/dt=2020-01-01/a.parquet",
        "marts/by_topic/dt=2026-11-16/a.parquet",
        "_complete_until.json",
    ]
    gone = [
        "deliveries/dt=2026-11-15/a.parquet",
        "deliveries/dt=2026-11-15/b.parquet",
        "backlog/dt=2025-01-01/a.parquet",
        "marts/by_topic/dt=2026-11-15/_SUCCESS",
    ]
    for path in kept + gone:
        put(lake, path)

    directories = lake.delete_before(20_773)

    assert files(directory) == sorted(kept)
    assert sorted(directories) == [
        "backlog/dt=2025-01-01",
        "deliveries/dt=2026-11-15",
        "marts/by_topic/dt=2026-11-15",
    ]


def test_a_lake_without_anything_has_nothing_to_delete(lake: Lake) -> None:
    assert lake.delete_before(20_773) == []
    lake.sweep()


def test_what_was_begun_by_the_killed_is_swept_away_and_what_is_others_is_not(directory: Path) -> None:
    ours = f"deliveries/dt=2026-11-16/.deliveries-{STORE_ID}-1-1-20261116T000000Z.parquet.77.tmp"
    others = "deliveries/dt=2026-11-16/.deliveries-99999999-1-1-20261116T000000Z.parquet.77.tmp"
    lake = LocalLake(directory, STORE_ID)
    for path in (ours, others, "backlog/dt=2026-11-16/a.parquet"):
        put(lake, path)

    lake.sweep()

    assert files(directory) == ["backlog/dt=2026-11-16/a.parquet", others]


def test_a_lake_that_cannot_be_written_is_a_sentence(lake: Lake, directory: Path) -> None:
    directory.parent.mkdir()
    directory.write_text("a file where the lake should be")

    with pytest.raises(OperatorError, match=r"The lake cannot be written at .*/a/lake/.*: .*[^.]\.$"):
        put(lake, "deliveries/dt=2026-11-16/a.parquet")


@pytest.mark.parametrize("place", ["{}", "file://{}"])
def test_a_path_and_its_url_are_the_same(directory: Path, place: str) -> None:
    with_blank = directory / "with blank"

    put(open_lake(place.format(with_blank), STORE_ID), "a")

    assert files(with_blank) == ["a"]


def test_an_object_store_is_asked_for_by_its_url() -> None:
    lake = open_lake("s3://bucket/path/to/lake?region=eu-central-1", STORE_ID)

    assert not isinstance(lake, LocalLake)
    assert lake._root == "bucket/path/to/lake"


def test_a_place_that_pyarrow_does_not_know_is_a_sentence() -> None:
    with pytest.raises(OperatorError, match=r"The lake ftp://host/lake cannot be used: "):
        open_lake("ftp://host/lake", STORE_ID)
