"""What an operator purges has its record whenever the broker is killed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

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
    return sorted((record["offset"], record["outcome"]) for record in await records_of_letters(broker))


async def records_of_letters(broker: BrokerUnderTest) -> list[dict[str, Any]]:
    answer: dict[str, Any] = await broker.parts.control.call("export_ledger", {})
    rows = [
        row
        for file in (broker.parts.settings.data / "lake").glob("deliveries/*/*.parquet")
        for row in pq.ParquetFile(file).read().to_pylist()
    ]
    assert answer["lake"]
    return [row for row in rows if row["subscription"] == "undertaker/letters"]


async def test_killed_when_a_purge_is_on_disk_its_records_are_too(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        await leave_letters(broker, 3)
        await broker.parts.control.call("purge_dead_letters", {"topic": "a"})
        # Before another batch can say what this one did not.
        broker.kill()

    async with running_broker(store_in=store_directory) as broker:
        assert await outcomes_of_letters(broker) == [(0, "skipped"), (1, "skipped"), (2, "skipped")]


async def test_killed_when_a_redrive_is_on_disk_its_records_are_too(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        await leave_letters(broker, 3)
        await broker.parts.control.call("redrive_dead_letters", {"topic": "a", "offset": 1})
        broker.kill()

    async with running_broker(store_in=store_directory) as broker:
        assert await outcomes_of_letters(broker) == [(1, "skipped")]


async def test_what_only_the_store_knows_is_recorded_with_all_that_is_known_of_it(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        await leave_letters(broker, 3)

    async with running_broker(store_in=store_directory) as broker:
        await broker.parts.control.call("purge_dead_letters", {"topic": "a"})
        records = await records_of_letters(broker)

    assert len({record["message_id"] for record in records} - {None}) == 3
    assert {record["body_bytes"] for record in records} == {1}


async def test_a_letter_in_flight_has_the_record_of_its_acknowledgement(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        await leave_letters(broker, 2)
        reader = await broker.durable_subscriber(LETTERS, "letters", client_id="undertaker", prefetch_count="1")
        letter = await reader.next_message()
        await broker.parts.control.call("purge_dead_letters", {"topic": "a"})
        await reader.send("ACK", id=letter.headers["ack"])
        await reader.sync()
        await broker.settle()

        assert await outcomes_of_letters(broker) == [(0, "acked"), (1, "skipped")]


async def test_a_purge_is_recorded_once_when_nobody_is_killed(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        await leave_letters(broker, 3)
        await broker.parts.control.call("purge_dead_letters", {"topic": "a"})
        await broker.settle()
        assert await outcomes_of_letters(broker) == [(0, "skipped"), (1, "skipped"), (2, "skipped")]
