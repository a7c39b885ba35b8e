"""What everybody has settled goes, although something before it is not settled; and what is not settled stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tests.journal.watched_store import statements_written
from tests.support.broker_under_test import running_broker
from tests.support.passing_time import let_time_pass, watch_batches

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from trio.testing import MockClock

    from stompbroker.stomp import Frame
    from tests.support.broker_under_test import BrokerUnderTest, Client


#: More than the collector thinks worth a look above a hole.
COUNT = 300


def bodies(numbers: Iterable[int]) -> list[bytes]:
    return [b"%d" % number for number in numbers]


def stored(broker: BrokerUnderTest) -> list[int]:
    return [offset for (offset,) in broker.look('SELECT "offset" FROM messages ORDER BY "offset"')]


async def acknowledge_all_but(client: Client, messages: list[Frame], *kept: int) -> None:
    await client.acknowledge(*[message for number, message in enumerate(messages) if number not in kept])


async def subscriber_with_holes(broker: BrokerUnderTest, name: str, *holes: int, count: int = COUNT) -> Client:
    """A durable subscriber that has settled all of the messages there are but these."""
    client = await broker.durable_subscriber(name=name, client_id=name, prefetch_count=str(count))
    await acknowledge_all_but(client, await client.next_messages(count), *holes)
    return client


# With a store --------------------------------------------------------------------------------------------------------


async def test_what_is_settled_above_an_unsettled_message_leaves_the_store_and_the_log(
    store_directory: Path, mock_clock: MockClock
) -> None:
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber()
        await broker.store_messages(*bodies(range(COUNT)))
        messages = await subscriber.next_messages(COUNT)

        await acknowledge_all_but(subscriber, messages, 0)
        await let_time_pass(broker, mock_clock, 3)

        assert stored(broker) == [0]
        assert [offset for offset, _ in broker.registry.topics["a"].log] == [0]


async def test_the_unsettled_message_is_delivered_again_after_all_around_it_has_gone(
    store_directory: Path, mock_clock: MockClock
) -> None:
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber()
        await broker.store_messages(*bodies(range(COUNT)))
        await acknowledge_all_but(subscriber, await subscriber.next_messages(COUNT), 150)
        await let_time_pass(broker, mock_clock, 3)
        assert stored(broker) == [150]

        await subscriber.vanish()

        again = await broker.durable_subscriber()
        assert [message.body for message in await broker.rest_for(again)] == [b"150"]


async def test_of_several_subscribers_with_different_holes_everybody_gets_their_own(
    store_directory: Path, mock_clock: MockClock
) -> None:
    holes = {"one": (0, 100), "two": (100, 200), "three": (299,)}
    async with running_broker(store_in=store_directory) as broker:
        for name in holes:
            await (await broker.durable_subscriber(name=name, client_id=name)).vanish()
        await broker.store_messages(*bodies(range(COUNT)))
        clients = {name: await subscriber_with_holes(broker, name, *own) for name, own in holes.items()}

        await let_time_pass(broker, mock_clock, 3)
        assert stored(broker) == [0, 100, 200, 299]

        for name, own in holes.items():
            await clients[name].vanish()
            again = await broker.durable_subscriber(name=name, client_id=name)
            rest = await broker.rest_for(again)
            assert [message.body for message in rest] == bodies(own)
            await again.acknowledge(*rest)
        await let_time_pass(broker, mock_clock, 3)
        assert stored(broker) == []


async def test_what_one_of_two_has_not_been_sent_stays(store_directory: Path, mock_clock: MockClock) -> None:
    async with running_broker(store_in=store_directory) as broker:
        await (await broker.durable_subscriber(name="absent", client_id="absent")).vanish()
        subscriber = await broker.durable_subscriber()
        await broker.store_messages(*bodies(range(COUNT)))
        await acknowledge_all_but(subscriber, await subscriber.next_messages(COUNT), 0)

        await let_time_pass(broker, mock_clock, 5)

        assert stored(broker) == list(range(COUNT))
        absent = await broker.durable_subscriber(name="absent", client_id="absent")
        assert [message.body for message in await broker.rest_for(absent)] == bodies(range(COUNT))


async def test_what_a_transient_subscriber_has_in_flight_stays_until_it_goes(
    store_directory: Path, mock_clock: MockClock
) -> None:
    async with running_broker(store_in=store_directory) as broker:
        durable = await broker.durable_subscriber()
        transient = await broker.subscriber(ack="client-individual")
        await broker.store_messages(*bodies(range(COUNT)))
        await acknowledge_all_but(durable, await durable.next_messages(COUNT), 5)
        await acknowledge_all_but(transient, await transient.next_messages(COUNT), 200)

        await let_time_pass(broker, mock_clock, 3)
        assert stored(broker) == [5, 200]
        await transient.vanish()
        await let_time_pass(broker, mock_clock, 3)

        assert stored(broker) == [5]


async def test_what_waits_for_its_redelivery_stays(store_directory: Path, mock_clock: MockClock) -> None:
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber()
        await broker.store_messages(*bodies(range(COUNT)))
        messages = await subscriber.next_messages(COUNT)
        await subscriber.send("NACK", id=messages[7].headers["ack"], delay="10000")
        await acknowledge_all_but(subscriber, messages, 7)

        await let_time_pass(broker, mock_clock, 5)
        assert stored(broker) == [7]
        await let_time_pass(broker, mock_clock, 6)

        assert (await subscriber.next_message()).body == b"7"


async def test_later_messages_come_and_go_while_one_stays(store_directory: Path, mock_clock: MockClock) -> None:
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber()
        await broker.store_messages(b"stays")
        stays = await subscriber.next_message()
        for _ in range(4):
            await broker.store_messages(*bodies(range(COUNT)))
            await subscriber.acknowledge(*await subscriber.next_messages(COUNT))
            await let_time_pass(broker, mock_clock, 3)
            assert stored(broker) == [0]

        await subscriber.acknowledge(stays)
        await let_time_pass(broker, mock_clock, 3)
        assert stored(broker) == []


@pytest.mark.parametrize("is_collected", [True, False])
async def test_after_a_kill_nothing_is_lost_and_nothing_comes_twice(
    is_collected: bool, store_directory: Path, mock_clock: MockClock
) -> None:
    holes = (3, 4, 120, 299)
    async with running_broker(store_in=store_directory) as broker:
        await (await broker.durable_subscriber()).vanish()
        await broker.store_messages(*bodies(range(COUNT)))
        subscriber = await broker.durable_subscriber()
        await acknowledge_all_but(subscriber, await subscriber.next_messages(COUNT), *holes)
        if is_collected:
            await let_time_pass(broker, mock_clock, 3)
            assert stored(broker) == list(holes)
        broker.kill()

    async with running_broker(store_in=store_directory) as broker:
        await let_time_pass(broker, mock_clock, 3)
        assert stored(broker) == list(holes)
        again = await broker.durable_subscriber()
        rest = await broker.rest_for(again)
        assert [message.body for message in rest] == bodies(holes)
        await again.acknowledge(*rest)
        await broker.store_messages(b"new")
        assert await again.next_bodies(1) == [b"new"]


async def test_a_kill_while_it_is_deleted_loses_nothing(store_directory: Path, mock_clock: MockClock) -> None:
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber()
        await broker.store_messages(*bodies(range(COUNT)))
        await acknowledge_all_but(subscriber, await subscriber.next_messages(COUNT), 0, 150)
        await broker.settle()
        with broker.held_store():
            for _ in range(3):
                mock_clock.jump(1.01)
                await wait_all_tasks_blocked(0.001)
            assert not broker.journal.is_idle
            broker.kill()

    async with running_broker(store_in=store_directory) as broker:
        rest = await broker.rest_for(await broker.durable_subscriber())
        assert [message.body for message in rest] == [b"0", b"150"]
        await let_time_pass(broker, mock_clock, 3)
        assert stored(broker) == [0, 150]


# What it costs the store ---------------------------------------------------------------------------------------------


async def test_no_batch_deletes_more_than_its_messages_and_the_rest_follows(
    store_directory: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stompbroker.journal.changes.MAX_DELETED", 100)
    async with running_broker(store_in=store_directory) as broker:
        written = watch_batches(broker)
        subscriber = await broker.durable_subscriber()
        await broker.store_messages(*bodies(range(COUNT)))
        await acknowledge_all_but(subscriber, await subscriber.next_messages(COUNT), 0)

        await let_time_pass(broker, mock_clock, 10)

        deleted = [sum(stop - start for _, start, stop in batch.deletions) for batch in written]
        assert max(deleted) == 100
        assert stored(broker) == [0]


async def test_no_batch_deletes_more_than_its_ranges_and_the_rest_follows(
    store_directory: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stompbroker.journal.changes.MAX_RANGES", 63)
    holes = range(0, 1000, 10)
    with statements_written() as statements:
        async with running_broker(store_in=store_directory) as broker:
            written = watch_batches(broker)
            await (await broker.durable_subscriber(name="one", client_id="one")).vanish()
            await broker.store_messages(*bodies(range(1000)))
            await subscriber_with_holes(broker, "one", *holes, count=1000)

            await let_time_pass(broker, mock_clock, 6)

            assert max(len(batch.deletions) for batch in written) == 63
            assert stored(broker) == list(holes)
    deletions = [statement for statement in statements if statement.startswith(("DELETE FROM messages", "COMMIT"))]
    batches = " ".join(statement[:6] for statement in deletions).split("COMMIT")
    # 64, 16, 4 or 1 conditions in a statement: never more than three of a kind.
    assert max(batch.count("DELETE") for batch in batches) <= 1 + 3 + 3 + 3


async def test_ranges_of_several_topics_share_what_a_batch_may_delete(
    store_directory: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stompbroker.journal.changes.MAX_RANGES", 64)
    holes = range(0, 1000, 20)
    async with running_broker(store_in=store_directory) as broker:
        written = watch_batches(broker)
        for topic in ("a", "b", "c"):
            destination = f"/topic/{topic}"
            client = await broker.durable_subscriber(destination, name=topic, client_id=topic, prefetch_count="1000")
            await broker.store_messages(*bodies(range(1000)), destination=destination)
            await acknowledge_all_but(client, await client.next_messages(1000), *holes)

        await let_time_pass(broker, mock_clock, 8)

        assert broker.count("messages") == 3 * len(holes)
        assert max(len(batch.deletions) for batch in written) == 64


async def test_a_few_settled_messages_above_a_hole_are_not_worth_a_look(
    store_directory: Path, mock_clock: MockClock
) -> None:
    """They go with the hole: below a number that is written down the collector does not compare ranges."""
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber()
        await broker.store_messages(*bodies(range(50)))
        messages = await subscriber.next_messages(50)
        await acknowledge_all_but(subscriber, messages, 0)
        await let_time_pass(broker, mock_clock, 3)
        assert stored(broker) == list(range(50))

        await subscriber.acknowledge(messages[0])
        await let_time_pass(broker, mock_clock, 3)

        assert stored(broker) == []


async def test_an_idle_broker_writes_nothing_about_a_hole_that_stays(
    store_directory: Path, mock_clock: MockClock
) -> None:
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber()
        await broker.store_messages(*bodies(range(COUNT)))
        await acknowledge_all_but(subscriber, await subscriber.next_messages(COUNT), 0)
        await let_time_pass(broker, mock_clock, 5)
        before = broker.journal.batches

        await let_time_pass(broker, mock_clock, 10)

        assert broker.journal.batches == before


async def test_what_a_subscription_is_moved_back_to_is_not_deleted_any_more(
    store_directory: Path, mock_clock: MockClock
) -> None:
    """The collector has found it between holes, and the journal was about to delete it."""
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber()
        await broker.store_messages(*bodies(range(COUNT)))
        await acknowledge_all_but(subscriber, await subscriber.next_messages(COUNT), 0)
        await broker.settle()
        now_ns = broker.clock.now_ns()
        broker.registry.collect(broker.registry.topics["a"], now_ns, unused_since_ns=0)
        (subscription,) = broker.registry.durable.values()

        moved = await broker.parts.control.call("move_subscription", {"id": subscription.public_id, "to": "earliest"})

        assert moved["backlog"] == COUNT
        again = await broker.durable_subscriber()
        assert [message.body for message in await broker.rest_for(again)] == bodies(range(COUNT))


# In memory only ------------------------------------------------------------------------------------------------------


async def test_in_memory_what_is_settled_above_an_unsettled_message_leaves_the_log(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    subscribers = [await broker.subscriber(ack="client-individual") for _ in range(2)]
    await (await broker.client()).publish(*bodies(range(COUNT)))
    first, second = [await subscriber.next_messages(COUNT) for subscriber in subscribers]

    await acknowledge_all_but(subscribers[0], first, 0, 150)
    await acknowledge_all_but(subscribers[1], second, 150, 299)
    await trio.sleep(2)

    assert [offset for offset, _ in broker.registry.topics["a"].log] == [0, 150, 299]
    for subscriber, message in ((subscribers[0], first[0]), (subscribers[1], second[299])):
        await subscriber.send("NACK", id=message.headers["ack"])
        assert (await subscriber.next_message()).body == message.body


async def test_in_memory_what_is_unsent_to_somebody_stays(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    quick = await broker.subscriber(ack="client-individual")
    slow = await broker.subscriber(ack="client-individual", prefetch_count="1")
    await (await broker.client()).publish(*bodies(range(COUNT)))
    await acknowledge_all_but(quick, await quick.next_messages(COUNT), 0)

    await trio.sleep(5)

    for number in range(COUNT):
        message = await slow.next_message()
        assert message.body == b"%d" % number
        await slow.send("ACK", id=message.headers["ack"])


async def test_a_hole_far_back_does_not_let_publishers_go_on_while_the_window_is_full(
    autojump_clock: MockClock,
) -> None:
    """What was dropped between the hole and the rest is not in the window any more, and so no part of it is sent."""
    async with running_broker(window_messages=200, block_timeout_s=3600) as broker:
        quick = await broker.subscriber(ack="client-individual", prefetch_count="1000")
        slow = await broker.subscriber(ack="client-individual", prefetch_count="1")
        publisher = await broker.client()
        hole = None
        for _ in range(20):
            await publisher.publish(*bodies(range(50)))
            messages = await quick.next_messages(50)
            hole = hole or messages[0]
            await acknowledge_all_but(quick, [message for message in messages if message is not hole])
            for _ in range(50):
                await slow.send("ACK", id=(await slow.next_message()).headers["ack"])
            await trio.sleep(2)
        assert broker.registry.topics["a"].log.message_count < 100

        for _ in range(50):
            await publisher.publish(*bodies(range(50)))
            await trio.sleep(2)

        # One chunk more than the window, and one that was being read when it was full.
        assert broker.registry.topics["a"].log.message_count <= 200 + 2 * 50
        assert publisher.session.is_held_back
