"""Whether the broker lives, and whether messages should be sent to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from tests.management.asker import asking
from tests.support.broker_under_test import running_broker

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from tests.management.asker import Asker
    from tests.support.broker_under_test import BrokerUnderTest


async def expect_live(ask: Asker) -> None:
    assert (await ask.client.get("/health/live")).json() == {"status": "live"}


async def expect_ready(ask: Asker) -> None:
    response = await ask.client.get("/health/ready")
    assert (response.status_code, response.json()) == (200, {"status": "ready"})
    assert response.headers["content-type"] == "application/json"


async def test_a_broker_that_keeps_everything_in_memory_is_ready(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    async with asking(broker) as ask:
        await expect_live(ask)
        await expect_ready(ask)


async def test_a_broker_whose_store_fails_is_not_ready_and_says_why(durable_broker: BrokerUnderTest) -> None:
    health = durable_broker.journal.health
    async with asking(durable_broker) as ask:
        await expect_ready(ask)
        health.note_failing("disk I/O error")
        await ask.refused(503, "GET", "/health/ready", "the store is failing: disk I/O error")
        await expect_live(ask)
        overview = await ask.get("/overview")
        assert (overview["store"]["state"], overview["store"]["reason"]) == ("failing", "disk I/O error")
        assert overview["store"]["since"]
        health.note_room(None)
        await expect_ready(ask)


async def test_a_store_that_fails_under_traffic_is_seen(durable_broker: BrokerUnderTest) -> None:
    """Not told by the test, but met by the journal."""
    broker = durable_broker
    subscriber = await broker.durable_subscriber()
    broker.is_killed = True  # from now on the store refuses every batch
    publisher = await broker.client()
    await publisher.publish(b"1")
    async with asking(broker) as ask:
        while (await ask.client.get("/health/ready")).status_code == 200:
            await trio.lowlevel.checkpoint()
        await ask.refused(503, "GET", "/health/ready", "the store is failing: the process is gone")
        assert (await ask.get("/overview"))["store"]["backlog_units"] == 1
        broker.is_killed = False
        assert (await subscriber.next_message()).body == b"1"
        await expect_ready(ask)


async def test_a_broker_with_little_room_left_is_not_ready(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory, min_free_bytes=1024) as broker, asking(broker) as ask:
        broker.journal.health.note_room(1000)
        await ask.refused(503, "GET", "/health/ready", "the store is low-space: only 1000 bytes are free")
        broker.journal.health.note_room(1 << 30)
        await expect_ready(ask)


async def test_a_broker_that_stops_is_not_ready_but_lives(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    async with asking(broker) as ask:
        broker.parts.control.is_stopping = True
        await ask.refused(503, "GET", "/health/ready", "the broker is stopping")
        await expect_live(ask)
        assert (await ask.get("/overview"))["broker"]["state"] == "stopping"
