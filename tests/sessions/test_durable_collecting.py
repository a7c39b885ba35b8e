"""What everybody has settled leaves the store, and what nobody uses with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.broker_under_test import running_broker
from tests.support.passing_time import let_time_pass

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock


async def test_rows_are_gone_when_every_subscription_has_settled_them(
    store_directory: Path, mock_clock: MockClock
) -> None:
    async with running_broker(store_in=store_directory) as broker:
        one = await broker.durable_subscriber(name="one", client_id="one")
        two = await broker.durable_subscriber(name="two", client_id="two")
        await broker.store_messages(b"1", b"2", b"3")
        first, second, third = await one.next_messages(3)
        await one.acknowledge(first, second, third)
        first, second, third = await two.next_messages(3)

        await two.acknowledge(first)
        await let_time_pass(broker, mock_clock, 3)
        assert broker.count("messages") == 2
        await two.acknowledge(second, third)
        await let_time_pass(broker, mock_clock, 3)

        assert broker.count("messages") == 0
        # The topic and its cursors stay, since two have asked for this very topic.
        assert (broker.count("topics"), broker.count("cursors")) == (1, 2)


async def test_what_an_absent_subscriber_has_not_settled_stays(store_directory: Path, mock_clock: MockClock) -> None:
    async with running_broker(store_in=store_directory, topic_idle_s=2) as broker:
        await (await broker.durable_subscriber("/topic/>")).vanish()
        await broker.store_messages(b"1", b"2")

        await let_time_pass(broker, mock_clock, 10)

        assert broker.count("messages") == 2
        assert len(await broker.rest_for(await broker.durable_subscriber("/topic/>"))) == 2


async def test_rows_are_gone_when_the_only_one_who_wanted_them_is_deleted(
    store_directory: Path, mock_clock: MockClock
) -> None:
    async with running_broker(store_in=store_directory, topic_idle_s=2) as broker:
        subscriber = await broker.durable_subscriber()
        await broker.store_messages(b"1", b"2")
        await subscriber.next_messages(2)

        await subscriber.send("UNSUBSCRIBE", id="0", durable_subscription_name="orders")
        await let_time_pass(broker, mock_clock, 6)

        for table in ("messages", "cursors", "subscriptions", "topics"):
            assert broker.count(table) == 0, table


async def test_what_was_settled_before_a_restart_is_collected_after_it(
    store_directory: Path, mock_clock: MockClock
) -> None:
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber()
        await broker.store_messages(b"1", b"2")
        first, _ = await subscriber.next_messages(2)
        await subscriber.acknowledge(first)
        broker.kill()

    async with running_broker(store_in=store_directory) as broker:
        await let_time_pass(broker, mock_clock, 3)
        assert broker.count("messages") == 1


@pytest.mark.parametrize("is_restarted", [True, False])
async def test_an_idle_topic_goes_with_its_cursors_also_under_a_durable_wildcard(
    is_restarted: bool, store_directory: Path, mock_clock: MockClock
) -> None:
    async with running_broker(store_in=store_directory, topic_idle_s=2) as broker:
        subscriber = await broker.durable_subscriber("/topic/a.*", ack="auto")
        await broker.store_messages(b"1", destination="/topic/a.x")
        await broker.store_messages(b"2", destination="/topic/a.y")
        await subscriber.next_messages(2)
        if not is_restarted:
            await let_time_pass(broker, mock_clock, 6)
            assert [broker.count(table) for table in ("topics", "cursors", "messages")] == [0, 0, 0]

    async with running_broker(store_in=store_directory, topic_idle_s=2) as broker:
        await let_time_pass(broker, mock_clock, 6)
        assert [broker.count(table) for table in ("topics", "cursors", "messages")] == [0, 0, 0]
        # One that is made again is a new one, and nothing of the old one's cursors is left to hide its messages.
        await broker.store_messages(b"3", destination="/topic/a.x")
        subscriber = await broker.durable_subscriber("/topic/a.*")
        assert await subscriber.next_bodies(1) == [b"3"]


async def test_a_topic_that_comes_again_just_when_it_is_removed_loses_nothing(
    store_directory: Path, mock_clock: MockClock
) -> None:
    """Its removal is on its way to the store when the new one's first message comes."""
    async with running_broker(store_in=store_directory, topic_idle_s=2) as broker:
        await (await broker.durable_subscriber("/topic/a.*", ack="auto")).vanish()
        for _ in range(3):
            subscriber = await broker.durable_subscriber("/topic/a.*", ack="auto")
            publisher = await broker.client()
            await publisher.publish(b"1", destination="/topic/a.x")
            assert await subscriber.next_bodies(1) == [b"1"]
            await subscriber.vanish()
            await let_time_pass(broker, mock_clock, 2)
            with broker.held_store():
                mock_clock.jump(1.5)
                while "a.x" in broker.registry.topics:
                    mock_clock.jump(1.01)
                    await broker.client()
                await publisher.publish(b"2", destination="/topic/a.x")
                await broker.client()
            await publisher.sync()
            subscriber = await broker.durable_subscriber("/topic/a.*", ack="auto")
            assert await subscriber.next_bodies(1) == [b"2"]
            await subscriber.vanish()
        await broker.settle()
        broker.kill()

    async with running_broker(store_in=store_directory) as broker:
        await broker.expect_silence(await broker.durable_subscriber("/topic/a.*", ack="auto"))


async def test_a_slow_transient_subscriber_keeps_the_rows_it_still_has_to_read(
    store_directory: Path, mock_clock: MockClock
) -> None:
    async with running_broker(store_in=store_directory, window_messages=10) as broker:
        quick = await broker.durable_subscriber(ack="auto")
        slow = await broker.subscriber(ack="client-individual", prefetch_count="1")
        publisher = await broker.client()
        for number in range(50):
            await publisher.publish(b"%d" % number)
            await publisher.sync()
        assert len(await quick.next_bodies(50)) == 50

        await let_time_pass(broker, mock_clock, 3)
        got = []
        while rest := await broker.rest_for(slow):
            got += [int(message.body) for message in rest]
            await slow.send("ACK", id=rest[-1].headers["ack"])
        await let_time_pass(broker, mock_clock, 3)

        assert got == list(range(50))
        assert broker.count("messages") == 0
