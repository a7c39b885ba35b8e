"""`ordering:strict`: one message at a time, and none before the one in front of it is done with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.broker_under_test import running_broker
from tests.support.redelivery import MS, S, history, jump_to, letters_of, refuse, subscription_of

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from tests.support.broker_under_test import BrokerUnderTest, Client


async def strict_subscriber(broker: BrokerUnderTest, destination: str = "/topic/a", **headers: Any) -> Client:
    return await broker.durable_subscriber(destination, ordering="strict", redelivery_jitter="0", **headers)


async def next_and_only(broker: BrokerUnderTest, client: Client) -> bytes:
    """The body of the one message that it gets; it is acknowledged."""
    (message,) = await broker.rest_for(client)
    await client.send("ACK", id=message.headers["ack"])
    return message.body


@pytest.mark.parametrize("ack", ["client", "client-individual"])
async def test_one_message_is_in_flight(ack: str, durable_broker: BrokerUnderTest) -> None:
    subscriber = await strict_subscriber(durable_broker, ack=ack)

    await durable_broker.store_messages(b"1", b"2", b"3")

    assert [await next_and_only(durable_broker, subscriber) for _ in range(3)] == [b"1", b"2", b"3"]


async def test_one_message_is_in_flight_over_all_topics_of_a_pattern(durable_broker: BrokerUnderTest) -> None:
    subscriber = await strict_subscriber(durable_broker, "/topic/t.*")
    for name in ("x", "y", "z"):
        await durable_broker.store_messages(b"1", b"2", destination=f"/topic/t.{name}")

    bodies = [await next_and_only(durable_broker, subscriber) for _ in range(6)]

    assert sorted(bodies) == [b"1"] * 3 + [b"2"] * 3


@pytest.mark.parametrize("ack", ["client", "client-individual"])
async def test_what_follows_a_refused_message_waits_behind_it(
    ack: str, store_directory: Path, mock_clock: MockClock
) -> None:
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await strict_subscriber(broker, ack=ack)
        await broker.store_messages(b"1", b"2", b"3")
        for delay_ms in (1000, 2000):
            refused_ns = await refuse(broker, subscriber, await subscriber.next_message())
            await jump_to(broker, mock_clock, refused_ns + (delay_ms - 1) * MS)
            await broker.expect_silence(subscriber)
            await jump_to(broker, mock_clock, refused_ns + (delay_ms + 1) * MS)

        assert [await next_and_only(broker, subscriber) for _ in range(3)] == [b"1", b"2", b"3"]


async def test_what_is_published_while_a_message_waits_waits_behind_it(
    store_directory: Path, mock_clock: MockClock
) -> None:
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await strict_subscriber(broker)
        await broker.store_messages(b"1")
        refused_ns = await refuse(broker, subscriber, await subscriber.next_message(), delay="5000")

        await broker.store_messages(b"2", b"3")

        await broker.expect_silence(subscriber)
        await jump_to(broker, mock_clock, refused_ns + 5001 * MS)
        assert [await next_and_only(broker, subscriber) for _ in range(3)] == [b"1", b"2", b"3"]


async def test_a_message_of_another_topic_waits_behind_it_too(store_directory: Path, mock_clock: MockClock) -> None:
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await strict_subscriber(broker, "/topic/t.*")
        await broker.store_messages(b"x", destination="/topic/t.x")
        refused_ns = await refuse(broker, subscriber, await subscriber.next_message(), delay="5000")

        await broker.store_messages(b"y", destination="/topic/t.y")

        await broker.expect_silence(subscriber)
        await jump_to(broker, mock_clock, refused_ns + 5001 * MS)
        assert [await next_and_only(broker, subscriber) for _ in range(2)] == [b"x", b"y"]


@pytest.mark.parametrize("is_killed", [True, False, None])
async def test_the_order_holds_over_a_reconnect_and_a_restart(
    is_killed: bool | None, store_directory: Path, mock_clock: MockClock
) -> None:
    """None: the broker stays, the client comes back."""
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await strict_subscriber(broker)
        await broker.store_messages(b"1", b"2", b"3")
        refused_ns = await refuse(broker, subscriber, await subscriber.next_message(), delay="60000")
        await subscriber.vanish()
        if is_killed is None:
            await check_order_after(broker, mock_clock, refused_ns)
            return
        if is_killed:
            broker.kill()

    async with running_broker(store_in=store_directory) as broker:
        await check_order_after(broker, mock_clock, refused_ns)


async def check_order_after(broker: BrokerUnderTest, mock_clock: MockClock, refused_ns: int) -> None:
    subscriber = await strict_subscriber(broker)
    await broker.expect_silence(subscriber)
    await jump_to(broker, mock_clock, refused_ns + 60_001 * MS)
    assert [await next_and_only(broker, subscriber) for _ in range(3)] == [b"1", b"2", b"3"]


@pytest.mark.parametrize("is_killed", [True, False, None])
async def test_what_was_in_flight_comes_first_after_a_reconnect_and_a_restart(
    is_killed: bool | None, store_directory: Path
) -> None:
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await strict_subscriber(broker)
        await broker.store_messages(b"1", b"2", b"3")
        assert await next_and_only(broker, subscriber) == b"1"
        assert await subscriber.next_bodies(1) == [b"2"]
        if is_killed is None:
            await subscriber.vanish()
            again = await strict_subscriber(broker)
            assert [await next_and_only(broker, again) for _ in range(2)] == [b"2", b"3"]
            return
        if is_killed:
            await broker.settle()
            broker.kill()

    async with running_broker(store_in=store_directory) as broker:
        again = await strict_subscriber(broker)
        assert [await next_and_only(broker, again) for _ in range(2)] == [b"2", b"3"]


async def test_what_became_due_while_nobody_was_there_comes_first(store_directory: Path, mock_clock: MockClock) -> None:
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await strict_subscriber(broker)
        await broker.store_messages(b"1", b"2")
        refused_ns = await refuse(broker, subscriber, await subscriber.next_message())
        await subscriber.vanish()
        await jump_to(broker, mock_clock, refused_ns + 2 * S)

        again = await strict_subscriber(broker)

        assert [await next_and_only(broker, again) for _ in range(2)] == [b"1", b"2"]


@pytest.mark.parametrize("when_used_up", ["dead-letter", "discard"])
async def test_the_next_one_comes_when_a_message_is_used_up(when_used_up: str, store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await strict_subscriber(broker, max_attempts="1", when_used_up=when_used_up)
        await broker.store_messages(b"1", b"2", b"3")

        await subscriber.send("NACK", id=(await subscriber.next_message()).headers["ack"])

        assert [await next_and_only(broker, subscriber) for _ in range(2)] == [b"2", b"3"]
        assert len(await letters_of(broker)) == (when_used_up == "dead-letter")


async def test_the_next_one_comes_when_a_message_is_refused_for_good(durable_broker: BrokerUnderTest) -> None:
    subscriber = await strict_subscriber(durable_broker)
    await durable_broker.store_messages(b"1", b"2")

    await subscriber.send("NACK", id=(await subscriber.next_message()).headers["ack"], requeue="false")

    assert await next_and_only(durable_broker, subscriber) == b"2"


async def test_the_next_one_comes_when_a_message_that_waits_is_acknowledged_after_all(
    durable_broker: BrokerUnderTest,
) -> None:
    subscriber = await strict_subscriber(durable_broker)
    await durable_broker.store_messages(b"1", b"2")
    message = await subscriber.next_message()
    await refuse(durable_broker, subscriber, message, delay="60000")

    await subscriber.send("ACK", id=message.headers["ack"])

    assert await next_and_only(durable_broker, subscriber) == b"2"


async def test_the_next_one_comes_when_a_message_has_expired_while_it_waited(
    store_directory: Path, mock_clock: MockClock
) -> None:
    """It is not waited for until its time to be sent again, since it never will be."""
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await strict_subscriber(broker)
        await broker.store_messages(b"1", ttl="5000")
        await broker.store_messages(b"2")
        refused_ns = await refuse(broker, subscriber, await subscriber.next_message(), delay="60000")

        # Behind the end of its life and a round of the collector.
        await jump_to(broker, mock_clock, refused_ns + 6 * S)
        await jump_to(broker, mock_clock, refused_ns + 8 * S)

        assert await next_and_only(broker, subscriber) == b"2"


async def test_the_next_one_comes_when_a_message_has_expired_by_the_time_it_is_due(
    store_directory: Path, mock_clock: MockClock
) -> None:
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await strict_subscriber(broker)
        await broker.store_messages(b"1", ttl="5000")
        await broker.store_messages(b"2")
        refused_ns = await refuse(broker, subscriber, await subscriber.next_message(), delay="60000")

        await jump_to(broker, mock_clock, refused_ns + 61 * S)

        assert await next_and_only(broker, subscriber) == b"2"


async def test_an_overdue_message_holds_up_what_follows_until_it_was_sent_again(
    store_directory: Path, mock_clock: MockClock
) -> None:
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await strict_subscriber(broker, ack_deadline="500")
        await broker.store_messages(b"1", b"2")
        await subscriber.next_message()
        sent_ns = broker.clock.now_ns()
        await jump_to(broker, mock_clock, sent_ns + 501 * MS)
        await broker.expect_silence(subscriber)
        await jump_to(broker, mock_clock, sent_ns + 1502 * MS)

        (again,) = await broker.rest_for(subscriber)

        assert (again.body, *history(again)) == (b"1", "true", "2", "not acknowledged within 0.5 s")


async def test_another_subscriber_is_not_held_up(durable_broker: BrokerUnderTest) -> None:
    subscriber = await strict_subscriber(durable_broker)
    other = await durable_broker.durable_subscriber(name="other", client_id="other")
    await durable_broker.store_messages(b"1", b"2", b"3")

    await refuse(durable_broker, subscriber, await subscriber.next_message(), delay="60000")

    assert await other.next_bodies(3) == [b"1", b"2", b"3"]


@pytest.mark.parametrize("is_killed", [True, False])
async def test_the_order_is_kept_with_the_subscription_and_replaced_by_the_next_subscribe(
    is_killed: bool, store_directory: Path
) -> None:
    async with running_broker(store_in=store_directory) as broker:
        await strict_subscriber(broker)
        if is_killed:
            broker.kill()

    async with running_broker(store_in=store_directory) as broker:
        (subscription,) = broker.registry.durable.values()
        assert subscription.is_ordered
        subscriber = await broker.durable_subscriber()
        await broker.store_messages(b"1", b"2", b"3")
        assert await subscriber.next_bodies(3) == [b"1", b"2", b"3"]
        assert not subscription_of(broker, subscriber).is_ordered


# What it does not go with --------------------------------------------------------------------------------------------


async def subscribe(broker: BrokerUnderTest, **headers: str) -> Client:
    client = await broker.client(client_id="billing")
    await client.send("SUBSCRIBE", id="0", destination="/topic/a", ordering="strict", receipt="r", **headers)
    return client


async def test_a_transient_subscription_cannot_be_strict(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    client = await subscribe(broker, ack="client")

    await client.expect_error("ordering:strict", "durable")


async def test_without_acknowledgements_nothing_can_be_strict(durable_broker: BrokerUnderTest) -> None:
    client = await subscribe(durable_broker, durable_subscription_name="orders", ack="auto")

    await client.expect_error("ordering:strict", "ack:client")
    assert durable_broker.registry.durable == {}


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("prefetch-count", "2"),
        ("prefetch-count", "0"),
        ("activemq.prefetchSize", "1000"),
        ("credit", "10"),
        ("credit", "1,1000"),
    ],
)
async def test_another_prefetch_than_one_is_an_error_that_names_it(
    header: str, value: str, durable_broker: BrokerUnderTest
) -> None:
    client = await subscribe(durable_broker, durable_subscription_name="orders", ack="client", **{header: value})

    await client.expect_error("ordering:strict", repr(header), f"{header}:{value}")


@pytest.mark.parametrize("header", ["prefetch-count", "activemq.prefetchSize", "credit"])
async def test_a_prefetch_of_one_is_what_it_means_anyway(header: str, durable_broker: BrokerUnderTest) -> None:
    client = await subscribe(durable_broker, durable_subscription_name="orders", ack="client", **{header: "1"})

    await client.expect_receipt("r")
