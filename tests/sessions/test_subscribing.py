"""What SUBSCRIBE can ask for, in every dialect."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

if TYPE_CHECKING:
    from trio.testing import MockClock

    from tests.support.broker_under_test import BrokerUnderTest, Client


async def sent_without_an_ack(broker: BrokerUnderTest, header: str, *, body_bytes: int = 10) -> int:
    """How many of 1,500 messages a subscriber with this header gets before it acknowledges any."""
    client = await broker.client()
    name, _, value = header.partition(":")
    headers = {"destination": "/topic/a", "id": "0", "ack": "client-individual", name: value}
    lines = "\n".join(f"{key}:{text}" for key, text in headers.items() if key)
    await client.send_raw(f"SUBSCRIBE\n{lines}\n\n\0".encode())
    publisher = await broker.client()
    await publisher.publish(*[b"x" * body_bytes] * 1500)
    await wait_all_tasks_blocked()
    (subscription,) = broker.registry.subscriptions
    return subscription.counters.delivered


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("", 1000),
        ("prefetch-count:7", 7),
        ("prefetch-count:0", 1500),
        ("activemq.prefetchSize:3", 3),
        ("activemq.prefetchSize:9999999", 1500),
        ("credit:5", 5),
        ("consumer-window-size:0", 1),
        ("consumer-window-size:-1", 1500),
    ],
)
async def test_prefetch_in_every_dialect(
    broker: BrokerUnderTest, header: str, expected: int, autojump_clock: MockClock
) -> None:
    assert await sent_without_an_ack(broker, header) == expected


@pytest.mark.parametrize("header", ["credit:100,1000", "consumer-window-size:1000"])
async def test_a_window_in_bytes_ends_with_the_message_that_fills_it(
    broker: BrokerUnderTest, header: str, autojump_clock: MockClock
) -> None:
    """A MESSAGE with a body of 100 bytes takes about 230 on the wire: the fifth one fills 1,000."""
    assert await sent_without_an_ack(broker, header, body_bytes=100) == 5


async def test_a_window_in_bytes_opens_again_with_acknowledgements(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    client = await broker.subscriber(ack="client-individual", consumer_window_size="1")
    publisher = await broker.client()
    await publisher.publish(b"1", b"2", b"3")

    for expected in (b"1", b"2", b"3"):
        message = await client.next_message()
        await client.expect_nothing()
        assert message.body == expected
        await client.send("ACK", id=message.headers["ack"])


async def test_a_prefetch_above_the_bound_is_the_bound(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    await broker.subscriber(prefetch_count="100000")

    (subscription,) = broker.registry.subscriptions
    assert subscription.consumer is not None
    assert subscription.consumer.credit.max_messages == 65_535


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("prefetch-count", "many"),
        ("prefetch-count", "-1"),
        ("activemq.prefetchSize", "1.5"),
        ("credit", "0"),
        ("credit", "5,"),
        ("consumer-window-size", "-2"),
        ("no-local", "yes"),
        ("ack", "sometimes"),
    ],
)
async def test_a_wrong_value_is_named(
    broker: BrokerUnderTest, name: str, value: str, autojump_clock: MockClock
) -> None:
    client = await broker.client()

    await client.send_raw(f"SUBSCRIBE\nid:0\ndestination:/topic/a\n{name}:{value}\nreceipt:r\n\n\0".encode())

    error = await client.expect_error(value.split(",")[-1], name.split(".")[0])
    assert error.headers["receipt-id"] == "r"


@pytest.mark.parametrize("header", ["no-local", "activemq.noLocal"])
async def test_no_local_keeps_away_what_the_connection_published_itself(
    broker: BrokerUnderTest, header: str, autojump_clock: MockClock
) -> None:
    client = await broker.client()
    await client.send_raw(f"SUBSCRIBE\nid:0\ndestination:/topic/a\n{header}:true\n\n\0".encode())
    other = await broker.subscriber()

    await client.publish(b"own")
    await other.publish(b"foreign")
    await client.publish(b"own again", b"and again")
    await other.publish(b"foreign too")

    assert [message.body for message in await client.next_messages(2)] == [b"foreign", b"foreign too"]
    await client.expect_nothing()
    await expect_bodies(other, b"own", b"foreign", b"own again", b"and again", b"foreign too")
    topic = broker.registry.topics["a"]
    broker.registry.collect(topic, 0, unused_since_ns=0)
    assert topic.log.message_count == 0


async def expect_bodies(client: Client, *bodies: bytes) -> None:
    assert [message.body for message in await client.next_messages(len(bodies))] == list(bodies)


async def test_overlapping_subscriptions_of_one_connection_each_get_the_message(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    client = await broker.client()
    for number, destination in enumerate(["/topic/a.b", "/topic/a.*", "a/#", "/topic/>"]):
        await client.subscribe(destination, id=str(number))

    await client.publish(b"x", destination="a/b/")

    messages = await client.next_messages(4)
    assert sorted(message.headers["subscription"] for message in messages) == ["0", "1", "2", "3"]
    assert {message.headers["destination"] for message in messages} == {"a/b/"}


async def test_an_unused_topic_goes_after_a_minute(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:

    publisher = await broker.client()
    await publisher.publish(b"x")
    await publisher.sync()

    await trio.sleep(55)
    assert "a" in broker.registry.topics
    await trio.sleep(10)
    assert "a" not in broker.registry.topics


async def test_a_subscribed_topic_stays(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:

    subscriber, publisher = await broker.subscriber(), await broker.client()
    await trio.sleep(1000)

    await publisher.publish(b"x")

    assert (await subscriber.next_message()).body == b"x"


async def test_a_topic_that_only_wildcards_read_goes_and_comes_again(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:

    subscriber, publisher = await broker.subscriber("/topic/>"), await broker.client()
    await publisher.publish(b"1")
    await subscriber.next_message()
    await trio.sleep(100)
    assert "a" not in broker.registry.topics

    await publisher.publish(b"2")

    assert (await subscriber.next_message()).body == b"2"
