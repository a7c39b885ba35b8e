"""Queues: each message goes to one consumer, and is kept until one has acknowledged it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from stompbroker.clock import NANOSECONDS
from tests.support.broker_under_test import running_broker
from tests.support.users import PASSWORD, add_user

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from tests.support.broker_under_test import BrokerUnderTest, Client

JOBS = "/queue/jobs"


async def consumer(broker: BrokerUnderTest, destination: str = JOBS, **headers: Any) -> Client:
    return await broker.subscriber(destination, **{"ack": "client-individual", **headers})


async def send(broker: BrokerUnderTest, *bodies: bytes, destination: str = JOBS, **headers: str) -> None:
    await broker.store_messages(*bodies, destination=destination, **headers)


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def collect(broker: BrokerUnderTest) -> None:
    """As if nobody had used anything for long."""
    now_ns = broker.clock.now_ns()
    for topic in list(broker.registry.topics.values()):
        broker.registry.collect(topic, now_ns, unused_since_ns=now_ns + NANOSECONDS)


# With and without a store ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_stored", [True, False])
async def test_what_is_sent_is_kept_until_one_consumer_has_acknowledged_it(
    store_directory: Path, is_stored: bool
) -> None:
    async with running_broker(**({"store_in": store_directory} if is_stored else {})) as broker:
        publisher = await broker.client()
        await publisher.publish(*numbered(4), destination=JOBS)
        await publisher.sync()

        one, two = await consumer(broker, prefetch_count="2"), await consumer(broker, prefetch_count="2")
        got = await one.next_messages(2) + await two.next_messages(2)

        assert sorted(each.body for each in got) == numbered(4)
        assert {each.headers["destination"] for each in got} == {JOBS}
        await one.vanish()
        for message in got[2:]:
            await two.send("ACK", id=message.headers["ack"])
        again = await two.next_messages(2)
        assert [each.body for each in again] == [each.body for each in got[:2]]
        await two.acknowledge(*again)
        (group,) = broker.registry.subscriptions
        assert (group.key, group.unsettled) == (JOBS, 0)


async def test_a_queue_and_a_topic_of_the_same_name_never_meet(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        topic, everything = await broker.subscriber("/topic/jobs"), await broker.subscriber("/topic/>")
        queue = await consumer(broker)
        await send(broker, b"to the queue")
        await send(broker, b"to the topic", destination="/topic/jobs")

        assert await queue.next_bodies(1) == [b"to the queue"]
        assert await topic.next_bodies(1) == await everything.next_bodies(1) == [b"to the topic"]
        await broker.expect_silence(queue, topic, everything)


async def test_a_queue_survives_a_restart_with_what_nobody_has_acknowledged(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        await send(broker, *numbered(3))
        one = await consumer(broker)
        messages = await one.next_messages(3)
        await one.acknowledge(messages[1])
    async with running_broker(store_in=store_directory) as broker:
        one = await consumer(broker)
        assert await one.next_bodies(2) == [b"0", b"2"]
        await broker.expect_silence(one)


async def test_persistent_false_is_kept_in_memory_for_whoever_comes(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory, window_messages=10) as broker:
        await send(broker, b"0")
        await send(broker, *numbered(5)[1:], persistent="false")
        await broker.settle()
        collect(broker)
        one = await consumer(broker)
        assert await one.next_bodies(5) == numbered(5)
        assert broker.count("messages") == 1


# Full -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["block", "drop-oldest", "disconnect"])
async def test_a_full_queue_holds_publishers_back_then_refuses_them_and_drops_nothing(
    autojump_clock: MockClock, policy: str
) -> None:
    async with running_broker(window_messages=10, block_timeout_s=5.0, slow_subscriber=policy) as broker:
        idle = await consumer(broker, prefetch_count="2")
        publisher = await broker.client()
        for body in numbered(12):
            await publisher.publish(body, destination=JOBS)
        await publisher.sync()

        await publisher.publish(b"too much", destination=JOBS, receipt="r")

        error = await publisher.expect_error("queue is full", "'jobs' is full", "for 5 s")
        assert error.headers["receipt-id"] == "r"
        assert await idle.next_bodies(2) == numbered(2)
        assert not idle.session.ending
        worker = await consumer(broker)
        assert await worker.next_bodies(10) == numbered(12)[2:]


async def test_a_publisher_that_is_held_back_goes_on_when_somebody_takes_something(autojump_clock: MockClock) -> None:
    async with running_broker(window_messages=10) as broker:
        publisher = await broker.client()
        for body in numbered(10):
            await publisher.publish(body, destination=JOBS)
        await publisher.sync()
        await publisher.publish(b"10", destination=JOBS, receipt="r")
        await wait_all_tasks_blocked()
        assert publisher.session.is_held_back

        worker = await consumer(broker)

        assert await worker.next_bodies(11) == numbered(11)
        await publisher.expect_receipt("r")


# Coming and going -----------------------------------------------------------------------------------------------------


async def test_an_empty_queue_that_nobody_uses_goes_with_its_group_and_comes_back(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        publisher = await broker.client()
        for turn in (b"first", b"second"):
            await publisher.publish(turn, destination=JOBS, receipt="r")
            await publisher.expect_receipt("r")
            one = await consumer(broker)
            await one.acknowledge(await one.next_message())
            collect(broker)
            assert broker.registry.topics, "somebody is attached"
            await one.vanish()
            while broker.registry.topics:
                collect(broker)
                await broker.settle()
            assert not broker.registry.subscriptions
            assert not broker.registry.durable
            broker.check_invariants()
        assert (broker.count("topics"), broker.count("subscriptions"), broker.count("cursors")) == (0, 0, 0)


@pytest.mark.parametrize("is_stored", [True, False])
async def test_an_empty_queue_stays_while_somebody_is_attached_or_it_is_paused(
    store_directory: Path, is_stored: bool
) -> None:
    async with running_broker(**({"store_in": store_directory} if is_stored else {})) as broker:
        one = await consumer(broker)
        await send(broker, b"first")
        await one.acknowledge(await one.next_message())
        (group,) = broker.registry.subscriptions

        async def collect_often() -> None:
            for _ in range(5):
                await (broker.settle() if is_stored else wait_all_tasks_blocked())
                collect(broker)

        await collect_often()
        await send(broker, b"second")
        await one.acknowledge(await one.next_message())
        group.is_paused = True
        await one.vanish()
        await collect_often()
        assert list(broker.registry.subscriptions) == [group]

        group.resume()
        await collect_often()
        assert not broker.registry.topics
        assert not broker.registry.subscriptions


async def test_an_empty_queue_that_an_operator_is_deleting_is_not_removed_twice(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker, trio.open_nursery() as nursery:
        one = await consumer(broker)
        await send(broker, b"first")
        await one.acknowledge(await one.next_message())
        await broker.settle()
        collect(broker)
        await one.vanish()
        await broker.settle()

        with broker.held_store():
            nursery.start_soon(broker.delete_subscription, JOBS)
            await wait_all_tasks_blocked()
            collect(broker)
            assert broker.registry.topics
        while broker.registry.topics:
            await broker.settle()
            collect(broker)
        await broker.settle()

        broker.check_invariants()
        assert (broker.count("topics"), broker.count("subscriptions"), broker.count("cursors")) == (0, 0, 0)


async def test_a_send_right_after_the_removal_is_not_lost(store_directory: Path) -> None:
    """The rows of the old queue are still there, and nothing has told the publisher."""
    async with running_broker(store_in=store_directory) as broker:
        publisher = await broker.client()
        await publisher.publish(b"first", destination=JOBS, receipt="r")
        await publisher.expect_receipt("r")
        one = await consumer(broker)
        await one.acknowledge(await one.next_message())
        await one.vanish()
        await broker.settle()
        while broker.registry.topics:
            collect(broker)
            if broker.registry.topics:
                await broker.settle()

        await publisher.publish(b"second", destination=JOBS, receipt="r")
        await publisher.expect_receipt("r")
    async with running_broker(store_in=store_directory) as broker:
        one = await consumer(broker)
        assert await one.next_bodies(1) == [b"second"]


async def test_a_queue_that_an_operator_deletes_is_made_anew_by_the_next_send(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        publisher = await broker.client()
        await publisher.publish(b"gone", destination=JOBS, receipt="r")
        await publisher.expect_receipt("r")
        await broker.delete_subscription(JOBS)

        await publisher.publish(b"kept", destination=JOBS, receipt="r")
        await publisher.expect_receipt("r")

        one = await consumer(broker)
        assert await one.next_bodies(1) == [b"kept"]


# Failing --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_stored", [True, False])
async def test_dead_letters_of_a_queue_are_a_queue(store_directory: Path, is_stored: bool) -> None:
    async with running_broker(**({"store_in": store_directory} if is_stored else {})) as broker:
        publisher, one = await broker.client(), await consumer(broker)
        await publisher.publish(b"poison", destination=JOBS)
        await one.send("NACK", id=(await one.next_message()).headers["ack"], requeue="false", reason="no")

        reader = await consumer(broker, "/queue/DLQ.jobs")
        letter = await reader.next_message()

        assert (letter.body, letter.headers["destination"]) == (b"poison", "/queue/DLQ.jobs")
        assert letter.headers["dead-letter-destination"] == JOBS
        await reader.acknowledge(letter)
        dead = broker.registry.topics["/queue/DLQ.jobs"]
        assert all(reading.is_idle for reading in dead.readings.values())


async def test_a_dead_letter_of_a_queue_is_listed_and_redriven_to_the_queue(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        one = await consumer(broker)
        await send(broker, b"poison")
        await one.send("NACK", id=(await one.next_message()).headers["ack"], requeue="false", reason="no")
        await one.sync()
        await broker.settle()
        call = broker.parts.control.call
        (listed,) = (await call("dead_letters", {"topic": JOBS}))["letters"]
        assert listed["reason"] == "no"

        assert (await call("redrive_dead_letters", {"topic": JOBS}))["redriven"] == 1

        assert (await one.next_message()).body == b"poison"
        assert (await call("dead_letters", {"topic": JOBS}))["letters"] == []


async def test_a_dead_letter_of_a_queue_expires_when_it_would_not_be_retained(
    autojump_clock: MockClock,
) -> None:
    async with running_broker(dead_letter_retain_s=3600.0) as broker:
        one, publisher = await consumer(broker), await broker.client()
        await publisher.publish(b"poison", destination=JOBS)
        await one.send("NACK", id=(await one.next_message()).headers["ack"], requeue="false")
        await one.sync()
        (letter,) = [message for _, message in broker.registry.topics["/queue/DLQ.jobs"].log]
        assert letter.expires_at_ns is not None
        assert letter.expires_at_ns - letter.published_at_ns == 3600 * NANOSECONDS


# Names and headers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("destination", "words"),
    [
        ("/queue/*", ["wildcard", "a queue has one name"]),
        ("/queue/a.>", ["wildcard"]),
        ("/queue/", ["names no queue", "/queue/NAME"]),
        ("/queue", ["names no queue"]),
        ("queue/x", ["use /queue/NAME"]),
        ("queue://x", ["use /queue/NAME"]),
        ("/queues/x", ["use /queue/NAME"]),
        ("/Queue/x", ["use /queue/NAME"]),
        ("/amq/queue/x", ["use /queue/NAME"]),
        ("jms.queue.x", ["use /queue/NAME"]),
        ("/queue/a,/queue/b", ["several destinations"]),
        ("/queue/" + "a" * 256, ["a queue name may have 255 bytes"]),
    ],
)
@pytest.mark.parametrize("command", ["SEND", "SUBSCRIBE"])
async def test_what_looks_like_a_queue_and_is_none_is_an_error(
    autojump_clock: MockClock, broker: BrokerUnderTest, command: str, destination: str, words: list[str]
) -> None:
    client = await broker.client()

    await client.send(command, id="0", destination=destination)

    await client.expect_error(*words)


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ({"group": "g"}, ["'group' is not for queues"]),
        ({"from": "earliest"}, ["'from' is not for queues"]),
        ({"no_local": "true"}, ["no-local"]),
        ({"selector": "a = 1"}, ["'selector'"]),
        ({"when_used_up": "evict"}, ["'when-used-up' is not for queues", "dead-letter or discard"]),
    ],
)
async def test_what_contradicts_a_queue_is_an_error(
    autojump_clock: MockClock, broker: BrokerUnderTest, headers: dict[str, Any], words: list[str]
) -> None:
    client = await broker.client()

    await client.send("SUBSCRIBE", id="0", destination=JOBS, **headers)

    await client.expect_error(*words)


async def test_a_bare_name_is_a_queue_if_the_operator_says_so(autojump_clock: MockClock) -> None:
    async with running_broker(unprefixed="queue") as broker:
        publisher = await broker.client()
        await publisher.publish(b"x", destination="jobs")
        await publisher.publish(b"y", destination="/topic/jobs")

        one = await consumer(broker, "jobs")

        assert (await one.next_message()).body == b"x"
        assert set(broker.registry.topics) == {"/queue/jobs", "jobs"}


async def test_durable_headers_are_ignored_since_a_queue_is_kept_anyway(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        one = await consumer(broker, durable="true", auto_delete="false")
        await send(broker, b"x")
        assert await one.next_bodies(1) == [b"x"]


# Permissions ----------------------------------------------------------------------------------------------------------


async def test_queues_have_permissions_of_their_own_and_no_owners(tmp_path: Path) -> None:
    users = tmp_path / "users.toml"
    add_user(users, "topics", read=[">"], write=[">"])
    add_user(users, "worker", read=["queue:jobs"])
    add_user(users, "other", read=["queue:>"])
    add_user(users, "shop", write=["queue:jobs"])
    async with running_broker(users_file=str(users)) as broker:

        async def log_in(user: str) -> Client:
            return await broker.client(login=user, passcode=PASSWORD)

        for command, user in (("SUBSCRIBE", "topics"), ("SEND", "topics"), ("SEND", "worker"), ("SUBSCRIBE", "shop")):
            client = await log_in(user)
            await client.send(command, id="0", destination=JOBS)
            await client.expect_error(
                "not allowed", f"to {'read' if command == 'SUBSCRIBE' else 'write'} '/queue/jobs'"
            )
        assert not broker.registry.topics
        shop = await log_in("shop")
        await shop.publish(*numbered(2), destination=JOBS)
        await shop.sync()
        got = []
        for user in ("worker", "other"):
            client = await log_in(user)
            await client.subscribe(JOBS, ack="client-individual", prefetch_count="1")
            got += await client.next_bodies(1)
        assert got == numbered(2)
        client = await log_in("worker")
        await client.send("SUBSCRIBE", id="0", destination="/queue/DLQ.jobs")
        await client.expect_error("not allowed")


# What must not delete one ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("destination", [JOBS, "/topic/jobs"])
async def test_a_durable_unsubscribe_leaves_a_queue_or_group_and_deletes_nothing(
    store_directory: Path, destination: str
) -> None:
    async with running_broker(store_in=store_directory) as broker:
        headers = {} if destination == JOBS else {"group": "workers"}
        one = await consumer(broker, destination, **headers)
        await send(broker, b"kept", destination=destination)
        await one.next_message()

        await one.send("UNSUBSCRIBE", id="0", durable="true", receipt="left")
        await one.expect_receipt("left")

        two = await consumer(broker, destination, **headers)
        assert (await two.next_message()).body == b"kept"


async def test_no_policy_evicts_a_queue(autojump_clock: MockClock) -> None:
    async with running_broker(when_used_up="evict", max_attempts=1) as broker:
        one, publisher = await consumer(broker), await broker.client()
        await publisher.publish(b"poison", b"next", destination=JOBS)
        await one.send("NACK", id=(await one.next_message()).headers["ack"])
        reader = await consumer(broker, "/queue/DLQ.jobs")
        assert (await reader.next_message()).body == b"poison"
        assert (await one.next_message()).body == b"next"


@pytest.mark.parametrize("is_stored", [True, False])
async def test_a_letter_in_a_queue_that_is_refused_for_good_stays_there(store_directory: Path, is_stored: bool) -> None:
    async with running_broker(
        **({"store_in": store_directory} if is_stored else {}), redelivery_max_delay_ms=20, redelivery_first_delay_ms=1
    ) as broker:
        one, publisher = await consumer(broker), await broker.client()
        await publisher.publish(b"poison", destination=JOBS)
        await one.send("NACK", id=(await one.next_message()).headers["ack"], requeue="false")
        reader = await consumer(broker, "/queue/DLQ.jobs")
        for _ in range(3):
            letter = await reader.next_message()
            await reader.send("NACK", id=letter.headers["ack"], requeue="false")
        again = await reader.next_message()
        assert (again.body, again.headers["message-id"]) == (b"poison", letter.headers["message-id"])
        await reader.acknowledge(again)


# In the settings ------------------------------------------------------------------------------------------------------


async def test_a_declared_queue_is_always_there_and_has_its_own_settings(store_directory: Path) -> None:
    queues = [{"name": "jobs", "max_attempts": 1}]
    for _ in range(2):
        async with running_broker(store_in=store_directory, queues=queues) as broker:
            await broker.settle()
            collect(broker)
            assert list(broker.registry.topics) == [JOBS]
            assert [each.key for each in broker.registry.durable.values()] == [JOBS]
            assert broker.registry.topics[JOBS].policy.delivery.max_attempts == 1


@pytest.mark.parametrize("is_stored", [True, False])
async def test_a_queue_holds_no_more_than_it_may_and_takes_more_when_some_are_acknowledged(
    store_directory: Path, is_stored: bool
) -> None:
    queues = [{"name": "jobs", "queue_max_messages": 2}]
    async with running_broker(**({"store_in": store_directory} if is_stored else {}), queues=queues) as broker:
        for body in numbered(2):
            await send(broker, body)
        publisher = await broker.client()
        await publisher.publish(b"too many", destination=JOBS, receipt="r")
        error = await publisher.expect_error("queue is full", "holds 2 messages", "queue_max_messages")
        assert error.headers["receipt-id"] == "r"
        one = await consumer(broker)
        await one.acknowledge(*await one.next_messages(2))
        await send(broker, b"again")
        assert await one.next_bodies(1) == [b"again"]
        await send(broker, *numbered(5), destination="/queue/other")
