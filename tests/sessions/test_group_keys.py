"""Order by key: of the messages with one key, the consumers of a queue or group have one at a time."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, Final

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from stompbroker.delivery import reading, sending, withdrawing
from stompbroker.ids import Offset
from tests.journal.poison import refuse_messages
from tests.support.broker_under_test import running_broker
from tests.support.redelivery import refuse
from tests.support.work import operations

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from trio.testing import MockClock

    from stompbroker.delivery import Reading
    from stompbroker.stomp import Frame
    from tests.support.broker_under_test import BrokerUnderTest, Client

JOBS = "/queue/jobs"


@pytest.fixture
async def broker(autojump_clock: MockClock) -> AsyncIterator[BrokerUnderTest]:
    async with running_broker(redelivery_first_delay_ms=1000) as running:
        yield running


async def consumer(broker: BrokerUnderTest, destination: str = JOBS, **headers: Any) -> Client:
    return await broker.subscriber(destination, **{"ack": "client-individual", **headers})


async def send(broker: BrokerUnderTest, *bodies: str, destination: str = JOBS, **headers: str) -> None:
    """Each body begins with its key: `a1` is the first message of the key `a`; `-1` has none."""
    publisher = await broker.client()
    frames = []
    for body in bodies:
        key = {} if body[0] == "-" else {"group_key": body[0]}
        frames.append(publisher.frame("SEND", body.encode(), destination=destination, **key, **headers))
    await publisher.send_raw(b"".join(frames))
    await publisher.sync()
    await publisher.vanish()


async def bodies_of(client: Client) -> list[str]:
    """All that have come by now."""
    return [message.body.decode() for message in await messages_of(client)]


async def messages_of(client: Client) -> list[Frame]:
    await wait_all_tasks_blocked()
    found = []
    while await client.has_more():
        found.append(await client.next_message())
    return found


async def ack(client: Client, message: Frame) -> None:
    await client.send("ACK", id=message.headers["ack"])


async def leave(client: Client) -> None:
    await client.send("DISCONNECT", receipt="bye")
    await client.expect_receipt("bye")


def reading_of(broker: BrokerUnderTest, key: str = JOBS) -> Reading:
    (reading,) = broker.registry.topics[key].readings.values()
    return reading


def held_up(broker: BrokerUnderTest) -> int:
    return reading_of(broker).cursor.held_up_count


# In order -------------------------------------------------------------------------------------------------------------


async def test_one_message_of_a_key_is_in_flight_and_other_keys_flow(
    autojump_clock: MockClock, broker: BrokerUnderTest
) -> None:
    one = await consumer(broker)

    await send(broker, "a1", "a2", "b1", "-1", "a3", "b2", "-2")

    first = await messages_of(one)
    assert [each.body for each in first] == [b"a1", b"b1", b"-1", b"-2"]
    await ack(one, first[0])
    (second,) = await messages_of(one)
    assert second.body == b"a2"
    await ack(one, first[1])
    assert await bodies_of(one) == ["b2"]
    await ack(one, second)
    assert await bodies_of(one) == ["a3"]
    broker.check_invariants()


async def test_any_member_may_get_the_next_of_a_key(autojump_clock: MockClock, broker: BrokerUnderTest) -> None:
    one, two = await consumer(broker), await consumer(broker)
    await send(broker, "a1", "b1", "a2")
    await send(broker, "-1")
    first, other = await messages_of(one)
    assert [first.body, other.body] == [b"a1", b"-1"]

    await ack(one, first)

    assert await bodies_of(two) == ["b1", "a2"]


async def test_members_share_what_they_can_take_now(autojump_clock: MockClock, broker: BrokerUnderTest) -> None:
    one, two = await consumer(broker), await consumer(broker)

    await send(broker, *(f"{key}{number}" for key in "abcdefgh" for number in range(20)))

    assert [len(await bodies_of(one)), len(await bodies_of(two))] == [4, 4]


async def test_the_order_holds_in_auto_mode(autojump_clock: MockClock, broker: BrokerUnderTest) -> None:
    one = await consumer(broker, ack="auto")

    await send(broker, *(f"a{number}" for number in range(20)))

    assert await bodies_of(one) == [f"a{number}" for number in range(20)]
    assert reading_of(broker).lines is None


async def test_a_group_on_topics_heeds_keys_in_each_topic(autojump_clock: MockClock, broker: BrokerUnderTest) -> None:
    member = await consumer(broker, "/topic/jobs.*", group="workers", auto_delete="true")

    await send(broker, "a1", "a2", destination="/topic/jobs.x")
    await send(broker, "a3", "a4", destination="/topic/jobs.y")

    assert sorted(await bodies_of(member)) == ["a1", "a3"]


async def test_one_consumer_alone_has_an_order_of_its_own(autojump_clock: MockClock, broker: BrokerUnderTest) -> None:
    plain = await consumer(broker, "/topic/jobs")
    exclusive = await consumer(broker, "/topic/jobs", group="workers", auto_delete="true", exclusive="true")

    await send(broker, "a1", "a2", destination="/topic/jobs")

    assert await bodies_of(plain) == await bodies_of(exclusive) == ["a1", "a2"]


async def test_an_exclusive_group_hands_over_in_order(autojump_clock: MockClock, broker: BrokerUnderTest) -> None:
    one, two = await consumer(broker, exclusive="true"), await consumer(broker, exclusive="true")
    await send(broker, "a1", "b1", "a2", "a3")
    first, *_ = await messages_of(one)
    await ack(one, first)

    await one.vanish()

    assert await bodies_of(two) == ["b1", "a2", "a3"]


# The header -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["group-key", "JMSXGroupID", "message_group"])
async def test_the_headers_of_others_mean_the_same_and_arrive_as_they_were_written(
    autojump_clock: MockClock, broker: BrokerUnderTest, name: str
) -> None:
    one, publisher = await consumer(broker), await broker.client()

    for number in range(2):
        frame = f"SEND\ndestination:{JOBS}\n{name}:order 7\n\n{number}\0"
        await publisher.send_raw(frame.encode())

    (first,) = await messages_of(one)
    assert first.headers[name] == "order 7"
    await ack(one, first)
    assert await bodies_of(one) == ["1"]


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ("group-key:", "empty header 'group-key'"),
        ("JMSXGroupID:" + "x" * 256, "header 'JMSXGroupID' too long"),
        ("group-key:" + "é" * 128, "255 bytes are allowed; it has 256"),
        ("group-key:a\nJMSXGroupID:b", "contradicting headers"),
        ("message_group:a\nJMSXGroupID:b", "JMSXGroupID:b and message_group:a"),
    ],
)
async def test_a_key_that_cannot_be_is_an_error(
    autojump_clock: MockClock, broker: BrokerUnderTest, headers: str, said: str
) -> None:
    publisher = await broker.client()

    await publisher.send_raw(f"SEND\ndestination:{JOBS}\n{headers}\n\nx\0".encode())

    await publisher.expect_error(said)


async def test_headers_that_say_the_same_agree(autojump_clock: MockClock, broker: BrokerUnderTest) -> None:
    one, publisher = await consumer(broker), await broker.client()
    key = "x" * 255

    await publisher.publish(b"1", b"2", destination=JOBS, group_key=key, JMSXGroupID=key)

    assert await bodies_of(one) == ["1"]


# Failures -------------------------------------------------------------------------------------------------------------


async def test_what_failed_holds_up_its_key_and_no_other(autojump_clock: MockClock, broker: BrokerUnderTest) -> None:
    one = await consumer(broker)
    await send(broker, "a1", "b1", "a2", "b2")
    a1, b1 = await messages_of(one)

    await one.send("NACK", id=a1.headers["ack"])
    await ack(one, b1)
    assert await bodies_of(one) == ["b2"]
    await trio.sleep(2)

    (again,) = await messages_of(one)
    assert (again.body, again.headers["redelivered"]) == (b"a1", "true")
    await ack(one, again)
    (next_one,) = await messages_of(one)
    assert (next_one.body, next_one.headers["redelivered"]) == (b"a2", "false")


async def test_what_a_lost_member_had_goes_first(autojump_clock: MockClock, broker: BrokerUnderTest) -> None:
    one = await consumer(broker)
    await send(broker, "a1", "b1", "a2", "b2")
    await messages_of(one)
    two = await consumer(broker, prefetch_count="2")

    await one.vanish()

    first = await messages_of(two)
    assert [(each.body, each.headers["redelivered"]) for each in first] == [(b"a1", "true"), (b"b1", "true")]
    await ack(two, first[1])
    (b2,) = await messages_of(two)
    assert (b2.body, b2.headers["redelivered"]) == (b"b2", "false")


@pytest.mark.parametrize("when_used_up", ["dead-letter", "discard"])
async def test_the_next_of_a_key_goes_when_one_is_dead(
    autojump_clock: MockClock, broker: BrokerUnderTest, when_used_up: str
) -> None:
    one = await consumer(broker, when_used_up=when_used_up)
    await send(broker, "a1", "a2", "a3")

    for body in (b"a1", b"a2"):
        (message,) = await messages_of(one)
        assert message.body == body
        await refuse(broker, one, message, requeue="false")

    assert await bodies_of(one) == ["a3"]


async def test_letters_in_a_queue_keep_their_key(autojump_clock: MockClock, broker: BrokerUnderTest) -> None:
    one = await consumer(broker)
    await send(broker, "a1", "a2", "b1")
    while messages := await messages_of(one):
        for message in messages:
            await one.send("NACK", id=message.headers["ack"], requeue="false")

    letters = await consumer(broker, "/queue/DLQ.jobs")

    first, other = await messages_of(letters)
    assert [first.body, other.body] == [b"a1", b"b1"]
    assert first.headers["group-key"] == "a"
    await ack(letters, first)
    assert await bodies_of(letters) == ["a2"]


async def test_a_redriven_message_goes_behind_those_of_its_key(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        one = await consumer(broker)
        await send(broker, "a1", "a2", "a3")
        await one.send("NACK", id=(await one.next_message()).headers["ack"], requeue="false")
        message = await one.next_message()
        await broker.settle()
        await broker.parts.control.call("redrive_dead_letters", {"topic": "/queue/DLQ.jobs"})
        await broker.settle()

        order = [message.body]
        for _ in range(2):
            await ack(one, message)
            message = await one.next_message()
            order.append(message.body)

        assert order == [b"a2", b"a3", b"a1"]
        await broker.expect_silence(one)


# Transactions ---------------------------------------------------------------------------------------------------------


async def test_the_next_of_a_key_waits_until_a_commit_is_stored(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        one = await consumer(broker)
        await send(broker, "a1", "a2")
        (a1,) = await one.next_messages(1)
        await one.send("BEGIN", transaction="t")
        await one.send("ACK", id=a1.headers["ack"], transaction="t")
        with broker.held_store():
            await one.send("COMMIT", transaction="t")
            await wait_all_tasks_blocked()
            assert reading_of(broker).cursor.pending_count == 1
            assert held_up(broker) == 1

        assert await one.next_bodies(1) == [b"a2"]


async def test_what_is_held_up_stays_so_over_a_kill_after_a_commit(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        one = await consumer(broker)
        await send(broker, "a1", "b1", "a2", "a3")
        _, b1 = await one.next_messages(2)
        await broker.settle()
        await one.send("BEGIN", transaction="t")
        await one.send("ACK", id=b1.headers["ack"], transaction="t")
        await one.send("COMMIT", transaction="t", receipt="stored")
        await one.expect_receipt("stored")
        broker.kill()
    async with running_broker(store_in=store_directory) as broker:
        assert (held_up(broker), reading_of(broker).cursor.free_count) == (2, 1)
        one = await consumer(broker)
        message, order = await one.next_message(), []
        for _ in range(2):
            order.append((message.body, message.headers["redelivered"]))
            await ack(one, message)
            message = await one.next_message()
        assert order == [(b"a1", "true"), (b"a2", "false")]
        assert (message.body, message.headers["redelivered"]) == (b"a3", "false")


async def test_the_next_of_a_key_waits_if_the_store_refuses_a_commit(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        refuse_messages(store_directory)
        one, two = await consumer(broker, prefetch_count="1"), await consumer(broker)
        await send(broker, "a1", "a2")
        (a1,) = await one.next_messages(1)
        await one.send("BEGIN", transaction="t")
        await one.send("ACK", id=a1.headers["ack"], transaction="t")
        await one.send("SEND", b"poison", destination="/queue/other", transaction="t")
        await one.send("COMMIT", transaction="t")
        await one.expect_error("cannot be stored")

        again = await two.next_message()
        assert (again.body, again.headers["redelivered"]) == (b"a1", "true")
        await broker.expect_silence(two)
        await ack(two, again)
        assert await two.next_bodies(1) == [b"a2"]


# What nobody is to get ------------------------------------------------------------------------------------------------


async def test_what_expires_while_it_is_held_up_is_never_sent(
    autojump_clock: MockClock, broker: BrokerUnderTest
) -> None:
    one = await consumer(broker)
    await send(broker, "a1")
    await send(broker, "a2", ttl="1000")
    await send(broker, "a3")
    (a1,) = await messages_of(one)
    await trio.sleep(2)

    await ack(one, a1)

    assert await bodies_of(one) == ["a3"]
    (group,) = broker.registry.subscriptions
    assert group.counters.expired == 1


async def test_what_expires_makes_way_for_the_next_of_its_key(
    autojump_clock: MockClock, broker: BrokerUnderTest
) -> None:
    one = await consumer(broker, redelivery_delay="5000")
    await send(broker, "a1", ttl="1000")
    await send(broker, "a2")
    (a1,) = await messages_of(one)

    await refuse(broker, one, a1)
    await trio.sleep(6)

    assert await bodies_of(one) == ["a2"]


async def test_what_is_purged_while_it_is_held_up_is_never_sent(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        one = await consumer(broker)
        await send(broker, "a1", "a2", "a3", "a4")
        (a1,) = await one.next_messages(1)
        await broker.settle()
        topic, now_ns = broker.registry.topics[JOBS], broker.clock.now_ns()
        for offset in (Offset(1), Offset(2)):
            message = topic.log.get(offset)
            assert message is not None
            withdrawing.purge(topic, {offset: message}, now_ns)
            broker.check_invariants()

        await ack(one, a1)
        assert await one.next_bodies(1) == [b"a4"]


async def test_a_group_that_is_moved_begins_anew(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory, retain_messages=100) as broker:
        one = await consumer(broker, "/topic/jobs", group="workers")
        await send(broker, "a1", "a2", "a3", destination="/topic/jobs")
        await one.next_messages(1)
        await broker.settle()
        (group,) = broker.registry.durable.values()

        await broker.parts.control.call("move_subscription", {"id": group.public_id, "to": "offset=1"})

        one = await consumer(broker, "/topic/jobs", group="workers")
        message = await one.next_message()
        assert (message.body, message.headers["redelivered"]) == (b"a2", "false")
        await ack(one, message)
        assert await one.next_bodies(1) == [b"a3"]


# Restarts -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_killed", [True, False])
async def test_after_a_restart_the_order_holds_and_only_what_was_sent_is_redelivered(
    store_directory: Path, is_killed: bool
) -> None:
    async with running_broker(store_in=store_directory) as broker:
        one = await consumer(broker)
        await send(broker, "a1", "b1", "a2", "c1", "b2", "a3")
        first = await one.next_messages(3)
        await one.acknowledge(first[2])  # so that the cursor is written
        await broker.settle()
        if is_killed:
            broker.kill()
    async with running_broker(store_in=store_directory) as broker:
        assert held_up(broker) == 3
        await send(broker, "a4", "d1")
        one = await consumer(broker)

        got = [await one.next_message() for _ in range(3)]
        assert [(each.body, each.headers["redelivered"]) for each in got] == [
            (b"a1", "true"),
            (b"b1", "true"),
            (b"d1", "false"),
        ]
        await broker.expect_silence(one)
        broker.check_invariants()
        order = []
        for message in got:
            while True:
                await ack(one, message)
                rest = await broker.rest_for(one)
                if not rest:
                    break
                (message,) = rest
                assert message.headers["redelivered"] == "false"
                order.append(message.body)
        assert order == [b"a2", b"a3", b"a4", b"b2"]
        assert reading_of(broker).lines is None


async def test_what_failed_holds_up_its_key_after_a_restart_too(store_directory: Path, mock_clock: MockClock) -> None:
    headers = {"redelivery_delay": "3600000", "redelivery_max_delay": "3600000"}
    async with running_broker(store_in=store_directory) as broker:
        one = await consumer(broker, **headers)
        await send(broker, "a1", "a2", "b1")
        a1, _ = await one.next_messages(2)
        await one.send("NACK", id=a1.headers["ack"], receipt="refused")
        await one.expect_receipt("refused")
    async with running_broker(store_in=store_directory) as broker:
        one = await consumer(broker, **headers)
        await send(broker, "a3", "c1")

        assert await one.next_bodies(2) == [b"b1", b"c1"]
        await broker.expect_silence(one)
        mock_clock.jump(3600)
        again = await one.next_message()
        assert (again.body, again.headers["delivery-count"]) == (b"a1", "2")
        await ack(one, again)
        assert await one.next_bodies(1) == [b"a2"]


async def test_what_was_read_ahead_and_left_memory_is_read_back(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory, window_messages=20) as broker:
        one = await consumer(broker, prefetch_count="5")
        await send(broker, *(f"a{number}" for number in range(100)), "b0")
        await broker.settle()
        got = await one.next_messages(2)
        assert [each.body for each in got] == [b"a0", b"b0"]
        await broker.settle()
        assert broker.registry.topics[JOBS].log.message_count < 50

        message, order = got[0], [got[0].body]
        for _ in range(99):
            await ack(one, message)
            message = await one.next_message()
            order.append(message.body)

        assert order == [b"a%d" % number for number in range(100)]


# Bounds ---------------------------------------------------------------------------------------------------------------


async def test_not_more_is_held_up_than_the_bound_and_all_of_it_goes_at_last(
    autojump_clock: MockClock, broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MAX_HELD_UP", 5)
    one = await consumer(broker)

    await send(broker, *(f"a{number}" for number in range(10)), "b0")

    order = []
    got = await messages_of(one)
    assert [each.body for each in got] == [b"a0"]
    assert held_up(broker) == 5
    while got:
        broker.check_invariants()
        assert held_up(broker) <= 5
        order += [each.body.decode() for each in got]
        for message in got:
            await ack(one, message)
        got = await messages_of(one)
    assert [body for body in order if body != "b0"] == [f"a{number}" for number in range(10)]
    assert "b0" in order


async def test_what_only_memory_has_is_held_up_as_far_as_a_window_and_then_publishers_wait(
    autojump_clock: MockClock,
) -> None:
    async with running_broker(window_messages=10, block_timeout_s=5.0) as broker:
        one = await consumer(broker)
        publisher = await broker.client()
        for number in range(60):
            await publisher.publish(b"%d" % number, destination=JOBS, group_key="a")

        await publisher.expect_error("full")

        order = []
        while got := await messages_of(one):
            order += [int(each.body) for each in got]
            await ack(one, got[0])
        assert order == list(range(len(order)))
        assert 20 <= len(order) <= 35


@pytest.mark.parametrize("is_stored", [True, False])
async def test_what_no_store_has_is_kept_while_it_is_held_up(store_directory: Path, is_stored: bool) -> None:
    store = {"store_in": store_directory} if is_stored else {}
    async with running_broker(window_messages=50, **store) as broker:
        one = await consumer(broker)
        await send(broker, *(f"a{number}" for number in range(40)), persistent="false")
        broker.registry.topics[JOBS].window.trim(only_unsent=True)

        message, order = await one.next_message(), []
        for _ in range(39):
            order.append(message.body)
            await ack(one, message)
            message = await one.next_message()

        assert order == [b"a%d" % number for number in range(39)]
        assert message.body == b"a39"
        await ack(one, message)
        await one.sync()


# Other kinds of subscriptions -----------------------------------------------------------------------------------------


async def test_a_subscription_that_becomes_shared_learns_its_keys_and_forgets_them_again(
    store_directory: Path, mock_clock: MockClock
) -> None:
    async with running_broker(store_in=store_directory) as broker:
        one = await broker.durable_subscriber("/topic/jobs")
        await send(broker, "a1", "a2", "a3", "b1", destination="/topic/jobs")
        got = await one.next_messages(4)
        await one.send("NACK", id=got[1].headers["ack"], delay="60000")
        await leave(one)

        one = await broker.durable_subscriber("/topic/jobs", shared="true")
        first = await broker.rest_for(one)
        assert [each.body for each in first] == [b"a1", b"b1"]
        await ack(one, first[0])
        assert not await broker.rest_for(one)
        mock_clock.jump(60)
        second = await one.next_message()
        assert (second.body, second.headers["redelivered"], second.headers["delivery-count"]) == (b"a2", "true", "2")
        broker.check_invariants()
        await leave(one)

        one = await broker.durable_subscriber("/topic/jobs")
        assert [each.body for each in await broker.rest_for(one)] == [b"a2", b"a3", b"b1"]
        broker.check_invariants()


# Seen -----------------------------------------------------------------------------------------------------------------


async def test_what_is_held_up_is_seen(autojump_clock: MockClock, broker: BrokerUnderTest) -> None:
    await consumer(broker)
    await send(broker, "a1", "a2", "a3", "b1", "b2", "c1")
    await wait_all_tasks_blocked()
    ask = broker.parts.control.call

    (one,) = (await ask("subscriptions", {}))["subscriptions"]
    details = await ask("subscription", {"id": one["id"]})
    (explained,) = (await ask("explain_collection", {"topic": JOBS}))["topics"]

    assert (one["held_up"], one["keys_held_up"], one["in_flight"], one["backlog"]) == (3, 2, 3, 3)
    assert details["topics"][0]["held_up"] == 3
    states = [each["state"] for each in details["unsettled"]]
    assert states == ["in flight", "held up", "held up", "in flight", "held up", "in flight"]
    assert explained["pinned_by"][0]["held_up"] == 3
    assert "3 of them wait behind another of the same key" in explained["why"]


# Many ----------------------------------------------------------------------------------------------------------------

KEYS: Final = 1000
MESSAGES_OF_A_KEY: Final = 3
MEMBERS: Final = 8


@pytest.mark.parametrize("headers", [{"destination": JOBS}, {"destination": "/topic/jobs", "group": "g"}], ids=str)
async def test_a_thousand_keys_keep_their_order_among_members_that_refuse_and_are_lost(
    autojump_clock: MockClock, headers: dict[str, str]
) -> None:
    """Of each key only the next message may come, and only to one member; what that is follows from the ACKs."""
    random = Random(18)
    transient = {"auto_delete": "true"} if "group" in headers else {}
    async with running_broker(redelivery_first_delay_ms=1000, max_attempts=0) as broker:
        members = [await consumer(broker, prefetch_count="40", **headers, **transient) for _ in range(MEMBERS)]
        publisher = await broker.client()
        for number in range(MESSAGES_OF_A_KEY):
            for key in random.sample(range(KEYS), KEYS):
                body = f"{key}:{number}".encode()
                publisher.session.receive(
                    publisher.frame("SEND", body, destination=headers["destination"], group_key=str(key))
                )
        acknowledged = dict.fromkeys(range(KEYS), 0)
        held: dict[int, Client] = {}
        refused = lost = 0
        while sum(acknowledged.values()) < KEYS * MESSAGES_OF_A_KEY:
            autojump_clock.jump(0.1)
            at = random.randrange(MEMBERS)
            member, answers = members[at], []
            for message in await messages_of(member):
                key, number = map(int, message.body.split(b":"))
                assert key not in held, "it is with two members"
                assert number == acknowledged[key], "it is not the next one"
                held[key] = member
                chance = random.random()
                if chance < 0.8:
                    answers.append(member.frame("ACK", id=message.headers["ack"]))
                    acknowledged[key] += 1
                    del held[key]
                elif chance < 0.9:
                    answers.append(member.frame("NACK", id=message.headers["ack"]))
                    refused += 1
                    del held[key]
            await member.send_raw(b"".join(answers))
            if random.random() < 0.1:
                await wait_all_tasks_blocked()
                await member.vanish()
                held = {key: holder for key, holder in held.items() if holder is not member}
                members[at] = await consumer(broker, prefetch_count="40", **headers, **transient)
                lost += 1

        assert (refused > 100, lost > 10, held) == (True, True, {})
        broker.check_invariants()


# The cost -------------------------------------------------------------------------------------------------------------


async def test_a_queue_without_keys_costs_as_little_as_before(
    autojump_clock: MockClock, broker: BrokerUnderTest
) -> None:
    """From the log to the outbox, and from ACKs to the cursor: nothing per message but the number of its delivery."""
    one = await consumer(broker, prefetch_count="1000")
    publisher = await broker.client()
    publisher.session.receive(publisher.frame("SEND", b"x" * 256, destination=JOBS) * 512)
    (group,) = broker.registry.subscriptions
    (member,) = group.consumers

    sent = operations(lambda: sending.deliver_slice(member, 0))
    messages = await one.next_messages(512)
    acks = b"".join(one.frame("ACK", id=message.headers["ack"]) for message in messages)
    acknowledged = operations(lambda: one.session.receive(acks))

    assert group.counters.acked == 512
    assert sent < 2 * 512 + 100
    assert acknowledged < 150


async def test_a_message_with_a_key_costs_few_operations(autojump_clock: MockClock, broker: BrokerUnderTest) -> None:
    """Also with thousands of them held up before it."""
    one = await consumer(broker, prefetch_count="1000")
    publisher = await broker.client()
    for _ in range(4):
        publisher.session.receive(publisher.frame("SEND", b"x", destination=JOBS, group_key="hot") * 500)
    await messages_of(one)
    frames = [publisher.frame("SEND", b"x", destination=JOBS, group_key=f"k{number}") for number in range(256)]
    publisher.session.receive(b"".join(frames))
    (group,) = broker.registry.subscriptions
    (member,) = group.consumers
    assert held_up(broker) == 1999

    sent = operations(lambda: sending.deliver_slice(member, 0))
    messages = await one.next_messages(256)
    acks = b"".join(one.frame("ACK", id=message.headers["ack"]) for message in messages)
    acknowledged = operations(lambda: one.session.receive(acks))

    assert group.counters.acked == 256
    assert sent / 256 < 10
    assert acknowledged / 256 < 5
