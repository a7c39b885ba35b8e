"""Publishers to a full topic wait, and nobody waits for himself for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio
from trio.testing import wait_all_tasks_blocked

from tests.support.broker_under_test import Client, running_broker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trio.testing import MockClock

    from tests.support.broker_under_test import BrokerUnderTest

#: A small window: ten messages fill it.
SMALL: dict[str, Any] = {"window_messages": 10, "default_prefetch": 2, "parking_bytes": 4096, "block_timeout_s": 30}


async def publish_numbered(client: Client, numbers: Sequence[int], **headers: str) -> None:
    """One write per message, so that each is a chunk of its own."""
    for number in numbers:
        await client.publish(b"%d" % number, **headers)


async def fill(broker: BrokerUnderTest) -> tuple[Client, Client]:
    """A subscriber with two unacknowledged messages, and a publisher that has been held back behind it."""
    subscriber = await broker.subscriber(ack="client-individual")
    publisher = await broker.client()
    await publish_numbered(publisher, range(20), receipt="r")
    await wait_all_tasks_blocked()
    assert broker.registry.topics["a"].gate.is_blocked
    assert publisher.session.is_held_back
    return subscriber, publisher


async def acknowledge(subscriber: Client, count: int) -> list[bytes]:
    bodies = []
    for _ in range(count):
        message = await subscriber.next_message()
        bodies.append(message.body)
        await subscriber.send("ACK", id=message.headers["ack"])
    return bodies


async def test_a_publisher_to_a_full_topic_waits_and_then_nothing_is_missing(autojump_clock: MockClock) -> None:
    async with running_broker(**SMALL) as broker:
        subscriber, publisher = await fill(broker)
        receipts_before = publisher.session.outbox.put_bytes

        bodies = await acknowledge(subscriber, 20)

        assert bodies == [b"%d" % number for number in range(20)]
        await subscriber.sync()
        await wait_all_tasks_blocked()
        assert not publisher.session.is_held_back
        assert publisher.session.outbox.put_bytes > receipts_before
        for _ in range(20):
            await publisher.expect_receipt("r")


async def test_a_receipt_is_not_given_for_what_is_parked(autojump_clock: MockClock) -> None:
    async with running_broker(**SMALL) as broker:
        _, publisher = await fill(broker)

        published = broker.registry.topics["a"].published

        assert published < 20
        for _ in range(published):
            await publisher.expect_receipt("r")
        await publisher.expect_nothing()


async def test_a_receipt_is_not_given_while_anything_before_it_is_parked(autojump_clock: MockClock) -> None:
    """Also if what it is for goes to a free topic, where others have passed what is parked."""
    async with running_broker(**SMALL) as broker:
        subscriber, publisher = await broker.subscriber(ack="client-individual"), await broker.client()
        here = publisher.frame("SEND", b"1", destination="/topic/a")
        there = publisher.frame("SEND", b"2", destination="/topic/b")
        count = 0
        while not count or not broker.registry.topics["a"].gate.is_blocked:
            await publisher.send_raw(here + there)
            await publisher.sync()
            count += 1
        asking = publisher.frame("SEND", b"2", destination="/topic/b", receipt="r")

        await publisher.send_raw(there + here + there + asking)

        await publisher.expect_nothing()
        await acknowledge(subscriber, count + 1)
        await publisher.expect_receipt("r")


async def test_frames_behind_a_parked_one_keep_their_order(autojump_clock: MockClock) -> None:
    """A SEND to another, free topic must not overtake, nor must a DISCONNECT."""
    async with running_broker(**SMALL) as broker:
        subscriber, publisher = await fill(broker)
        await publisher.publish(b"elsewhere", destination="/topic/b")
        await publisher.send("DISCONNECT", receipt="bye")
        await wait_all_tasks_blocked()
        assert "b" not in broker.registry.topics

        await acknowledge(subscriber, 20)

        for _ in range(20):
            await publisher.expect_receipt("r")
        await publisher.expect_receipt("bye")
        assert broker.registry.topics["b"].published == 1


async def test_other_topics_never_notice(autojump_clock: MockClock) -> None:
    async with running_broker(**SMALL) as broker:
        await fill(broker)
        listener = await broker.subscriber("/topic/b")
        other = await broker.client()

        await publish_numbered(other, range(100), destination="/topic/b")

        assert [message.body for message in await listener.next_messages(100)] == [b"%d" % n for n in range(100)]


async def test_a_connection_that_publishes_to_and_acknowledges_from_one_full_topic_goes_on(
    autojump_clock: MockClock,
) -> None:
    """Its ACKs count although they stand behind SENDs that have to wait."""
    async with running_broker(**SMALL) as broker:
        client = await broker.subscriber(ack="client-individual")
        await publish_numbered(client, range(15))
        await wait_all_tasks_blocked()
        assert client.session.is_held_back

        bodies = await acknowledge(client, 15)

        assert bodies == [b"%d" % number for number in range(15)]


async def test_two_connections_in_a_ring_of_full_topics_go_on(autojump_clock: MockClock) -> None:
    """Each publishes to the topic the other acknowledges from; both topics are full."""
    async with running_broker(**SMALL) as broker:
        first = await broker.subscriber("/topic/a", ack="client-individual")
        second = await broker.subscriber("/topic/b", ack="client-individual")
        await publish_numbered(first, range(15), destination="/topic/b")
        await publish_numbered(second, range(15), destination="/topic/a")
        await wait_all_tasks_blocked()
        assert first.session.is_held_back
        assert second.session.is_held_back

        async with trio.open_nursery() as nursery:
            nursery.start_soon(acknowledge, first, 15)
            nursery.start_soon(acknowledge, second, 15)

        await wait_all_tasks_blocked()
        assert not first.session.is_held_back
        assert not second.session.is_held_back


async def test_the_subscriber_that_pins_the_window_is_disconnected_after_block_timeout(
    autojump_clock: MockClock,
) -> None:
    async with running_broker(**SMALL) as broker:
        subscriber, publisher = await fill(broker)
        started_at = trio.current_time()
        await subscriber.next_messages(2)

        await subscriber.expect_error("subscriber too slow", "'0'", "'/topic/a'", "30 s")

        assert 30 <= trio.current_time() - started_at <= 32
        for _ in range(20):
            await publisher.expect_receipt("r")


async def test_a_subscriber_that_makes_progress_is_not_disconnected(autojump_clock: MockClock) -> None:
    """Slow is not stuck: as long as something is taken within block_timeout, the topic only waits."""
    async with running_broker(**SMALL) as broker:
        subscriber, _ = await fill(broker)

        for _ in range(8):
            await trio.sleep(25)
            await acknowledge(subscriber, 1)

        assert subscriber.session.ending is None


async def test_a_client_that_is_blocked_in_its_own_send_is_given_up_at_last(autojump_clock: MockClock) -> None:
    """It reads nothing before its send is through, and its send waits for its own reading."""
    async with running_broker(**SMALL) as broker:
        client = await broker.subscriber(ack="client-individual")
        flood = b"".join(client.frame("SEND", b"x" * 100, destination="/topic/a") for _ in range(2000))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.send_raw, flood)
            await wait_all_tasks_blocked()
            assert not client.session.wants_more

            await trio.sleep(31)
            await wait_all_tasks_blocked()

            assert client.session.ending is not None
            nursery.cancel_scope.cancel()


async def test_no_heart_beat_is_demanded_of_a_client_that_is_not_read(autojump_clock: MockClock) -> None:
    """Its beats stand unread behind what is parked; without them it must not count as lost."""
    async with running_broker(**(SMALL | {"block_timeout_s": 1000})) as broker:
        await broker.subscriber(ack="client-individual")
        publisher = await broker.client(heart_beat="1000,0")
        await publish_numbered(publisher, range(60))
        await wait_all_tasks_blocked()
        assert not publisher.session.wants_more

        await trio.sleep(600)

        assert publisher.session.ending is None


async def test_a_held_back_client_stays_connected_by_its_heart_beats(autojump_clock: MockClock) -> None:
    async with running_broker(**(SMALL | {"block_timeout_s": 1000})) as broker:
        subscriber = await broker.subscriber(ack="client-individual")
        publisher = await broker.client(heart_beat="1000,0")
        await publish_numbered(publisher, range(16))
        await wait_all_tasks_blocked()
        assert publisher.session.is_held_back
        assert publisher.session.wants_more

        for _ in range(60):
            await trio.sleep(1)
            await publisher.send_raw(b"\n")
        assert publisher.session.ending is None
        await trio.sleep(5)

        assert publisher.session.ending is not None
        assert subscriber.session.ending is None


async def test_what_was_sent_before_the_connection_closed_is_still_published(autojump_clock: MockClock) -> None:
    async with running_broker(**SMALL) as broker:
        subscriber, publisher = await fill(broker)

        await publisher.vanish()
        bodies = await acknowledge(subscriber, 20)

        assert bodies == [b"%d" % number for number in range(20)]


async def test_a_mistake_behind_parked_frames_is_answered_in_its_turn(autojump_clock: MockClock) -> None:
    async with running_broker(**SMALL) as broker:
        subscriber, publisher = await fill(broker)
        await publisher.send_raw(b"NONSENSE\n\n\0")
        await wait_all_tasks_blocked()

        await acknowledge(subscriber, 20)

        for _ in range(20):
            await publisher.expect_receipt("r")
        await publisher.expect_error("unknown command", "NONSENSE")


async def test_a_commit_to_a_full_topic_waits_as_a_whole(autojump_clock: MockClock) -> None:
    async with running_broker(**SMALL) as broker:
        subscriber, _ = await fill(broker)
        other = await broker.client()
        await other.send("BEGIN", transaction="t")
        await other.publish(b"in b", destination="/topic/b", transaction="t")
        await other.publish(b"in a", destination="/topic/a", transaction="t")
        await other.send("COMMIT", transaction="t", receipt="committed")
        await wait_all_tasks_blocked()
        assert broker.registry.topics["b"].published == 0

        await acknowledge(subscriber, 21)

        await other.expect_receipt("committed")
        assert broker.registry.topics["b"].published == 1


async def test_a_topic_is_not_blocked_by_what_its_subscriber_works_on(autojump_clock: MockClock) -> None:
    """Blocked with ten messages unsent, it goes on when six are left, though four more are sent and unacknowledged."""
    async with running_broker(window_messages=10, default_prefetch=4) as broker:
        subscriber, publisher = await broker.subscriber(ack="client-individual"), await broker.client()
        await publish_numbered(publisher, range(14))
        await wait_all_tasks_blocked()
        topic = broker.registry.topics["a"]
        assert topic.gate.is_blocked

        await acknowledge(subscriber, 4)
        await wait_all_tasks_blocked()

        assert topic.log.message_count == 10
        assert not topic.gate.is_blocked


async def test_memory_that_runs_short_shrinks_windows(autojump_clock: MockClock) -> None:
    """The budget is one for all: what one topic keeps makes the others keep less."""
    little_memory: dict[str, Any] = {
        "memory_limit": 16 << 20,
        "window_bytes": 15 << 20,
        "max_body_bytes": 4 << 20,
        "max_transaction_bytes": 4 << 20,
        "default_prefetch": 1,
    }
    async with running_broker(**little_memory) as broker:
        hog = await broker.subscriber("/topic/hog", ack="client-individual")
        other = await broker.subscriber("/topic/other", ack="client-individual")
        publisher = await broker.client()
        for _ in range(280):
            await publisher.publish(b"x" * 50_000, destination="/topic/hog")
        await wait_all_tasks_blocked()
        assert broker.budget.is_tight

        second = await broker.client()
        for _ in range(10):
            await second.publish(b"x" * 50_000, destination="/topic/other")
        await wait_all_tasks_blocked()

        assert second.session.is_held_back
        assert broker.budget.peak_bytes < 16 << 20
        await hog.send("DISCONNECT")
        await wait_all_tasks_blocked()
        await trio.sleep(2)
        assert len(await acknowledge(other, 10)) == 10
