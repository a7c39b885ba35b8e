"""The ledger goes from the store to the lake, whatever fails on the way; a whole broker with a real store."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
import trio
from structlog.testing import capture_logs

from stompbroker.actors import exporter
from stompbroker.control import ControlError, Unavailable
from stompbroker.ledger import exports as exports_module
from tests.journal.journal_under_test import until
from tests.support.broker_under_test import running_broker

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.broker_under_test import BrokerUnderTest


async def settle(broker: BrokerUnderTest, *bodies: bytes) -> None:
    """Messages that the durable subscriber has acknowledged."""
    subscriber = await broker.durable_subscriber()
    await broker.store_messages(*bodies)
    await subscriber.acknowledge(*await subscriber.next_messages(len(bodies)))
    await subscriber.vanish()


async def export(broker: BrokerUnderTest) -> Any:
    return await broker.parts.control.call("export_ledger", {})


def offsets(lake: Path) -> list[int]:
    found: list[int] = []
    for file in sorted(lake.glob("deliveries/dt=*/*.parquet")):
        found += pq.ParquetFile(file).read().column("offset").to_pylist()
    return sorted(found)


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stompbroker.ledger.rounds.FIRST_RETRY_S", 0.05)


async def test_what_is_settled_is_in_the_lake_when_that_was_asked_for(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        await settle(broker, b"one", b"two", b"three")

        answer = await export(broker)

        assert answer["lake"] == str(store_directory / "lake")
        assert answer["records"] == 3
        (path,) = answer["files"]
        found = pq.ParquetFile(store_directory / "lake" / path).read().to_pylist()
        assert [(row["offset"], row["outcome"], row["subscription"]) for row in found] == [
            (offset, "acked", "billing/orders") for offset in range(3)
        ]
        await until(lambda: broker.count("ledger_batches") == 0)
        await until(lambda: broker.count("ledger_exports") == 0)
        said = json.loads((store_directory / "lake" / "_complete_until.json").read_text())
        assert said["complete_until"][:23] == answer["complete_until"][:23]

        assert (await export(broker))["files"] == []


async def test_a_round_comes_by_itself_when_enough_has_gathered(
    store_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_broker(store_in=store_directory) as broker:
        assert broker.parts.ledger is not None
        broker.parts.ledger.exports.full_bytes = 1

        await settle(broker, b"one")

        await until(lambda: offsets(store_directory / "lake") == [0])


async def test_batches_go_in_portions_beside_everything_else(
    store_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exports_module, "PORTION_BATCHES", 1)
    monkeypatch.setattr(exporter, "PORTION_PAUSE_S", 0.001)
    async with running_broker(store_in=store_directory) as broker:
        for body in (b"one", b"two", b"three"):
            await settle(broker, body)
        await export(broker)

        await until(lambda: broker.count("ledger_batches") == 0)
        await until(lambda: broker.count("ledger_exports") == 0)


async def test_a_lake_that_fails_is_said_and_tried_again_and_loses_nothing(store_directory: Path) -> None:
    lake = store_directory / "lake"
    lake.write_text("in the way")
    with capture_logs() as logged:
        async with running_broker(store_in=store_directory) as broker:
            await settle(broker, b"one", b"two")
            with pytest.raises(Unavailable, match=r"The lake cannot be written at .*: Not a directory"):
                await export(broker)
            assert broker.count("ledger_batches") > 0
            lake.unlink()

            await until(lambda: offsets(lake) == [0, 1])
            await until(lambda: broker.count("ledger_exports") == 0)
            assert broker.count("ledger_batches") == 0

    said = [(entry["log_level"], entry["event"]) for entry in logged if "the lake" in entry["event"]]
    assert said[0] == ("error", "the lake cannot be written; the ledger waits in the store")
    assert said[-1] == ("info", "the lake can be written again")
    assert len(list(lake.glob("deliveries/*/*.parquet"))) == 1


async def test_a_process_that_cannot_be_started_is_a_failure_like_others(
    store_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_broker(store_in=store_directory) as broker:
        await settle(broker, b"one")
        with monkeypatch.context() as patch:
            patch.setattr("sys.executable", str(store_directory / "missing"))
            with pytest.raises(Unavailable, match="the process cannot be started: "):
                await export(broker)

        assert (await export(broker))["records"] == 1


async def test_a_process_that_hangs_is_ended(store_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_broker(store_in=store_directory) as broker:
        await settle(broker, b"one")
        with monkeypatch.context() as patch:
            patch.setattr(exporter, "PATIENCE_S", 0.0)
            with pytest.raises(Unavailable, match="the process has not ended within 0 s"):
                await export(broker)

        assert (await export(broker))["records"] == 1


async def test_killed_in_the_middle_the_next_broker_repeats_what_was_planned(store_directory: Path) -> None:
    """The process is ended with the broker that started it, wherever it is."""
    with suppress(trio.Cancelled):
        async with running_broker(store_in=store_directory) as broker:
            await settle(broker, b"one", b"two")
            async with trio.open_nursery() as asking:
                asking.start_soon(export, broker)
                await until(lambda: broker.count("ledger_exports") == 1)
                broker.kill()
    ((planned,),) = broker.look("SELECT name FROM ledger_exports")

    async with running_broker(store_in=store_directory) as broker:
        await until(lambda: broker.count("ledger_exports") == 0)
        assert broker.count("ledger_batches") == 0

    lake = store_directory / "lake"
    assert offsets(lake) == [0, 1]
    assert [file.name for file in lake.glob("deliveries/*/*")] == [planned]


async def test_a_broker_without_a_ledger_says_so(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory, ledger=False) as broker:
        await settle(broker, b"one")
        with pytest.raises(ControlError, match="this broker keeps no ledger"):
            await export(broker)

        assert broker.count("ledger_batches") == 0
    assert not (store_directory / "lake").exists()
