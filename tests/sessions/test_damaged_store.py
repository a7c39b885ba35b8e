"""What is altered or lost in the store is told and never delivered; nothing is settled because it was not found."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from structlog.testing import capture_logs

from stompbroker.delivery import collecting
from tests.management.asker import asking
from tests.support.broker_under_test import running_broker

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.broker_under_test import BrokerUnderTest

MESSAGES = 30
TOLD = "the store is damaged; subscribers stop in front of what is lost"


def numbered(start: int, stop: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, stop)]


async def store_backlog(directory: Path) -> None:
    """For two durable subscriptions, in two topics, by a broker that has closed its store."""
    async with running_broker(store_in=directory) as broker:
        await (await broker.durable_subscriber()).vanish()
        other = await broker.durable_subscriber(name="other", client_id="other", destination="/topic/b")
        await other.vanish()
        await broker.store_messages(*numbered(0, MESSAGES))
        await broker.store_messages(*numbered(0, MESSAGES), destination="/topic/b")


def damage(directory: Path, *statements: str) -> None:
    connection = sqlite3.connect(directory / "stompbroker.db")
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def in_topic(name: str) -> str:
    return f"topic_id = (SELECT id FROM topics WHERE name = '{name}')"


def state(broker: BrokerUnderTest) -> str:
    return str(broker.journal.statistics().state.value)


async def test_a_subscriber_stops_before_what_is_lost_and_others_go_on(store_directory: Path) -> None:
    await store_backlog(store_directory)
    damage(store_directory, f'DELETE FROM messages WHERE {in_topic("a")} AND "offset" BETWEEN 10 AND 12')

    with capture_logs() as logged:
        async with running_broker(store_in=store_directory) as broker, asking(broker) as ask:
            stopped = await broker.durable_subscriber()
            other = await broker.durable_subscriber(name="other", client_id="other", destination="/topic/b")

            assert await other.next_bodies(MESSAGES) == numbered(0, MESSAGES)
            received = await stopped.next_messages(10)
            assert [message.body for message in received] == numbered(0, 10)
            await stopped.acknowledge(*received)
            await broker.expect_silence(stopped)
            publisher = await broker.client()
            await publisher.publish(b"new", destination="/topic/b")
            assert await other.next_bodies(1) == [b"new"]

            assert state(broker) == "damaged"
            (reading,) = broker.registry.topics["a"].readings.values()
            assert (reading.cursor.ack_floor, reading.cursor.next_offset) == (10, 10)
            await ask.refused(503, "GET", "/health/ready", "topic a: the message at offset 10 was stored")
            overview = await ask.get("/overview")
            assert "Restore the store from a backup" in overview["store"]["reason"]
            assert overview["store"]["since"]

    assert [entry["what"] for entry in logged if entry["event"] == TOLD] == [
        "topic a: the message at offset 10 was stored and is not there any more"
    ]


async def test_an_altered_message_is_not_delivered_and_its_subscription_can_be_moved_past_it(
    store_directory: Path,
) -> None:
    await store_backlog(store_directory)
    damage(store_directory, f"UPDATE messages SET tail = tail || 'x' WHERE {in_topic('a')} AND \"offset\" = 4")

    async with running_broker(store_in=store_directory) as broker, asking(broker) as ask:
        stopped = await broker.durable_subscriber()
        await stopped.acknowledge(*await stopped.next_messages(4))
        await broker.expect_silence(stopped)
        (subscription,) = broker.registry.topics["a"].readings
        await ask.post(f"/subscriptions/{subscription.public_id}/move", to="offset=5")

        moved = await broker.durable_subscriber()

        assert await moved.next_bodies(MESSAGES - 5) == numbered(5, MESSAGES)


async def test_a_lost_message_is_not_asked_for_again_and_again(store_directory: Path) -> None:
    await store_backlog(store_directory)
    damage(store_directory, f'DELETE FROM messages WHERE {in_topic("a")} AND "offset" = 0')

    async with running_broker(store_in=store_directory) as broker:
        stopped = await broker.durable_subscriber()
        await broker.expect_silence(stopped)
        await broker.expect_silence(stopped)

        assert not broker.registry.pages.requests
        assert broker.journal.health.damages == 1


async def test_gaps_of_our_own_making_are_no_damage_over_a_restart(store_directory: Path) -> None:
    """Messages that were never stored, and those that were settled between others."""
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber(prefetch_count="1000")
        publisher = await broker.client()
        for number in range(40):
            kind = {"persistent": "false"} if number % 4 == 1 else {}
            await publisher.publish(b"%d" % number, **kind)
        await publisher.publish(*numbered(40, 400))
        received = await subscriber.next_messages(400)
        await subscriber.acknowledge(*received[100:300])
        await subscriber.sync()
        collecting.find_between_holes(broker.registry.topics["a"])
        await broker.settle()
        await subscriber.vanish()
        await broker.settle()

    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber(prefetch_count="1000")
        expected = [number for number in range(40) if number % 4 != 1] + [*range(40, 100), *range(300, 400)]
        assert await subscriber.next_bodies(len(expected)) == [b"%d" % number for number in expected]

        assert state(broker) == "ok"


async def test_a_store_that_was_not_closed_is_checked_beside_everything_else(store_directory: Path) -> None:
    await store_backlog(store_directory)
    damage(
        store_directory,
        "UPDATE journal_state SET was_closed = false",
        f'UPDATE messages SET body_bytes = 5 WHERE {in_topic("b")} AND "offset" = 29',
    )

    async with running_broker(store_in=store_directory) as broker:
        while broker.journal.statistics().check != "done":
            await broker.settle()

        assert state(broker) == "damaged"
        assert "topic b: the message at offset 29" in str(broker.journal.statistics().reason)


async def test_a_store_that_was_closed_is_not_checked(store_directory: Path) -> None:
    await store_backlog(store_directory)

    async with running_broker(store_in=store_directory) as broker:
        assert broker.journal.statistics().check is None
