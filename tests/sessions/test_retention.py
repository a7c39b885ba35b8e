"""What a topic keeps for later subscribers, as its `[[topics]]` table says, and when that goes."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from trio.testing import wait_all_tasks_blocked

from tests.support.broker_under_test import running_broker
from tests.support.passing_time import UpkeepRounds, let_time_pass, let_wall_clock_go_on

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from trio.testing import MockClock

    from tests.support.broker_under_test import BrokerUnderTest


#: Header of a SUBSCRIBE.
FROM_EARLIEST: dict[str, Any] = {"from": "earliest"}


def retaining(pattern: str = "a", /, **bounds: Any) -> dict[str, Any]:
    """Settings of a broker that retains in one place."""
    return {"topics": [{"pattern": pattern, **bounds}]}


def bodies(numbers: Iterable[int]) -> list[bytes]:
    return [b"%d" % number for number in numbers]


async def retained(broker: BrokerUnderTest, destination: str = "/topic/a") -> list[bytes]:
    """What somebody gets who comes now."""
    reader = await broker.subscriber(destination, **FROM_EARLIEST)
    found = [message.body for message in await broker.rest_for(reader)]
    await reader.vanish()
    return found


async def publish_singly(broker: BrokerUnderTest, numbers: Iterable[int], size_bytes: int = 0) -> None:
    for number in numbers:
        await broker.store_messages((b"%d" % number).ljust(size_bytes))


async def wait_until_counted(broker: BrokerUnderTest) -> None:
    """Until upkeep has counted what there was before the start."""
    topic = broker.registry.topics["a"]
    assert topic.retained is not None
    while not topic.retained.is_counted:
        await wait_all_tasks_blocked(0.001)


# What is kept --------------------------------------------------------------------------------------------------------


async def test_a_topic_without_subscribers_stores_what_it_retains(store_directory: Path, mock_clock: MockClock) -> None:
    async with running_broker(store_in=store_directory, **retaining(retain_messages=100)) as broker:
        await broker.store_messages(b"1", b"2")
        assert broker.count("messages") == 2
        broker.kill()

    async with running_broker(store_in=store_directory, **retaining(retain_messages=100)) as broker:
        await let_time_pass(broker, mock_clock, 3)
        assert await retained(broker) == [b"1", b"2"]


async def test_a_receipt_from_a_topic_that_retains_means_that_it_is_on_disk(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory, **retaining(retain_messages=100)) as broker:
        publisher = await broker.client()
        with broker.held_store():
            await publisher.publish(b"1", receipt="stored")
            await wait_all_tasks_blocked(0.001)
            assert not publisher._frames
        await publisher.expect_receipt("stored")
        assert broker.count("messages") == 1


async def test_a_topic_that_no_table_names_stores_nothing_of_its_own(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory, **retaining("a.*", retain_messages=100)) as broker:
        await broker.store_messages(b"1", destination="/topic/a.x")
        await broker.store_messages(b"2", destination="/topic/b")
        await broker.settle()
        assert broker.look("SELECT name FROM topics") == [("a.x",)]


async def test_what_everybody_has_settled_is_kept_for_later_subscribers(
    store_directory: Path, mock_clock: MockClock
) -> None:
    async with running_broker(store_in=store_directory, **retaining(retain_messages=100)) as broker:
        subscriber = await broker.durable_subscriber()
        await broker.store_messages(*bodies(range(3)))
        await subscriber.acknowledge(*await subscriber.next_messages(3))

        await let_time_pass(broker, mock_clock, 5)

        assert broker.count("messages") == 3
        assert await retained(broker) == bodies(range(3))
        await broker.expect_silence(subscriber)


# What goes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_subscriber", [True, False])
async def test_what_is_over_the_number_goes(has_subscriber: bool, store_directory: Path, mock_clock: MockClock) -> None:
    async with running_broker(store_in=store_directory, **retaining(retain_messages=10)) as broker:
        if has_subscriber:
            await broker.subscriber()
        await broker.store_messages(*bodies(range(15)))
        await publish_singly(broker, range(15, 25))

        await let_time_pass(broker, mock_clock, 3)

        assert broker.count("messages") == 10
        assert await retained(broker) == bodies(range(15, 25))


async def test_what_is_over_the_bytes_goes(store_directory: Path, mock_clock: MockClock) -> None:
    async with running_broker(store_in=store_directory, **retaining(retain_bytes=10_000)) as broker:
        await publish_singly(broker, range(30), size_bytes=900)

        await let_time_pass(broker, mock_clock, 3)

        ((kept_bytes,),) = broker.look("SELECT sum(length(tail)) FROM messages")
        assert 9_000 <= kept_bytes <= 10_000
        assert [int(body) for body in await retained(broker)] == list(range(20, 30))


async def test_a_chunk_of_more_bytes_than_are_retained_leaves_its_newest_messages(
    store_directory: Path, mock_clock: MockClock
) -> None:
    async with running_broker(store_in=store_directory, **retaining(retain_bytes=10_000)) as broker:
        await broker.store_messages(*[(b"%d" % number).ljust(900) for number in range(30)])

        await let_time_pass(broker, mock_clock, 3)

        assert [int(body) for body in await retained(broker)] == list(range(20, 30))


async def test_what_is_older_than_the_age_goes_and_nothing_else(store_directory: Path, mock_clock: MockClock) -> None:
    async with running_broker(store_in=store_directory, **retaining(retain_s=60)) as broker:
        await broker.store_messages(b"old")
        await let_time_pass(broker, mock_clock, 30)
        await broker.store_messages(b"young")

        await let_time_pass(broker, mock_clock, 28)
        assert await retained(broker) == [b"old", b"young"]
        await let_time_pass(broker, mock_clock, 4)

        assert broker.count("messages") == 1
        assert await retained(broker) == [b"young"]


async def test_the_old_go_while_new_ones_go_on_coming(store_directory: Path, mock_clock: MockClock) -> None:
    async with running_broker(store_in=store_directory, **retaining(retain_s=128)) as broker:
        publisher = await broker.client()
        for number in range(100):
            await publisher.publish(b"%d" % number)
            await publisher.sync()
            mock_clock.jump(2)

        await let_time_pass(broker, mock_clock, 3)

        assert 60 <= broker.count("messages") <= 65


async def test_of_several_bounds_the_narrowest_counts(store_directory: Path, mock_clock: MockClock) -> None:
    bounds = {"retain_messages": 5, "retain_bytes": 1_000_000, "retain_s": 100}
    async with running_broker(store_in=store_directory, **retaining(**bounds)) as broker:
        await publish_singly(broker, range(10))
        await let_time_pass(broker, mock_clock, 3)
        assert await retained(broker) == bodies(range(5, 10))

        mock_clock.jump(100)
        await let_time_pass(broker, mock_clock, 3)

        assert await retained(broker) == []


async def test_a_topic_goes_when_nothing_of_it_is_retained_any_more(
    store_directory: Path, mock_clock: MockClock
) -> None:
    async with running_broker(store_in=store_directory, topic_idle_s=5, **retaining(retain_s=20)) as broker:
        await broker.store_messages(b"1")
        await let_time_pass(broker, mock_clock, 15)
        assert list(broker.registry.topics) == ["a"]

        await let_time_pass(broker, mock_clock, 10)

        assert not broker.registry.topics
        assert (broker.count("topics"), broker.count("messages")) == (0, 0)


async def test_dead_letters_go_after_a_time_of_their_own(store_directory: Path, mock_clock: MockClock) -> None:
    async with running_broker(store_in=store_directory, dead_letter_retain_s=50) as broker:
        subscriber = await broker.durable_subscriber()
        await broker.store_messages(b"1")
        await subscriber.send("NACK", id=(await subscriber.next_message()).headers["ack"], requeue="false")
        await let_time_pass(broker, mock_clock, 40)
        assert await retained(broker, "/topic/DLQ.a") == [b"1"]

        await let_time_pass(broker, mock_clock, 15)

        assert broker.count("messages") == 0


# What stays in any case ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bounds", [{"retain_messages": 2}, {"retain_bytes": 500}, {"retain_s": 5}], ids=str)
async def test_what_a_durable_subscriber_has_not_settled_is_never_taken(
    bounds: dict[str, int], store_directory: Path, mock_clock: MockClock
) -> None:
    async with running_broker(store_in=store_directory, **retaining(**bounds)) as broker:
        await (await broker.durable_subscriber()).vanish()
        await publish_singly(broker, range(20))

        await let_time_pass(broker, mock_clock, 20)

        assert broker.count("messages") == 20
        subscriber = await broker.durable_subscriber()
        rest = await broker.rest_for(subscriber)
        assert [message.body for message in rest] == bodies(range(20))
        await subscriber.acknowledge(*rest)
        await let_time_pass(broker, mock_clock, 5)
        assert broker.count("messages") < 10


async def test_what_a_hole_pins_stays_and_what_is_retained_above_it_too(
    store_directory: Path, mock_clock: MockClock
) -> None:
    async with running_broker(store_in=store_directory, **retaining(retain_messages=50)) as broker:
        subscriber = await broker.durable_subscriber()
        await broker.store_messages(*bodies(range(300)))
        hole, *rest = await subscriber.next_messages(300)
        await subscriber.acknowledge(*rest)

        await let_time_pass(broker, mock_clock, 5)
        assert (await retained(broker))[-50:] == bodies(range(250, 300))
        await subscriber.acknowledge(hole)
        await let_time_pass(broker, mock_clock, 5)

        assert await retained(broker) == bodies(range(250, 300))


async def test_whoever_reads_what_was_retained_is_not_overtaken_by_the_bound(
    store_directory: Path, mock_clock: MockClock
) -> None:
    async with running_broker(store_in=store_directory, **retaining(retain_s=10)) as broker:
        await broker.store_messages(*bodies(range(20)))
        slow = await broker.subscriber(ack="client-individual", prefetch_count="1", **FROM_EARLIEST)
        first = await slow.next_message()

        await let_time_pass(broker, mock_clock, 20)

        got = [first.body]
        await slow.acknowledge(first)
        for _ in range(19):
            message = await slow.next_message()
            got.append(message.body)
            await slow.send("ACK", id=message.headers["ack"])
        assert got == bodies(range(20))


# Over a restart ------------------------------------------------------------------------------------------------------


async def test_the_number_is_counted_again_after_a_restart(store_directory: Path, mock_clock: MockClock) -> None:
    async with running_broker(store_in=store_directory, **retaining(retain_messages=10)) as broker:
        await broker.store_messages(*bodies(range(25)))
        broker.kill()

    async with running_broker(store_in=store_directory, **retaining(retain_messages=10)) as broker:
        await broker.store_messages(b"25")
        await wait_until_counted(broker)
        await let_time_pass(broker, mock_clock, 3)
        assert await retained(broker) == bodies(range(16, 26))
        topic = broker.registry.topics["a"]
        assert topic.retained is not None
        assert topic.retained.messages == broker.count("messages") == 10


async def test_the_bytes_are_counted_again_after_a_restart(store_directory: Path, mock_clock: MockClock) -> None:
    async with running_broker(store_in=store_directory, **retaining(retain_bytes=100_000)) as broker:
        await publish_singly(broker, range(5), size_bytes=900)
        await broker.settle()
        broker.kill()

    async with running_broker(store_in=store_directory, **retaining(retain_bytes=100_000)) as broker:
        await wait_until_counted(broker)
        topic = broker.registry.topics["a"]
        assert topic.retained is not None
        assert [(topic.retained.size_bytes,)] == broker.look("SELECT sum(length(tail)) FROM messages")


async def test_a_restart_does_not_make_the_next_message_take_all_that_was_retained(
    store_directory: Path, mock_clock: MockClock
) -> None:
    async with running_broker(store_in=store_directory, **retaining(retain_bytes=10_000)) as broker:
        await publish_singly(broker, range(10), size_bytes=900)

    async with running_broker(store_in=store_directory, **retaining(retain_bytes=10_000)) as broker:
        await wait_until_counted(broker)
        await publish_singly(broker, range(10, 12), size_bytes=900)
        await let_time_pass(broker, mock_clock, 3)
        assert [int(body) for body in await retained(broker)] == list(range(2, 12))


async def test_the_age_goes_on_over_a_restart(
    store_directory: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_wall_clock_go_on(mock_clock, monkeypatch)
    async with running_broker(store_in=store_directory, **retaining(retain_s=60)) as broker:
        await broker.store_messages(b"old")
        await let_time_pass(broker, mock_clock, 30)
        broker.kill()

    async with running_broker(store_in=store_directory, **retaining(retain_s=60)) as broker:
        await wait_until_counted(broker)
        await let_time_pass(broker, mock_clock, 25)
        assert broker.count("messages") == 1
        await let_time_pass(broker, mock_clock, 10)
        assert broker.count("messages") == 0


async def test_nothing_is_let_go_before_what_was_there_is_counted(store_directory: Path, mock_clock: MockClock) -> None:
    settings = retaining(retain_messages=10)
    async with running_broker(store_in=store_directory, **settings) as broker:
        await broker.store_messages(*bodies(range(8)))
        broker.kill()

    may_count = threading.Event()
    async with running_broker(store_in=store_directory, database="", **settings) as broker:
        # The broker has begun to count when it starts; here that has been forgotten, and is to be done again.
        topic = broker.registry.topics["a"]
        await wait_until_counted(broker)
        assert topic.retained is not None
        topic.retained.forget_below(10**9)
        topic.retained.note_start(topic.log.end_offset)
        assert broker.parts.opened is not None
        store = broker.parts.opened.store
        stretches = store.surveys.stretches

        def count_when_told(*args: Any) -> Any:
            assert may_count.wait(20)
            return stretches(*args)

        store.surveys.stretches = count_when_told  # type: ignore[assignment, method-assign]
        await publish_singly(broker, range(8, 23))
        await let_time_pass(broker, mock_clock, 8)
        assert broker.count("messages") == 23

        may_count.set()
        await wait_until_counted(broker)
        await let_time_pass(broker, mock_clock, 3)

        assert await retained(broker) == bodies(range(13, 23))


async def test_without_its_table_the_topic_retains_nothing_after_a_restart(
    store_directory: Path, mock_clock: MockClock
) -> None:
    async with running_broker(store_in=store_directory, **retaining(retain_messages=10)) as broker:
        await broker.store_messages(b"1")

    async with running_broker(store_in=store_directory, topic_idle_s=1) as broker:
        await let_time_pass(broker, mock_clock, 5)
        assert (broker.count("messages"), broker.count("topics")) == (0, 0)


# What is not published any more --------------------------------------------------------------------------------------


async def test_an_idle_broker_writes_nothing_about_what_it_retains(
    store_directory: Path, mock_clock: MockClock
) -> None:
    async with running_broker(store_in=store_directory, **retaining(retain_messages=10)) as broker:
        await broker.store_messages(*bodies(range(15)))
        await let_time_pass(broker, mock_clock, 5)
        before = broker.journal.batches

        await let_time_pass(broker, mock_clock, 10)

        assert broker.journal.batches == before


async def test_what_has_expired_is_not_counted_as_retained(
    store_directory: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    upkeep = UpkeepRounds(monkeypatch)
    async with running_broker(store_in=store_directory, **retaining(retain_messages=10)) as broker:
        await broker.store_messages(*bodies(range(5)))
        await broker.store_messages(*bodies(range(5, 10)), ttl="1000")
        await upkeep.run_one(broker, mock_clock)
        assert broker.count("messages") == 5

        await broker.store_messages(*bodies(range(10, 15)))
        await let_time_pass(broker, mock_clock, 3)

        assert await retained(broker) == bodies([0, 1, 2, 3, 4, 10, 11, 12, 13, 14])


@pytest.mark.parametrize("is_restarted", [True, False])
async def test_a_topic_whose_newest_message_has_expired_goes_with_the_rest(
    is_restarted: bool, store_directory: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_wall_clock_go_on(mock_clock, monkeypatch)
    upkeep = UpkeepRounds(monkeypatch)
    settings = {"topic_idle_s": 5, **retaining(retain_s=60)}
    async with running_broker(store_in=store_directory, **settings) as broker:
        await broker.store_messages(b"1")
        await broker.store_messages(b"2", ttl="1000")
        await upkeep.run_one(broker, mock_clock)
        assert broker.count("messages") == 1
        if not is_restarted:
            await let_time_pass(broker, mock_clock, 65)
            assert not broker.registry.topics

    async with running_broker(store_in=store_directory, **settings) as broker:
        if is_restarted:
            await wait_until_counted(broker)
        await let_time_pass(broker, mock_clock, 65)
        assert broker.count("messages") == 0
        assert not broker.registry.topics


async def test_a_topic_whose_messages_have_all_expired_goes_though_it_retains(
    store_directory: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    upkeep = UpkeepRounds(monkeypatch)
    async with running_broker(store_in=store_directory, topic_idle_s=5, **retaining(retain_messages=10)) as broker:
        await broker.store_messages(b"1", ttl="1000")
        await upkeep.run_one(broker, mock_clock)
        assert broker.count("messages") == 0

        await let_time_pass(broker, mock_clock, 10)

        assert not broker.registry.topics
