"""What an operator purges has its record whenever the broker is killed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from tests.support.broker_under_test import running_broker

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.broker_under_test import BrokerUnderTest

LETTERS = "/topic/DLQ.a"


async def leave_letters(broker: BrokerUnderTest, count: int) -> None:
    """Dead letters that a durable subscription has not read."""
    reader = await broker.durable_subscriber(LETTERS, "letters", client_id="undertaker")
    await reader.vanish()
    subscriber = await broker.durable_subscriber()
    await broker.store_messages(*[b"x"] * count)
    for message in await subscriber.next_messages(count):
        await subscriber.send("NACK", id=message.headers["ack"], requeue="false")
    await subscriber.sync()
    await broker.settle()


async def outcomes_of_letters(broker: BrokerUnderTest) -> list[tuple[int, str]]:
    answer: dict[str, Any] = await broker.parts.control.call("export_ledger", {})
    rows = [
        row
        for file in (broker.parts.settings.data / "lake").glob("deliveries/*/*.parquet")
        for row in pq.ParquetFile(file).read().to_pylist()
    ]
    assert answer["lake"]
    return sorted((row["offset"], row["outcome"]) for row in rows if row["subscription"] == "undertaker/letters")


@pytest.mark.xfail(
    reason="issue 5: their record is made when the unit is completed, and goes with the next batch. To record it when "
    "the batch is formed is not enough: what is sent before completion stays in flight, and its ACK is a second record."
)
async def test_killed_when_a_purge_is_on_disk_its_records_are_too(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        await leave_letters(broker, 3)
        await broker.parts.control.call("purge_dead_letters", {"topic": "a"})
        # Before another batch can say what this one did not.
        broker.kill()

    async with running_broker(store_in=store_directory) as broker:
        assert await outcomes_of_letters(broker) == [(0, "skipped"), (1, "skipped"), (2, "skipped")]


async def test_a_purge_is_recorded_once_when_nobody_is_killed(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        await leave_letters(broker, 3)
        await broker.parts.control.call("purge_dead_letters", {"topic": "a"})
        await broker.settle()
        assert await outcomes_of_letters(broker) == [(0, "skipped"), (1, "skipped"), (2, "skipped")]
