"""A lake that cannot be written is seen by whoever looks, and messages flow."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from stompbroker.control import Unavailable
from tests.end_to_end.little_room import Ballast, mounted_tmpfs
from tests.journal.journal_under_test import until
from tests.management.asker import asking
from tests.management.test_metrics import scrape, value
from tests.support.broker_under_test import running_broker

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.broker_under_test import BrokerUnderTest


#: Loopback has nobody there: it is refused at once.
NO_S3 = "s3://bucket/lake?region=us-east-1&scheme=http&endpoint_override=127.0.0.1:1"


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stompbroker.ledger.rounds.FIRST_RETRY_S", 0.05)


async def settle(broker: BrokerUnderTest, *bodies: bytes) -> None:
    subscriber = await broker.durable_subscriber()
    await broker.store_messages(*bodies)
    await subscriber.acknowledge(*await subscriber.next_messages(len(bodies)))
    await subscriber.vanish()


async def export(broker: BrokerUnderTest) -> Any:
    return await broker.parts.control.call("export_ledger", {})


def file_in_the_way(lake: Path) -> None:
    lake.write_text("a file")


def directory_that_is_read_only(lake: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    lake.mkdir(mode=0o555)


@pytest.mark.parametrize("spoil", [file_in_the_way, directory_that_is_read_only])
async def test_a_lake_that_fails_is_seen_everywhere_until_it_works_again(
    store_directory: Path, spoil: Callable[[Path], None]
) -> None:
    lake = store_directory / "lake"
    async with running_broker(store_in=store_directory) as broker, asking(broker) as ask:
        await export(broker)
        before = await ask.get("/overview")
        lake.rename(store_directory / "before")
        spoil(lake)
        await settle(broker, b"one", b"two")
        with pytest.raises(Unavailable):
            await export(broker)

        # It is still ready, and takes messages.
        health = await ask.client.get("/health/ready")
        assert (health.status_code, health.json()["status"]) == (200, "ready")
        (warning,) = health.json()["warnings"]
        assert warning.startswith("the lake cannot be written since 20")
        assert str(lake) not in warning, "anybody may ask for health"
        ledger = (await ask.get("/overview"))["ledger"]
        assert (ledger["state"], ledger["waiting_records"]) == ("failing", 2)
        assert str(lake) in ledger["reason"]
        assert ledger["waiting_bytes"] > 0
        assert before["sampled_at"] <= ledger["waiting_since"] <= ledger["since"]
        assert ledger["last_export_at"] == before["ledger"]["last_export_at"]
        families = await scrape(ask)
        assert value(families, "stompbroker_ledger_export_failing") == 1
        assert value(families, "stompbroker_ledger_waiting_records") == 2
        assert value(families, "stompbroker_ledger_waiting_bytes") == ledger["waiting_bytes"]
        assert 0 < value(families, "stompbroker_ledger_waiting_seconds") < 60
        assert value(families, "stompbroker_ledger_export_failures_total") >= 1
        assert value(families, "stompbroker_ledger_exports_total") == 1
        await settle(broker, b"three")

        if lake.is_dir():
            lake.chmod(0o755)
        else:
            lake.unlink()
        await until(lambda: not broker.parts.control.warnings())
        assert (await export(broker))["records"] + 2 == 3
        await expect_well(ask, broker)


async def expect_well(ask: Any, broker: BrokerUnderTest) -> None:
    assert (await ask.client.get("/health/ready")).json() == {"status": "ready"}
    ledger = (await ask.get("/overview"))["ledger"]
    assert (ledger["state"], ledger["reason"], ledger["since"]) == ("ok", None, None)
    assert (ledger["waiting_records"], ledger["waiting_bytes"], ledger["waiting_since"]) == (0, 0, None)
    families = await scrape(ask)
    assert value(families, "stompbroker_ledger_export_failing") == 0
    assert value(families, "stompbroker_ledger_waiting_seconds") == 0
    assert broker.parts.ledger is not None
    last_done_ns = broker.parts.ledger.rounds.statistics().last_done_ns
    assert last_done_ns is not None
    assert value(families, "stompbroker_ledger_last_export_timestamp_seconds") == pytest.approx(last_done_ns / 1e9)


async def test_a_full_disk_is_a_failing_lake_that_comes_back_with_room(store_directory: Path) -> None:
    lake = store_directory / "lake"
    with mounted_tmpfs(lake, 64 * 1024):
        room = Ballast(lake)
        async with running_broker(store_in=store_directory) as broker, asking(broker) as ask:
            await settle(broker, b"one", b"two")
            room.take(0)
            with pytest.raises(Unavailable, match="No space left on device"):
                await export(broker)
            ledger = (await ask.get("/overview"))["ledger"]
            assert (ledger["state"], ledger["waiting_records"]) == ("failing", 2)

            room.make()

            await until(lambda: not broker.parts.control.warnings())
            await expect_well(ask, broker)


async def test_what_an_earlier_broker_left_waits_too(store_directory: Path) -> None:
    lake = store_directory / "lake"
    lake.write_text("a file")
    async with running_broker(store_in=store_directory) as broker:
        await settle(broker, b"one", b"two")
        with pytest.raises(Unavailable):
            await export(broker)
        await settle(broker, b"three")
        assert broker.parts.ledger is not None
        before = broker.parts.ledger.exports.waiting()

    async with running_broker(store_in=store_directory) as broker, asking(broker) as ask:
        assert broker.parts.ledger is not None
        assert broker.parts.ledger.exports.waiting() == before
        assert (await ask.get("/overview"))["ledger"]["waiting_records"] == before.records == 3


async def test_an_object_store_that_is_not_there_is_a_failing_lake(
    store_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    async with running_broker(store_in=store_directory, lake=NO_S3) as broker, asking(broker) as ask:
        await settle(broker, b"one")
        with pytest.raises(Unavailable, match=r"The lake .*bucket/lake"):
            await export(broker)

        assert (await ask.get("/overview"))["ledger"]["state"] == "failing"


async def test_without_a_ledger_nothing_is_said_of_one(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory, ledger=False) as broker, asking(broker) as ask:
        assert (await ask.get("/overview"))["ledger"] is None
        assert not [name for name in await scrape(ask) if name.startswith("stompbroker_ledger_")]
        assert (await ask.client.get("/health/ready")).json() == {"status": "ready"}
