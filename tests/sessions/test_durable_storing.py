"""What is stored, and for whom: only what somebody could need later."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.broker_under_test import running_broker

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.broker_under_test import BrokerUnderTest


async def test_nothing_is_stored_for_a_topic_without_durable_subscription(durable_broker: BrokerUnderTest) -> None:
    await durable_broker.durable_subscriber("/topic/b")
    subscriber = await durable_broker.subscriber("/topic/a", ack="client")

    await durable_broker.store_messages(b"1", b"2", persistent="true")

    assert await subscriber.next_bodies(2) == [b"1", b"2"]
    await durable_broker.settle()
    assert durable_broker.count("messages") == 0
    assert durable_broker.look("SELECT name FROM topics") == [("b",)]


async def test_unstored_messages_reach_whoever_is_connected_in_their_order(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        durable = await broker.durable_subscriber()
        transient = await broker.subscriber()
        publisher = await broker.client()

        await publisher.send_raw(
            b"".join(
                publisher.frame("SEND", b"%d" % number, destination="/topic/a", persistent="false" if odd else "true")
                for number in range(10)
                for odd in [number % 2]
            )
        )
        await publisher.sync()

        expected = [b"%d" % number for number in range(10)]
        assert await durable.next_bodies(10) == await transient.next_bodies(10) == expected
        assert broker.count("messages") == 5
        broker.kill()

    async with running_broker(store_in=store_directory) as broker:
        durable = await broker.durable_subscriber()
        assert [message.body for message in await broker.rest_for(durable)] == expected[::2]


async def test_unstored_messages_do_not_reach_who_is_away(durable_broker: BrokerUnderTest) -> None:
    await (await durable_broker.durable_subscriber()).vanish()

    await durable_broker.store_messages(b"1", persistent="false")
    await durable_broker.store_messages(b"2")
    await durable_broker.settle()

    assert durable_broker.count("messages") == 1
    durable = await durable_broker.durable_subscriber()
    assert b"2" in [message.body for message in await durable_broker.rest_for(durable)]


@pytest.mark.parametrize("destination", ["/topic/a", "/topic/>"])
async def test_what_was_sent_before_the_subscribe_is_not_for_it(
    destination: str, durable_broker: BrokerUnderTest
) -> None:
    await (await durable_broker.durable_subscriber("/topic/a", "other", client_id="other")).vanish()
    await durable_broker.store_messages(b"before")

    subscriber = await durable_broker.durable_subscriber(destination)
    await durable_broker.store_messages(b"after")

    assert await subscriber.next_bodies(1) == [b"after"]
    await durable_broker.expect_silence(subscriber)


@pytest.mark.parametrize("is_stored_before", [True, False])
@pytest.mark.parametrize("destination", ["/topic/a", "/topic/>"])
async def test_in_one_chunk_what_comes_before_the_subscribe_is_not_for_it_and_what_comes_after_is(
    destination: str, is_stored_before: bool, store_directory: Path
) -> None:
    async with running_broker(store_in=store_directory) as broker:
        if is_stored_before:
            await (await broker.durable_subscriber("/topic/a", "other", client_id="other")).vanish()
        client = await broker.client(client_id="billing")

        await client.send_raw(
            client.frame("SEND", b"before", destination="/topic/a")
            + client.frame("SUBSCRIBE", id="0", destination=destination, durable_subscription_name="orders")
            + client.frame("SEND", b"after", destination="/topic/a")
        )

        assert [message.body for message in await broker.rest_for(client)] == [b"after"]
        await client.vanish()
        await broker.store_messages(b"later")
        broker.kill()

    async with running_broker(store_in=store_directory) as broker:
        again = await broker.durable_subscriber(destination)
        assert [message.body for message in await broker.rest_for(again)] == [b"later"]


@pytest.mark.parametrize("header", ["no-local", "activemq.noLocal"])
async def test_no_local_goes_by_client_id_over_a_restart(header: str, store_directory: Path) -> None:
    no_local: dict[str, Any] = {header: "true"}
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber(**no_local)
        await subscriber.publish(b"own 1")
        await broker.store_messages(b"other 1")
        assert await subscriber.next_bodies(1) == [b"other 1"]
        await subscriber.vanish()
        publisher = await broker.client(client_id="billing")
        await publisher.publish(b"own 2")
        await publisher.sync()
        await broker.store_messages(b"other 2")
        broker.kill()

    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber(**no_local)
        await subscriber.publish(b"own 3")
        bodies = [message.body for message in await broker.rest_for(subscriber)]
        assert bodies == [b"other 1", b"other 2"]


async def test_headers_and_message_id_are_the_same_from_memory_and_from_the_store(store_directory: Path) -> None:
    """With everything that has to be escaped, and a body with NULs."""
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber()
        publisher = await broker.client()
        headers = {"colon:name": "a:b", "lines": "a\nb\r\\c", "content-type": "application/x"}
        await publisher.send("SEND", b"\0body\0", destination="/topic/a", **headers)
        fresh = await subscriber.next_message()
        broker.kill()

    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber()
        stored = await subscriber.next_message()
        assert stored.body == fresh.body
        what_may_differ = {"redelivered", "ack"}
        assert {name: stored.headers[name] for name in stored.headers.keys() - what_may_differ} == {
            name: fresh.headers[name] for name in fresh.headers.keys() - what_may_differ
        }
        assert stored.headers["lines"] == "a\nb\r\\c"


async def test_message_ids_are_never_given_twice_over_restarts(store_directory: Path) -> None:
    ids: list[str] = []
    for _ in range(3):
        async with running_broker(store_in=store_directory) as broker:
            subscriber = await broker.durable_subscriber(ack="auto")
            await broker.store_messages(b"x", b"x")
            ids += [message.headers["message-id"] for message in await broker.rest_for(subscriber)]
            broker.kill()

    assert len(set(ids)) == 6


async def test_an_auto_subscription_gets_nothing_twice_when_it_was_settled_in_time(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber(ack="auto")
        await broker.store_messages(b"1", b"2")
        assert await subscriber.next_bodies(2) == [b"1", b"2"]

    async with running_broker(store_in=store_directory) as broker:
        await broker.expect_silence(await broker.durable_subscriber(ack="auto"))
