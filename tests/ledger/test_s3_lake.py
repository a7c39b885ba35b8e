"""A lake in an object store, through a real server: what is exported, repeated, deleted and said there."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from stompbroker.errors import OperatorError
from stompbroker.ledger.lake import LocalLake, open_lake
from tests.support.broker_under_test import running_broker
from tests.support.object_store import Bucket, new_bucket

if TYPE_CHECKING:
    from pathlib import Path

    from stompbroker.ledger.lake import Lake

STORE_ID = "1a2b3c4d"
#: More than one part of an upload.
LARGE = b"0123456789" * 2_000_000


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Bucket:
    return new_bucket(monkeypatch)


@pytest.fixture
def lake(bucket: Bucket) -> Lake:
    return open_lake(bucket.address("path/to/lake"), STORE_ID)


def put(lake: Lake, path: str, content: bytes = b"x") -> None:
    with lake.writing(path) as file:
        file.write(content)


def test_an_object_takes_the_place_of_its_earlier_self(lake: Lake, bucket: Bucket) -> None:
    assert not isinstance(lake, LocalLake)
    put(lake, "deliveries/dt=2026-11-16/a.parquet", LARGE)
    put(lake, "deliveries/dt=2026-11-16/a.parquet", b"short")
    put(lake, "deliveries/dt=2026-11-16/b.parquet", LARGE)

    assert bucket.files() == {
        "path/to/lake/deliveries/dt=2026-11-16/a.parquet": b"short",
        "path/to/lake/deliveries/dt=2026-11-16/b.parquet": LARGE,
    }


def test_what_is_too_old_goes_and_what_lies_beside_the_lake_stays(lake: Lake, bucket: Bucket) -> None:
    beside = open_lake(bucket.address("path/to"), STORE_ID)
    assert lake.delete_before(20_773) == []
    for path in ("deliveries/dt=2026-11-15/a", "backlog/dt=2025-01-01/a", "marts/days/dt=2020-01-01/a"):
        put(lake, path)
    put(lake, "deliveries/dt=2026-11-16/a")
    put(beside, "deliveries/dt=2020-01-01/a")

    assert sorted(lake.delete_before(20_773)) == [
        "backlog/dt=2025-01-01",
        "deliveries/dt=2026-11-15",
        "marts/days/dt=2020-01-01",
    ]
    assert sorted(bucket.files()) == ["path/to/deliveries/dt=2020-01-01/a", "path/to/lake/deliveries/dt=2026-11-16/a"]


def test_what_fails_leaves_what_was_there(lake: Lake, bucket: Bucket) -> None:
    put(lake, "a", b"first")

    def fail() -> None:
        with lake.writing("a") as file:
            file.write(LARGE)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert bucket.files() == {"path/to/lake/a": b"first"}


def test_a_bucket_that_is_not_there_is_a_sentence(bucket: Bucket) -> None:
    lake = open_lake(bucket.address("lake").replace(bucket.name, "no-such-bucket"), STORE_ID)

    with pytest.raises(OperatorError, match=r"The lake cannot be written at no-such-bucket/lake/a: .*not found"):
        put(lake, "a")


async def test_a_broker_exports_to_it_and_says_how_far(bucket: Bucket, store_directory: Path) -> None:
    async with running_broker(store_in=store_directory, lake=bucket.address("lake")) as broker:
        subscriber = await broker.durable_subscriber()
        await broker.store_messages(b"one", b"two")
        await subscriber.acknowledge(*await subscriber.next_messages(2))
        answer: dict[str, Any] = await broker.parts.control.call("export_ledger", {})

    (path,) = answer["files"]
    files = bucket.files()
    assert sorted(files) == ["lake/_complete_until.json", f"lake/{path}"]
    assert pq.read_table(io.BytesIO(files[f"lake/{path}"])).column("offset").to_pylist() == [0, 1]
    said = json.loads(files["lake/_complete_until.json"])
    assert said["complete_until"][:23] == answer["complete_until"][:23]
