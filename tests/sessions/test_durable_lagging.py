"""Those who are behind the window read pages, and cost nobody anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.broker_under_test import running_broker

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from stompbroker.stomp import Frame
    from tests.support.broker_under_test import BrokerUnderTest, Client


WINDOW = 20
MIB = 1024 * 1024


def numbered(start: int, stop: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, stop)]


async def publish_in_chunks(publisher: Client, bodies: list[bytes], **headers: str) -> None:
    """Each chunk stored before the next: nothing can be explained by one large batch."""
    for start in range(0, len(bodies), 10):
        await publisher.publish(*bodies[start : start + 10], **headers)
        await publisher.sync()


async def take_all(broker: BrokerUnderTest, client: Client) -> list[Frame]:
    """Every message there is for it, each acknowledged as it comes."""
    messages: list[Frame] = []
    while rest := await broker.rest_for(client):
        messages += rest
        await client.send_raw(b"".join(client.frame("ACK", id=message.headers["ack"]) for message in rest))
    return messages


def bodies_of(messages: list[Frame]) -> list[bytes]:
    return [message.body for message in messages]


async def test_an_absent_subscriber_gets_its_backlog_in_order_and_nobody_waits_for_it(store_directory: Path) -> None:
    """2,500 messages are more than two pages, and a hundred windows; a connected one gets them from memory."""
    async with running_broker(store_in=store_directory, window_messages=WINDOW) as broker:
        absent = await broker.durable_subscriber()
        await absent.vanish()
        connected = await broker.durable_subscriber(name="other", client_id="other", ack="auto")
        publisher = await broker.client()
        bodies = numbered(0, 2500)

        for start in range(0, len(bodies), 10):
            await publisher.publish(*bodies[start : start + 10])
            assert await connected.next_bodies(10) == bodies[start : start + 10]

        assert not publisher.session.is_held_back
        assert broker.registry.pages.size_bytes == 0, "somebody inside the window has read a page"
        assert broker.registry.topics["a"].log.message_count <= WINDOW
        returned = await broker.durable_subscriber()
        assert bodies_of(await take_all(broker, returned)) == bodies


async def test_a_backlog_is_read_in_order_after_a_restart(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        absent = await broker.durable_subscriber()
        await absent.vanish()
        await broker.store_messages(*numbered(0, 1500))
        broker.kill()

    async with running_broker(store_in=store_directory) as broker:
        returned = await broker.durable_subscriber(prefetch_count="700")
        assert await returned.next_bodies(700) == numbered(0, 700)
        await returned.vanish()
        returned = await broker.durable_subscriber(prefetch_count="400")
        messages = await take_all(broker, returned)
        assert bodies_of(messages) == numbered(0, 1500)
        assert [message.headers["redelivered"] for message in messages] == ["true"] * 700 + ["false"] * 800


@pytest.mark.parametrize("is_durable", [True, False])
async def test_a_slow_subscriber_on_a_stored_topic_holds_nobody_back(is_durable: bool, store_directory: Path) -> None:
    async with running_broker(store_in=store_directory, window_messages=WINDOW) as broker:
        await (await broker.durable_subscriber(name="keeps it stored", client_id="other")).vanish()
        if is_durable:
            slow = await broker.durable_subscriber(prefetch_count="3")
        else:
            slow = await broker.subscriber(ack="client-individual", prefetch_count="3")
        publisher = await broker.client()

        await publish_in_chunks(publisher, numbered(0, 300))

        assert not publisher.session.is_held_back
        assert broker.registry.topics["a"].log.message_count <= WINDOW + 10
        assert bodies_of(await take_all(broker, slow)) == numbered(0, 300)


async def test_publishing_goes_on_while_a_backlog_is_read(store_directory: Path) -> None:
    """The reader passes from pages to the window without a gap and without meeting anything twice."""
    async with running_broker(store_in=store_directory, window_messages=WINDOW) as broker:
        await (await broker.durable_subscriber()).vanish()
        publisher = await broker.client()
        await publish_in_chunks(publisher, numbered(0, 100))
        returned = await broker.durable_subscriber(prefetch_count="7")
        got: list[Frame] = []

        for number in range(100, 200):
            await publisher.publish(b"%d" % number)
            messages = await returned.next_messages(2 if number % 2 else 1)
            await returned.send_raw(b"".join(returned.frame("ACK", id=message.headers["ack"]) for message in messages))
            got += messages
        got += await take_all(broker, returned)

        assert bodies_of(got) == numbered(0, 200)


async def test_messages_in_flight_that_have_left_the_window_go_again_from_pages(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory, window_messages=WINDOW, redelivery_first_delay_ms=0) as broker:
        subscriber = await broker.durable_subscriber(prefetch_count="10")
        await broker.store_messages(*numbered(0, 10))
        in_flight = await subscriber.next_messages(10)
        publisher = await broker.client()
        await publish_in_chunks(publisher, numbered(10, 200))
        assert broker.registry.topics["a"].log.start_offset > 10

        await subscriber.send("NACK", id=in_flight[4].headers["ack"])
        again = await subscriber.next_message()
        await subscriber.vanish()
        returned = await broker.durable_subscriber(prefetch_count="10")
        messages = await take_all(broker, returned)

        assert (again.body, again.headers["delivery-count"]) == (b"4", "2")
        assert bodies_of(messages) == numbered(0, 200)
        assert [message.headers["redelivered"] for message in messages[:11]] == ["true"] * 10 + ["false"]


async def test_messages_larger_than_a_page_come_with_small_ones_between(store_directory: Path) -> None:
    sizes = [1, MIB + 1, 300_000, 0, 2 * MIB, 900_000, 900_000, 5, MIB]
    bodies = [b"%d" % number * size for number, size in enumerate(sizes)]
    async with running_broker(store_in=store_directory) as broker:
        await (await broker.durable_subscriber()).vanish()
        await broker.store_messages(*bodies)
        broker.kill()

    async with running_broker(store_in=store_directory) as broker:
        returned = await broker.durable_subscriber(prefetch_count="2")
        assert bodies_of(await take_all(broker, returned)) == bodies
        await broker.settle()
        assert broker.budget.used_bytes <= 8 * MIB + max(map(len, bodies))


async def test_pages_of_large_messages_stay_within_their_share_of_memory(store_directory: Path) -> None:
    """A page of one message each, all in one stretch of a thousand offsets: the least used still have to go."""
    async with running_broker(store_in=store_directory, memory_limit=64 * MIB) as broker:
        await (await broker.durable_subscriber()).vanish()
        for number in range(20):
            await broker.store_messages(b"%d" % number * MIB)
        returned = await broker.durable_subscriber(prefetch_count="1")
        most_bytes = 0

        for number in range(20):
            message = await returned.next_message()
            assert message.body == b"%d" % number * MIB
            await returned.send("ACK", id=message.headers["ack"])
            most_bytes = max(most_bytes, broker.registry.pages.size_bytes)

        assert most_bytes <= 8 * MIB + 3 * MIB


async def test_pages_that_nobody_reads_any_more_give_their_memory_back(
    store_directory: Path, mock_clock: MockClock
) -> None:
    async with running_broker(store_in=store_directory) as broker:
        await (await broker.durable_subscriber()).vanish()
        await broker.store_messages(*[b"x" * 1000] * 500)
        broker.kill()

    async with running_broker(store_in=store_directory) as broker:
        returned = await broker.durable_subscriber()
        await take_all(broker, returned)
        for _ in range(5):
            mock_clock.jump(1.0)
            await broker.settle()
        assert broker.registry.pages.size_bytes == 0


@pytest.mark.parametrize("prefetch", ["1", "30"])
async def test_unstored_messages_reach_a_connected_subscriber_that_reads_pages(
    prefetch: str, store_directory: Path
) -> None:
    """`persistent:false` messages are kept in the window for it; a page that reaches into the window knows nothing of
    them, and must not have them skipped."""
    async with running_broker(store_in=store_directory, window_messages=WINDOW) as broker:
        slow = await broker.durable_subscriber(prefetch_count=prefetch)
        publisher = await broker.client()
        await publish_in_chunks(publisher, numbered(0, 100))
        await publisher.publish(b"unstored", persistent="false")
        await publish_in_chunks(publisher, numbered(100, 105))

        got = bodies_of(await take_all(broker, slow))

        assert got == [*numbered(0, 100), b"unstored", *numbered(100, 105)]


@pytest.mark.parametrize("policy", ["drop-oldest", "drop-newest", "disconnect", "block"])
async def test_what_a_policy_drops_for_a_slow_subscriber_is_not_lost_to_an_absent_durable_one(
    policy: str, store_directory: Path
) -> None:
    """The window is full of messages that only memory has, so that the policy has to act; what is published next has a
    receipt, and the durable subscriber was there before it."""
    async with running_broker(store_in=store_directory, window_messages=WINDOW, slow_subscriber=policy) as broker:
        slow = await broker.subscriber(ack="client-individual", prefetch_count="1")
        await (await broker.durable_subscriber()).vanish()
        publisher = await broker.client()
        await publisher.publish(*[b"unstored"] * (WINDOW - 2), persistent="false")
        await publisher.sync()

        for number in range(40):
            await publisher.publish(b"%d" % number)
            if policy == "block":
                continue
            await publisher.sync()
        if policy == "block":
            await slow.vanish()
            await publisher.sync()

        await broker.settle()
        assert broker.count("messages") == 40
        returned = await broker.durable_subscriber()
        got = bodies_of(await take_all(broker, returned))
        assert [body for body in got if body != b"unstored"] == numbered(0, 40)


async def test_memory_is_given_back_when_everything_is_read(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory, window_messages=WINDOW) as broker:
        await (await broker.durable_subscriber()).vanish()
        publisher = await broker.client()
        await publish_in_chunks(publisher, numbered(0, 100))
        returned = await broker.durable_subscriber(prefetch_count="9")
        await take_all(broker, returned)

        await broker.settle()

        logs_bytes = sum(topic.log.size_bytes for topic in broker.registry.topics.values())
        assert broker.budget.used_bytes == logs_bytes + broker.registry.pages.size_bytes
