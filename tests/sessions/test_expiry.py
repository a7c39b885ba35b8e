"""A message whose time is over is not delivered, and each subscriber that did not get it counts it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from tests.support.broker_under_test import running_broker
from tests.support.redelivery import MS, S, jump_to, letters_of, refuse, sleep_until, subscription_of

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from stompbroker.stomp import Frame
    from tests.support.broker_under_test import BrokerUnderTest, Client


LIFE_MS = 5000


def ends(broker: BrokerUnderTest, header: str, life_ms: int = LIFE_MS) -> dict[str, str]:
    """The header that gives a message this life from now on."""
    if header == "expires":
        return {"expires": str(broker.clock.now_ns() // MS + life_ms)}
    return {header: str(life_ms)}


async def busy_subscriber(broker: BrokerUnderTest, **headers: Any) -> tuple[Client, Frame]:
    """Somebody who works on one message, and gets the next when that is acknowledged."""
    subscriber = await broker.subscriber(ack="client-individual", prefetch_count="1", **headers)
    await (await broker.client()).publish(b"busy")
    return subscriber, await subscriber.next_message()


def expired(broker: BrokerUnderTest, client: Client) -> int:
    return subscription_of(broker, client).counters.expired


# When it is over -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("header", ["expires", "ttl", "expiration"])
async def test_a_message_is_delivered_until_its_time_is_over(
    header: str, broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    subscriber, message = await busy_subscriber(broker)
    await (await broker.client()).publish(b"1", **ends(broker, header))

    await trio.sleep(LIFE_MS / 1000 - 0.01)
    await subscriber.acknowledge(message)

    assert await subscriber.next_bodies(1) == [b"1"]
    assert expired(broker, subscriber) == 0


@pytest.mark.parametrize("header", ["expires", "ttl", "expiration"])
async def test_a_message_is_not_delivered_when_its_time_is_over(
    header: str, broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    subscriber, message = await busy_subscriber(broker)
    publisher = await broker.client()
    await publisher.publish(b"1", **ends(broker, header))
    await publisher.publish(b"2")

    await trio.sleep(LIFE_MS / 1000 + 0.01)
    await subscriber.acknowledge(message)

    assert await subscriber.next_bodies(1) == [b"2"]
    assert expired(broker, subscriber) == 1


async def test_between_two_rounds_of_the_collector_it_is_not_delivered_either(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    """Each with another length of life, so that none can be lucky."""
    for life_ms in range(1, 1000, 111):
        subscriber, message = await busy_subscriber(broker)
        publisher = await broker.client()
        await publisher.publish(b"over", ttl=str(life_ms))
        await publisher.publish(b"next")
        await trio.sleep((life_ms + 1) / 1000)
        await subscriber.acknowledge(message)

        assert await subscriber.next_bodies(1) == [b"next"]
        await subscriber.vanish()


async def test_a_message_that_is_over_when_it_comes_is_delivered_to_nobody(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    subscribers = [await broker.subscriber(ack=ack) for ack in ("auto", "client")]
    publisher = await broker.client()
    await publisher.publish(b"1", expires="1")
    await publisher.publish(b"2")

    for subscriber in subscribers:
        assert await subscriber.next_bodies(1) == [b"2"]
        assert expired(broker, subscriber) == 1


async def test_of_several_ends_the_earliest_counts(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    subscriber, message = await busy_subscriber(broker)
    publisher = await broker.client()
    await publisher.publish(b"1", ttl="60000", **ends(broker, "expires", 1000))
    await publisher.publish(b"2", ttl="0", expiration="60000")

    await trio.sleep(2)
    await subscriber.acknowledge(message)

    assert await subscriber.next_bodies(1) == [b"2"]


async def test_messages_of_one_header_block_each_have_their_own_end(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    """A publisher repeats its headers word for word; each message lives from its own publication on."""
    subscriber, message = await busy_subscriber(broker)
    publisher = await broker.client()
    for body in (b"1", b"2", b"3"):
        await publisher.publish(body, ttl="1500")
        await trio.sleep(1)
    await subscriber.acknowledge(message)

    assert await subscriber.next_bodies(1) == [b"3"]
    assert expired(broker, subscriber) == 2


async def test_what_lives_for_ever_is_not_hurt_by_neighbours_that_do_not(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    subscriber, message = await busy_subscriber(broker)
    publisher = await broker.client()
    for number in range(10):
        await publisher.publish(b"%d" % number, **({"ttl": "1000"} if number % 3 else {}))
    await trio.sleep(2)
    await subscriber.acknowledge(message)

    for number in (0, 3, 6, 9):
        message = await subscriber.next_message()
        assert int(message.body) == number
        await subscriber.send("ACK", id=message.headers["ack"])
    assert expired(broker, subscriber) == 6


@pytest.mark.parametrize("header", ["expires", "ttl", "expiration"])
async def test_a_bad_end_is_an_error_that_names_it(
    header: str, broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    publisher = await broker.client()

    await publisher.send("SEND", destination="/topic/a", receipt="sent", **{header: "soon"})

    error = await publisher.expect_error(repr(header), "'soon'")
    assert error.headers["receipt-id"] == "sent"


async def test_the_end_of_its_life_reaches_the_subscriber_as_the_publisher_wrote_it(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    subscriber = await broker.subscriber()

    await (await broker.client()).publish(b"1", ttl="5000")

    assert (await subscriber.next_message()).headers["ttl"] == "5000"


# The topic's default -------------------------------------------------------------------------------------------------


async def test_a_topic_may_limit_the_life_of_what_says_nothing(autojump_clock: MockClock) -> None:
    async with running_broker(topics=[{"pattern": "a", "message_ttl_ms": 1000}]) as broker:
        subscriber, message = await busy_subscriber(broker)
        publisher = await broker.client()
        await publisher.publish(b"default")
        await publisher.publish(b"longer", ttl="60000")
        await trio.sleep(2)
        await subscriber.acknowledge(message)

        assert await subscriber.next_bodies(1) == [b"longer"]


async def test_what_is_to_live_for_ever_does_so_in_spite_of_the_default(autojump_clock: MockClock) -> None:
    async with running_broker(message_ttl_ms=1000) as broker:
        subscriber, message = await busy_subscriber(broker)
        await (await broker.client()).publish(b"for ever", expires="0")
        await trio.sleep(100)
        await subscriber.acknowledge(message)

        assert await subscriber.next_bodies(1) == [b"for ever"]


# Redelivery ----------------------------------------------------------------------------------------------------------


async def test_what_is_over_is_not_delivered_again(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    subscriber = await broker.subscriber(ack="client-individual")
    publisher = await broker.client()
    await publisher.publish(b"1", ttl="5000")
    refused_ns = await refuse(broker, subscriber, await subscriber.next_message(), delay="6000")

    await sleep_until(broker, refused_ns + 10 * S)

    await subscriber.expect_nothing()
    subscription = subscription_of(broker, subscriber)
    assert (subscription.counters.expired, subscription.waiting) == (1, 0)
    assert "DLQ.a" not in broker.registry.topics


async def test_what_is_not_over_yet_is_delivered_again(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    subscriber = await broker.subscriber(ack="client-individual")
    await (await broker.client()).publish(b"1", ttl="5000")

    await refuse(broker, subscriber, await subscriber.next_message(), delay="4900")

    assert await subscriber.next_bodies(1) == [b"1"]


async def test_what_is_freed_by_a_lost_connection_is_not_delivered_again_when_it_is_over(
    store_directory: Path, mock_clock: MockClock
) -> None:
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber()
        await broker.store_messages(b"1", b"2", ttl="5000")
        await broker.store_messages(b"3")
        await subscriber.next_messages(3)
        await subscriber.vanish()
        await jump_to(broker, mock_clock, broker.clock.now_ns() + 6 * S)

        again = await broker.rest_for(await broker.durable_subscriber())

        assert [message.body for message in again] == [b"3"]
        (subscription,) = broker.registry.durable.values()
        assert subscription.counters.expired == 2


async def test_what_is_in_flight_when_its_time_is_over_can_be_acknowledged(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    subscriber = await broker.subscriber(ack="client-individual")
    await (await broker.client()).publish(b"1", ttl="1000")
    message = await subscriber.next_message()
    await trio.sleep(10)

    await subscriber.acknowledge(message)

    counters = subscription_of(broker, subscriber).counters
    assert (counters.acked, counters.expired, counters.late) == (1, 0, 0)


async def test_what_is_refused_when_its_time_is_over_does_not_come_again(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    subscriber = await broker.subscriber(ack="client-individual")
    await (await broker.client()).publish(b"1", ttl="1000")
    message = await subscriber.next_message()
    await trio.sleep(10)

    await refuse(broker, subscriber, message)

    await trio.sleep(10)
    await subscriber.expect_nothing()
    subscription = subscription_of(broker, subscriber)
    assert (subscription.counters.expired, subscription.waiting) == (1, 0)


async def test_what_is_refused_for_good_when_its_time_is_over_is_a_letter_all_the_same(
    durable_broker: BrokerUnderTest,
) -> None:
    """Somebody had it in hand and says what was wrong with it: that is worth keeping."""
    subscriber = await durable_broker.subscriber(ack="client-individual")
    publisher = await durable_broker.client()
    await publisher.publish(b"1", ttl="20")
    message = await subscriber.next_message()
    await trio.sleep(0.03)

    await refuse(durable_broker, subscriber, message, requeue="false")

    assert [letter.body for letter in await letters_of(durable_broker)] == [b"1"]


# Who counts it -------------------------------------------------------------------------------------------------------


async def test_it_is_counted_by_each_subscriber_that_did_not_get_it(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    quick = await broker.subscriber()
    first = await broker.subscriber(ack="client-individual", prefetch_count="1")
    second = await broker.subscriber(ack="client-individual", prefetch_count="1")
    publisher = await broker.client()
    await publisher.publish(b"busy")
    await publisher.publish(b"1", b"2", ttl="1000")
    messages = [await subscriber.next_message() for subscriber in (first, second)]
    assert await quick.next_bodies(3) == [b"busy", b"1", b"2"]

    await trio.sleep(10)

    for subscriber, message in zip((first, second), messages, strict=True):
        await subscriber.acknowledge(message)
        await subscriber.expect_nothing()
        assert expired(broker, subscriber) == 2
    assert expired(broker, quick) == 0


async def test_it_is_counted_once_however_often_the_collector_comes_by(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    """Also when it cannot be dropped, because somebody else has it in flight."""
    holder = await broker.subscriber(ack="client-individual")
    subscriber, message = await busy_subscriber(broker)
    await holder.next_message()
    await (await broker.client()).publish(b"1", ttl="1000")
    held = await holder.next_message()

    await trio.sleep(30)

    await subscriber.acknowledge(message)
    await subscriber.expect_nothing()
    assert expired(broker, subscriber) == 1
    await holder.acknowledge(held)
    assert expired(broker, holder) == 0


async def test_who_does_not_want_its_own_messages_does_not_count_them(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    client = await broker.client()
    await client.subscribe(no_local="true")
    await client.publish(b"1", expires="1")
    await client.sync()

    assert expired(broker, client) == 0


async def test_the_collector_drops_what_is_over_and_nobody_has_in_flight(autojump_clock: MockClock) -> None:
    async with running_broker(max_waiting=1) as broker:
        subscriber = await broker.subscriber(ack="client-individual", prefetch_count="1")
        await (await broker.client()).publish(*[b"%d" % number for number in range(100)], ttl="1000")
        await refuse(broker, subscriber, await subscriber.next_message(), delay="60000")
        await subscriber.expect_nothing()

        await trio.sleep(5)

        assert broker.registry.topics["a"].log.message_count == 0
        assert expired(broker, subscriber) == 100


# Durable subscriptions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_restarted", [True, False])
async def test_who_was_absent_until_it_was_over_does_not_get_it(
    is_restarted: bool, store_directory: Path, mock_clock: MockClock
) -> None:
    async with running_broker(store_in=store_directory) as broker:
        await (await broker.durable_subscriber()).vanish()
        await broker.store_messages(b"1", ttl="60000")
        await broker.store_messages(b"2", **ends(broker, "expires", 60_000))
        await broker.store_messages(b"3")
        published_ns = broker.clock.now_ns()
        if not is_restarted:
            await check_only_the_third_comes(broker, mock_clock, published_ns)
            return
        broker.kill()

    async with running_broker(store_in=store_directory) as broker:
        await check_only_the_third_comes(broker, mock_clock, published_ns)


async def check_only_the_third_comes(broker: BrokerUnderTest, mock_clock: MockClock, published_ns: int) -> None:
    await jump_to(broker, mock_clock, published_ns + 61 * S)
    subscriber = await broker.durable_subscriber()
    assert [message.body for message in await broker.rest_for(subscriber)] == [b"3"]
    assert expired(broker, subscriber) == 2


async def test_who_comes_back_before_it_is_over_gets_it_also_after_a_restart(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        await (await broker.durable_subscriber()).vanish()
        await broker.store_messages(b"1", ttl="60000")
        broker.kill()

    async with running_broker(store_in=store_directory) as broker:
        assert await (await broker.durable_subscriber()).next_bodies(1) == [b"1"]


async def test_what_is_over_leaves_the_store(store_directory: Path, mock_clock: MockClock) -> None:
    """Its absent subscriber has not settled it, and never will."""
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber()
        await subscriber.vanish()
        await broker.store_messages(*[b"%d" % number for number in range(10)], ttl="5000")
        assert broker.count("messages") == 10
        for _ in range(10):
            await jump_to(broker, mock_clock, broker.clock.now_ns() + 2 * S)

        subscriber = await broker.durable_subscriber()
        await broker.expect_silence(subscriber)
        for _ in range(5):
            await jump_to(broker, mock_clock, broker.clock.now_ns() + 2 * S)

        assert broker.count("messages") == 0
        assert expired(broker, subscriber) == 10
