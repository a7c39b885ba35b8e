"""A durable subscription to a pattern gets topics that come later, whenever they come."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.broker_under_test import running_broker

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.broker_under_test import BrokerUnderTest


async def publish_to(broker: BrokerUnderTest, *topics: str) -> None:
    for topic in topics:
        await broker.store_messages(topic.encode(), destination=f"/topic/{topic}")


async def bodies_for(broker: BrokerUnderTest, pattern: str = "/topic/a.>") -> list[bytes]:
    subscriber = await broker.durable_subscriber(pattern, ack="auto")
    bodies = [message.body for message in await broker.rest_for(subscriber)]
    await subscriber.vanish()
    return sorted(bodies)


@pytest.mark.parametrize("pattern", ["/topic/a.>", "/topic/a.#", "/topic/a.**", "/topic/a.*"])
async def test_it_gets_topics_that_come_while_it_is_there(pattern: str, durable_broker: BrokerUnderTest) -> None:
    subscriber = await durable_broker.durable_subscriber(pattern)

    await publish_to(durable_broker, "a.x", "b.x", "a.y")

    assert await subscriber.next_bodies(2) == [b"a.x", b"a.y"]
    await durable_broker.expect_silence(subscriber)
    assert durable_broker.look("SELECT name FROM topics ORDER BY name") == [("a.x",), ("a.y",)]


async def test_it_gets_topics_that_come_while_it_is_away(durable_broker: BrokerUnderTest) -> None:
    await bodies_for(durable_broker)

    await publish_to(durable_broker, "a.x", "a.y", "b")

    assert await bodies_for(durable_broker) == [b"a.x", b"a.y"]
    assert await bodies_for(durable_broker) == []


@pytest.mark.parametrize("is_killed", [True, False])
async def test_it_gets_topics_that_come_before_and_after_a_restart(is_killed: bool, store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        await bodies_for(broker)
        await publish_to(broker, "a.x")
        assert await bodies_for(broker) == [b"a.x"]
        await publish_to(broker, "a.y")
        await broker.settle()
        if is_killed:
            broker.kill()

    async with running_broker(store_in=store_directory) as broker:
        await publish_to(broker, "a.x", "a.z")
        assert await bodies_for(broker) == [b"a.x", b"a.y", b"a.z"]
        await publish_to(broker, "a.y", "a.w")
        assert await bodies_for(broker) == [b"a.w", b"a.y"]


async def test_what_a_topic_held_before_is_not_for_it(store_directory: Path) -> None:
    """Whether it was in the store, for somebody else's sake, or in memory alone; and after a restart as well."""
    async with running_broker(store_in=store_directory) as broker:
        await (await broker.durable_subscriber("/topic/a.x", "other", client_id="other")).vanish()
        slow = await broker.subscriber("/topic/a.y", ack="client", prefetch_count="1")
        await publish_to(broker, "a.x", "a.x", "a.y", "a.y")
        await broker.durable_subscriber("/topic/a.>")
        await slow.next_message()
        await broker.settle()
        broker.kill()

    async with running_broker(store_in=store_directory) as broker:
        assert await bodies_for(broker) == []
        await publish_to(broker, "a.y")
        assert await bodies_for(broker) == [b"a.y"]


async def test_a_topic_that_was_in_memory_before_is_stored_from_its_subscribe_on(store_directory: Path) -> None:
    """Its offsets go on; what the memory held below is nobody's after a restart."""
    async with running_broker(store_in=store_directory) as broker:
        transient = await broker.subscriber("/topic/a.x")
        await publish_to(broker, "a.x", "a.x")
        await (await broker.durable_subscriber("/topic/a.>")).vanish()
        await publish_to(broker, "a.x")
        assert await transient.next_bodies(3) == [b"a.x"] * 3
        broker.kill()

    async with running_broker(store_in=store_directory) as broker:
        (subscription,) = broker.registry.durable.values()
        assert subscription.backlog == 1, "what never was in the store is no backlog"
        assert await bodies_for(broker) == [b"a.x"]


async def test_two_patterns_that_overlap_each_get_everything_once(durable_broker: BrokerUnderTest) -> None:
    one = await durable_broker.durable_subscriber("/topic/a.>", "one")
    two = await durable_broker.durable_subscriber("/topic/*.x", "two", client_id="other")

    await publish_to(durable_broker, "a.x", "a.y", "b.x")

    assert [message.body for message in await durable_broker.rest_for(one)] == [b"a.x", b"a.y"]
    assert [message.body for message in await durable_broker.rest_for(two)] == [b"a.x", b"b.x"]


async def test_a_wildcard_and_an_exact_one_share_a_topic_and_its_rows(durable_broker: BrokerUnderTest) -> None:
    wildcard = await durable_broker.durable_subscriber("/topic/>", "all")
    exact = await durable_broker.durable_subscriber("/topic/a", "exact", client_id="other")

    await publish_to(durable_broker, "a")

    assert await wildcard.next_bodies(1) == await exact.next_bodies(1) == [b"a"]
    assert durable_broker.count("messages") == 1
