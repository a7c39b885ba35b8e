"""What can happen at the same moment, and must not matter.

Where a step is atomic because it has no `await`, the test runs it from two tasks; a checkpoint put into the middle of
the step makes it fail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio
from trio.testing import Sequencer, wait_all_tasks_blocked

from tests.support.broker_under_test import running_broker

if TYPE_CHECKING:
    from trio.testing import MockClock

    from tests.support.broker_under_test import BrokerUnderTest, Client


async def test_two_workers_create_one_topic_at_once(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    clients = [await broker.client() for _ in range(20)]
    subscribe = clients[0].frame("SUBSCRIBE", id="0", destination="/topic/a")
    publish = clients[0].frame("SEND", b"x", destination="/topic/a")

    async with trio.open_nursery() as nursery:
        for index, client in enumerate(clients):
            nursery.start_soon(client.send_raw, publish if index % 2 else subscribe)

    await wait_all_tasks_blocked()
    assert list(broker.registry.topics) == ["a"]
    assert broker.registry.topics["a"].published == 10
    assert len(broker.registry.topics["a"].readings) == 10


async def test_two_publishers_append_at_once(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    """Both orders are kept, nothing is lost, and every subscriber sees the same interleaving."""
    subscribers = [await broker.subscriber() for _ in range(2)]
    publishers = [await broker.client() for _ in range(2)]

    async def publish(name: bytes, publisher: Client) -> None:
        for number in range(100):
            await publisher.publish(b"%b %d" % (name, number))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(publish, b"left", publishers[0])
        nursery.start_soon(publish, b"right", publishers[1])

    seen = [[message.body for message in await subscriber.next_messages(200)] for subscriber in subscribers]
    assert seen[0] == seen[1]
    for name in (b"left", b"right"):
        assert [body for body in seen[0] if body.startswith(name)] == [b"%b %d" % (name, n) for n in range(100)]


async def test_a_subscriber_joins_while_the_collector_removes_the_topic(autojump_clock: MockClock) -> None:
    """The topic has been idle for its minute; whether the subscriber comes just before or just after it goes, it must
    not be left with a topic that nobody publishes to."""
    for early_s in (-1.5, -1.0, -0.5, 0.0, 0.5, 1.0):
        async with running_broker(topic_idle_s=60) as broker:
            publisher = await broker.client()
            await publisher.publish(b"first")
            subscriber = await broker.client()
            await trio.sleep(61 + early_s)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(subscriber.subscribe, "/topic/a")
                nursery.start_soon(publisher.publish, b"again")

            await publisher.publish(b"last")
            while (await subscriber.next_message()).body != b"last":
                pass


async def test_a_publisher_still_knows_a_topic_that_was_collected(autojump_clock: MockClock) -> None:
    """Its header block is remembered together with the topic it meant; that topic has gone since."""
    async with running_broker(topic_idle_s=60) as broker:
        publisher = await broker.client()
        await publisher.publish(b"1", b"2", b"3")
        await wait_all_tasks_blocked()
        await trio.sleep(70)
        assert "a" not in broker.registry.topics
        subscriber = await broker.subscriber()

        await publisher.publish(b"4")

        assert (await subscriber.next_message()).body == b"4"


async def test_a_nack_meets_a_collection(autojump_clock: MockClock) -> None:
    """A refused message is not collected while it waits, though everybody else has settled it."""
    async with running_broker(redelivery_first_delay_ms=5000, redelivery_jitter=0) as broker:
        subscriber, other = await broker.subscriber(ack="client-individual"), await broker.subscriber()
        publisher = await broker.client()
        await publisher.publish(b"refused", b"taken")
        refused, taken = await subscriber.next_messages(2)
        await other.next_messages(2)

        await subscriber.send_raw(
            subscriber.frame("NACK", id=refused.headers["ack"]) + subscriber.frame("ACK", id=taken.headers["ack"])
        )
        await wait_all_tasks_blocked()
        topic = broker.registry.topics["a"]
        broker.registry.collect(topic, 0, unused_since_ns=broker.clock.now_ns())
        await trio.sleep(3)

        again = await subscriber.next_message()
        assert again.body == b"refused"
        await subscriber.send("ACK", id=again.headers["ack"])
        await subscriber.sync()
        broker.registry.collect(topic, 0, unused_since_ns=0)
        assert topic.log.message_count == 0


async def test_a_redelivery_becomes_due_for_a_subscription_that_is_gone(autojump_clock: MockClock) -> None:
    async with running_broker(redelivery_first_delay_ms=5000, redelivery_jitter=0) as broker:
        subscriber = await broker.subscriber(ack="client-individual")
        publisher = await broker.client()
        await publisher.publish(b"x")
        message = await subscriber.next_message()
        await subscriber.send("NACK", id=message.headers["ack"])
        await subscriber.send("UNSUBSCRIBE", id="0")

        await trio.sleep(10)

        await subscriber.expect_nothing()
        assert broker.registry.redeliveries.count == 0


async def test_a_connection_dies_between_write_and_ack(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    """Its subscription goes with it, and keeps nothing."""
    subscriber = await broker.subscriber(ack="client-individual")
    publisher = await broker.client()
    await publisher.publish(b"x")
    await subscriber.next_message()

    await subscriber.vanish()

    assert not broker.registry.subscriptions
    await publisher.publish(b"y")
    await publisher.sync()
    topic = broker.registry.topics["a"]
    assert (topic.published, topic.log.message_count) == (2, 0)


async def test_unsubscribe_meets_an_ack_in_the_same_chunk(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    """In both orders: an ACK before it settles, one after it is late and harmless."""
    subscriber = await broker.subscriber(ack="client-individual")
    publisher = await broker.client()
    await publisher.publish(b"1", b"2")
    first, second = await subscriber.next_messages(2)
    (subscription,) = broker.registry.subscriptions

    await subscriber.send_raw(
        subscriber.frame("ACK", id=first.headers["ack"])
        + subscriber.frame("UNSUBSCRIBE", id="0")
        + subscriber.frame("ACK", id=second.headers["ack"], receipt="done")
    )

    await subscriber.expect_receipt("done")
    assert subscription.counters.acked == 1
    assert subscriber.session.commands.late_answers == 1


async def test_a_message_published_in_the_chunk_of_its_subscribe_is_received(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    """In the order of the frames: what is sent after SUBSCRIBE arrives, what was sent before does not."""
    client = await broker.client()

    await client.send_raw(
        client.frame("SEND", b"before", destination="/topic/a")
        + client.frame("SUBSCRIBE", id="0", destination="/topic/a")
        + client.frame("SEND", b"after", destination="/topic/a")
    )

    assert (await client.next_message()).body == b"after"
    await client.expect_nothing()


async def test_a_wildcard_subscriber_gets_the_first_message_of_a_topic_that_comes_later(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    subscriber = await broker.subscriber("/topic/a.>")
    publisher = await broker.client()

    await publisher.publish(b"x", destination="/topic/a/b/c")

    assert (await subscriber.next_message()).headers["destination"] == "/topic/a/b/c"


async def test_a_wildcard_subscriber_that_leaves_lets_a_blocked_topic_go_on(autojump_clock: MockClock) -> None:
    async with running_broker(window_messages=5) as broker:
        stuck = await broker.subscriber("/topic/>", ack="client-individual", prefetch_count="1")
        publisher = await broker.client()
        for _ in range(10):
            await publisher.publish(b"x", receipt="r")
        await wait_all_tasks_blocked()
        assert publisher.session.is_held_back

        await stuck.vanish()

        for _ in range(10):
            await publisher.expect_receipt("r")


async def test_the_broker_is_told_to_stop_while_a_client_connects(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    client = await broker.open()
    sequence = Sequencer()

    async def connect() -> None:
        async with sequence(0):
            await client.send_raw(b"CONNECT\naccept-version:1.2\nhost:x\n\n\0")

    async def stop() -> None:
        async with sequence(1):
            broker.parts.dismiss_clients()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(connect)
        nursery.start_soon(stop)

    frame = await client.next_frame()
    if frame.command == "CONNECTED":
        frame = await client.next_frame()
    assert frame.headers["message"].startswith("broker is shutting down - ")
