"""What can happen to a durable subscription at the same moment, and must not matter."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tests.support.broker_under_test import running_broker

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.broker_under_test import BrokerUnderTest, Client


def subscribe_frame(client: Client, **headers: str) -> bytes:
    return client.frame(
        "SUBSCRIBE",
        id="0",
        destination="/topic/a",
        durable_subscription_name="orders",
        ack="client-individual",
        **headers,
    )


async def test_two_connections_create_one_durable_subscription_at_once(store_directory: Path) -> None:
    """One of them has it in the end, the other is told so, and it is in the file once."""
    async with running_broker(store_in=store_directory) as broker:
        clients = [await broker.client(client_id="billing") for _ in range(2)]
        async with trio.open_nursery() as nursery:
            for client in clients:
                nursery.start_soon(client.send_raw, subscribe_frame(client))
        await broker.settle()
        (subscription,) = broker.registry.durable.values()
        assert subscription.consumer is not None
        (loser,) = [client for client in clients if client.session.connection_id != subscription.connection_id]
        (winner,) = [client for client in clients if client is not loser]
        await loser.expect_error("taken over")
        assert broker.count("subscriptions") == 1

        await broker.store_messages(b"1")

        assert await winner.next_bodies(1) == [b"1"]
        broker.kill()

    async with running_broker(store_in=store_directory) as broker:
        assert await (await broker.durable_subscriber()).next_bodies(1) == [b"1"]


async def test_one_connection_deletes_what_another_creates_at_once(durable_broker: BrokerUnderTest) -> None:
    """Both ways are fine, as long as memory and file agree."""
    for _ in range(10):
        creator = await durable_broker.client(client_id="billing")
        deleter = await durable_broker.client(client_id="billing")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(creator.send_raw, subscribe_frame(creator))
            nursery.start_soon(
                deleter.send_raw, deleter.frame("UNSUBSCRIBE", id="0", durable_subscription_name="orders")
            )
        await durable_broker.settle()
        assert durable_broker.count("subscriptions") == len(durable_broker.registry.durable)
        durable_broker.check_invariants()
        await creator.vanish()
        await deleter.vanish()


async def test_a_durable_subscriber_takes_over_its_own_connection_mid_delivery(store_directory: Path) -> None:
    """The client has noticed the loss before the broker has: half of a run is on its way to the old socket. Everything
    comes on the new connection, nothing is left out, and each message once."""
    async with running_broker(store_in=store_directory) as broker:
        await (await broker.durable_subscriber()).vanish()
        bodies = [b"%d" % number for number in range(3000)]
        await broker.store_messages(*bodies)
        old = await broker.client(client_id="billing")
        await old.send_raw(subscribe_frame(old))
        assert await old.next_bodies(10) == bodies[:10]

        new = await broker.client(client_id="billing")
        await new.send_raw(subscribe_frame(new, prefetch_count="5000"))

        messages = await new.next_messages(3000)
        assert [message.body for message in messages] == bodies
        await new.acknowledge(*messages)
        await new.vanish()
        await broker.expect_silence(await broker.durable_subscriber())


@pytest.mark.parametrize("ack", ["client", "client-individual"])
async def test_an_unsubscribe_meets_an_ack_in_the_same_chunk(ack: str, store_directory: Path) -> None:
    """The ACK came first, so it counts: its message does not come again, now or after a kill."""
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber(ack=ack)
        await broker.store_messages(b"1", b"2", b"3")
        first, _, _ = await subscriber.next_messages(3)

        await subscriber.send_raw(
            subscriber.frame("ACK", id=first.headers["ack"], receipt="acked")
            + subscriber.frame("UNSUBSCRIBE", id="0", receipt="left")
        )
        await subscriber.expect_receipt("acked")
        await subscriber.expect_receipt("left")
        broker.kill()

    async with running_broker(store_in=store_directory) as broker:
        again = await broker.durable_subscriber(ack=ack)
        assert [message.body for message in await broker.rest_for(again)] == [b"2", b"3"]


async def test_an_ack_meets_an_unsubscribe_in_the_same_chunk(durable_broker: BrokerUnderTest) -> None:
    """The other way round it is late, which is no mistake: the message comes again."""
    subscriber = await durable_broker.durable_subscriber()
    await durable_broker.store_messages(b"1")
    message = await subscriber.next_message()

    await subscriber.send_raw(
        subscriber.frame("UNSUBSCRIBE", id="0") + subscriber.frame("ACK", id=message.headers["ack"], receipt="late")
    )
    await subscriber.expect_receipt("late")

    again = await durable_broker.durable_subscriber()
    assert len(await durable_broker.rest_for(again)) <= 1


async def test_a_connection_dies_between_write_and_ack(store_directory: Path) -> None:
    """What it was sent and did not acknowledge comes again; what it acknowledged, and the broker has read, does not."""
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber()
        await broker.store_messages(b"1", b"2", b"3")
        first, _, _ = await subscriber.next_messages(3)
        await subscriber.send("ACK", id=first.headers["ack"])
        await subscriber.vanish()

        again = await broker.durable_subscriber()
        messages = await broker.rest_for(again)

        assert [message.body for message in messages] == [b"2", b"3"]
        assert {message.headers["redelivered"] for message in messages} == {"true"}


async def test_a_connection_dies_while_its_subscribe_is_being_written(store_directory: Path) -> None:
    """The subscription is made all the same: it came before the loss."""
    async with running_broker(store_in=store_directory) as broker:
        client = await broker.client(client_id="billing")
        with broker.held_store():
            await client.send_raw(subscribe_frame(client))
            await wait_all_tasks_blocked()
            await client.vanish()
            publisher = await broker.client()
            await publisher.publish(b"1")
            await wait_all_tasks_blocked()
        await publisher.sync()
        assert broker.count("subscriptions") == 1
        broker.kill()

    async with running_broker(store_in=store_directory) as broker:
        assert await (await broker.durable_subscriber()).next_bodies(1) == [b"1"]


async def test_a_kill_while_a_subscribe_is_being_written_leaves_nothing_of_it(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        client = await broker.client(client_id="billing")
        with broker.held_store():
            await client.send_raw(subscribe_frame(client, receipt="there"))
            await wait_all_tasks_blocked()
            broker.kill()

    async with running_broker(store_in=store_directory) as broker:
        assert broker.count("subscriptions") == 0
        assert broker.registry.durable == {}
        await broker.store_messages(b"1")
        await broker.expect_silence(await broker.durable_subscriber())


async def test_a_message_meets_the_return_of_its_subscriber(durable_broker: BrokerUnderTest) -> None:
    """It comes once, whether it is written before, while or after the subscriber comes back."""
    publisher = await durable_broker.client()
    for number in range(20):
        subscriber = await durable_broker.client(client_id="billing")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(subscriber.send_raw, subscribe_frame(subscriber))
            nursery.start_soon(publisher.publish, b"%d" % number)
            if number % 2:
                await wait_all_tasks_blocked()
        messages = await durable_broker.rest_for(subscriber)
        if number:  # the first SEND may have come before there was a subscription
            assert [message.body for message in messages] == [b"%d" % number]
        if messages:
            await subscriber.acknowledge(*messages)
        await subscriber.vanish()


async def test_the_page_it_waits_for_comes_when_its_subscriber_has_been_replaced(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        await (await broker.durable_subscriber()).vanish()
        bodies = [b"%d" % number for number in range(1200)]
        await broker.store_messages(*bodies)
        broker.kill()

    async with running_broker(store_in=store_directory) as broker:
        clients = [await broker.client(client_id="billing") for _ in range(3)]
        for client in clients:
            await client.send_raw(subscribe_frame(client, prefetch_count="2000"))
        assert [message.body for message in await broker.rest_for(clients[-1])] == bodies


async def test_a_subscriber_deletes_itself_while_a_page_is_read_for_it(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        await (await broker.durable_subscriber()).vanish()
        await broker.store_messages(*[b"x"] * 1200)
        broker.kill()

    async with running_broker(store_in=store_directory) as broker:
        client = await broker.client(client_id="billing")
        await client.send_raw(
            subscribe_frame(client)
            + client.frame("UNSUBSCRIBE", id="0", durable_subscription_name="orders", receipt="gone")
        )
        while (frame := await client.next_frame()).command == "MESSAGE":
            pass
        assert frame.headers == {"receipt-id": "gone"}
        await broker.settle()
        assert broker.count("subscriptions") == 0
        broker.check_invariants()


async def test_a_topic_is_not_collected_while_its_first_subscription_is_being_stored(store_directory: Path) -> None:
    """The batch gives the topic its number, which another topic of that name would not know."""
    async with running_broker(store_in=store_directory) as broker:
        client = await broker.client(client_id="billing")
        with broker.held_store():
            await client.send_raw(subscribe_frame(client, receipt="subscribed"))
            await wait_all_tasks_blocked()
            now_ns = broker.clock.now_ns()
            assert not broker.registry.collect(broker.registry.topics["a"], now_ns, unused_since_ns=now_ns)
        await client.expect_receipt("subscribed")

        await broker.store_messages(b"0")

        assert (await client.next_message()).body == b"0"


async def test_a_page_that_was_read_before_a_redrive_is_not_kept(
    store_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber()
        await broker.store_messages(b"0")
        message = await subscriber.next_message()
        await subscriber.send("NACK", id=message.headers["ack"], requeue="false")
        await broker.settle()
        assert broker.parts.opened is not None
        store = broker.parts.opened.store
        read_page, is_read, may_return = store.read_page, threading.Event(), threading.Event()

        def read_slowly(*args: Any) -> Any:
            page = read_page(*args)
            is_read.set()
            assert may_return.wait(10)
            return page

        monkeypatch.setattr(store, "read_page", read_slowly)
        early = await broker.client()
        await early.subscribe("/topic/DLQ.a", ack="client-individual", **{"from": "earliest"})
        await trio.to_thread.run_sync(is_read.wait, 10)
        monkeypatch.setattr(store, "read_page", read_page)
        await broker.parts.control.call("redrive_dead_letters", {"topic": "a"})
        may_return.set()

        assert await broker.rest_for(early) == []
        late = await broker.client()
        await late.subscribe("/topic/DLQ.a", ack="client-individual", **{"from": "offset=0"})
        assert await broker.rest_for(late) == []
