"""Groups: several consumers on one subscription, and each message goes to one of them."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from stompbroker.stomp import Version
from tests.support.broker_under_test import running_broker
from tests.support.work import operations

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from trio.testing import MockClock

    from tests.support.broker_under_test import BrokerUnderTest, Client

TRANSIENT = {"group": "workers", "auto_delete": "true"}
DURABLE = {"group": "workers"}


@pytest.fixture
async def broker(autojump_clock: MockClock) -> AsyncIterator[BrokerUnderTest]:
    async with running_broker(redelivery_first_delay_ms=10) as running:
        yield running


async def member(broker: BrokerUnderTest, destination: str = "/topic/jobs", **headers: Any) -> Client:
    """Of a group that ends with its last member, unless told otherwise."""
    headers = {"ack": "client-individual", **(headers if "group" in headers else {**TRANSIENT, **headers})}
    return await broker.subscriber(destination, **headers)


async def publish(broker: BrokerUnderTest, *bodies: bytes, destination: str = "/topic/jobs") -> None:
    publisher = await broker.client()
    await publisher.publish(*bodies, destination=destination)
    await publisher.sync()
    await publisher.vanish()


async def bodies_of(client: Client) -> list[bytes]:
    """All that have come by now."""
    await wait_all_tasks_blocked()
    found = []
    while await client.has_more():
        found.append((await client.next_message()).body)
    return found


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


# Each message to one --------------------------------------------------------------------------------------------------


async def test_each_message_goes_to_one_member_and_to_every_other_subscription(
    autojump_clock: MockClock, broker: BrokerUnderTest
) -> None:
    members = [await member(broker) for _ in range(3)]
    others = [await broker.subscriber("/topic/jobs"), await member(broker, group="others", auto_delete="true")]

    await publish(broker, *numbered(30))

    got = [await bodies_of(each) for each in members]
    assert sorted(chain.from_iterable(got), key=int) == numbered(30)
    assert [len(each) for each in got] == [10, 10, 10]
    for other in others:
        assert await bodies_of(other) == numbered(30)


async def test_lone_messages_go_round(autojump_clock: MockClock, broker: BrokerUnderTest) -> None:
    members = [await member(broker) for _ in range(3)]

    for body in numbered(6):
        await publish(broker, body)

    assert [await bodies_of(each) for each in members] == [[b"0", b"3"], [b"1", b"4"], [b"2", b"5"]]


async def test_a_lone_message_wakes_one_member(autojump_clock: MockClock, broker: BrokerUnderTest) -> None:
    for _ in range(8):
        await member(broker)
    before = broker.registry.ready.wake_ups

    await publish(broker, b"x")
    await wait_all_tasks_blocked()

    assert broker.registry.ready.wake_ups - before <= 1


async def test_a_group_may_read_a_pattern(autojump_clock: MockClock, broker: BrokerUnderTest) -> None:
    members = [await member(broker, "/topic/jobs.>") for _ in range(2)]

    for number in range(4):
        await publish(broker, b"%d" % number, destination=f"/topic/jobs.{number}")

    got = [await bodies_of(each) for each in members]
    assert sorted(chain.from_iterable(got), key=int) == numbered(4)
    assert all(got)


async def test_joining_costs_the_same_however_many_topics_have_something_to_send(broker: BrokerUnderTest) -> None:
    await member(broker, "/topic/jobs.>", prefetch_count="1")
    publisher = await broker.client()

    async def joined_with(topics: int) -> int:
        for number in range(topics):
            await publisher.publish(b"x", destination=f"/topic/jobs.{number}")
        await publisher.sync()
        newcomer = await broker.client()
        frame = newcomer.frame("SUBSCRIBE", id="0", destination="/topic/jobs.>", **TRANSIENT)
        return operations(lambda: newcomer.session.receive(frame))

    with_few = await joined_with(3)
    await publisher.sync()

    assert await joined_with(500) <= with_few + 50


async def test_a_member_holds_no_more_than_its_prefetch_and_others_get_the_rest(
    autojump_clock: MockClock, broker: BrokerUnderTest
) -> None:
    hoarder, worker = await member(broker, prefetch_count="5"), await member(broker)

    await publish(broker, *numbered(50))
    taken = 0
    while await worker.has_more():
        await worker.send("ACK", id=(await worker.next_message()).headers["ack"])
        taken += 1

    assert len(await bodies_of(hoarder)) == 5
    assert taken == 45


@pytest.mark.parametrize("ack", ["auto", "client", "client-individual"])
async def test_the_default_prefetch_of_a_member_is_small_in_every_mode(
    autojump_clock: MockClock, broker: BrokerUnderTest, ack: str
) -> None:
    client = await member(broker, ack=ack)

    assert client.session.commands.consumers is not None
    (consumer,) = client.session.commands.consumers
    assert consumer.free_credit == 100


async def test_members_may_have_different_ack_modes_and_versions(
    autojump_clock: MockClock, broker: BrokerUnderTest
) -> None:
    one = await member(broker, ack="client")
    two = await member(broker, ack="auto", version=Version.V1_0)
    three = await member(broker, ack="client-individual", version=Version.V1_1)

    await publish(broker, *numbered(30))
    messages = [await one.next_messages(10), await two.next_messages(10), await three.next_messages(10)]
    await one.send("ACK", id=messages[0][-1].headers["ack"])
    for message in messages[2]:
        await three.send("ACK", message_id=message.headers["message-id"], subscription="0")
    await wait_all_tasks_blocked()

    (group,) = broker.registry.transient_groups.values()
    assert (group.counters.acked, group.in_flight) == (30, 0)


async def test_client_mode_is_cumulative_over_what_this_member_was_sent(
    autojump_clock: MockClock, broker: BrokerUnderTest
) -> None:
    one, two = await member(broker, ack="client"), await member(broker, ack="client")
    for body in numbered(6):
        await publish(broker, body)
    mine, theirs = await one.next_messages(3), await two.next_messages(3)

    await one.send("ACK", id=mine[1].headers["ack"])
    await wait_all_tasks_blocked()

    (group,) = broker.registry.transient_groups.values()
    (reading,) = group.readings.values()
    assert (mine[2].body, [each.body for each in theirs]) == (b"4", [b"1", b"3", b"5"])
    assert reading.cursor.in_flight_ranges() == [(1, 2), (3, 6)]
    await two.vanish()
    assert sorted(await bodies_of(one)) == [b"1", b"3", b"5"]


# Coming, going, failing -----------------------------------------------------------------------------------------------


async def test_what_a_member_leaves_behind_goes_to_others_at_once_and_nothing_else(
    autojump_clock: MockClock, broker: BrokerUnderTest
) -> None:
    one, two = await member(broker), await member(broker)
    await publish(broker, *numbered(4))
    mine, theirs = await one.next_messages(2), await two.next_messages(2)

    await one.vanish()

    again = await two.next_messages(2)
    assert [each.body for each in again] == [each.body for each in mine]
    assert all(each.headers["redelivered"] == "true" for each in again)
    await two.acknowledge(*theirs, *again)
    (group,) = broker.registry.transient_groups.values()
    assert group.unsettled == 0


async def test_a_failed_message_goes_to_another_member_if_there_is_one(
    autojump_clock: MockClock, broker: BrokerUnderTest
) -> None:
    members = {0: await member(broker), 1: await member(broker)}
    await publish(broker, b"x")
    holder = 0 if await members[0].has_more() else 1
    for _ in range(4):
        message = await members[holder].next_message()
        await members[holder].send("NACK", id=message.headers["ack"])
        holder = 1 - holder

    alone = members[holder]
    message = await alone.next_message()
    await members[1 - holder].vanish()
    await alone.send("NACK", id=message.headers["ack"])
    assert (await alone.next_message()).body == b"x"


async def test_what_only_one_can_take_is_not_left_to_those_without_credit(
    autojump_clock: MockClock, broker: BrokerUnderTest
) -> None:
    busy, worker = await member(broker, prefetch_count="1"), await member(broker, prefetch_count="10")
    await publish(broker, b"0", b"1")
    await busy.next_message()
    message = await worker.next_message()

    await worker.send("NACK", id=message.headers["ack"])

    assert (await worker.next_message()).body == message.body


async def test_a_stale_answer_of_one_member_does_not_touch_what_another_has(
    autojump_clock: MockClock, broker: BrokerUnderTest
) -> None:
    one, two = await member(broker), await member(broker)
    await publish(broker, b"x")
    first, second = (one, two) if await one.has_more() else (two, one)
    message = await first.next_message()
    await first.send("NACK", id=message.headers["ack"])
    again = await second.next_message()

    await first.send("NACK", id=message.headers["ack"])
    await first.sync()

    (group,) = broker.registry.transient_groups.values()
    assert (group.in_flight, group.waiting) == (1, 0)
    await second.acknowledge(again)


async def test_a_group_ends_with_its_last_member_if_it_was_asked_to(
    autojump_clock: MockClock, broker: BrokerUnderTest
) -> None:
    one, two = await member(broker), await member(broker)
    await one.vanish()
    assert broker.registry.transient_groups
    await publish(broker, b"for two")
    assert await bodies_of(two) == [b"for two"]

    await two.send("UNSUBSCRIBE", id="0", receipt="gone")
    await two.expect_receipt("gone")

    assert not broker.registry.transient_groups
    assert not broker.registry.subscriptions


async def test_one_connection_may_be_several_members(autojump_clock: MockClock, broker: BrokerUnderTest) -> None:
    client = await member(broker)
    await client.subscribe("/topic/jobs", id="1", ack="client-individual", **TRANSIENT)

    await publish(broker, *numbered(4))

    messages = await client.next_messages(4)
    assert sorted(each.headers["subscription"] for each in messages) == ["0", "0", "1", "1"]
    assert sorted(each.body for each in messages) == numbered(4)


# Nobody is forgotten --------------------------------------------------------------------------------------------------


async def test_two_messages_of_two_topics_go_to_two_members_that_take_one_each(
    autojump_clock: MockClock, broker: BrokerUnderTest
) -> None:
    """Both are there before anybody is sent anything."""
    members = [await member(broker, "/topic/jobs.>", prefetch_count="1") for _ in range(2)]
    publisher = await broker.client()

    both = [publisher.frame("SEND", body, destination=f"/topic/jobs.{body.decode()}") for body in numbered(2)]
    await publisher.send_raw(b"".join(both))

    assert sorted([*await bodies_of(members[0]), *await bodies_of(members[1])]) == numbered(2)


async def test_two_members_take_what_the_other_has_failed_with_in_two_topics(
    autojump_clock: MockClock, broker: BrokerUnderTest
) -> None:
    """Both become due at once: each member is offered its own first, and leaves it to the other."""
    members = [await member(broker, "/topic/jobs.>") for _ in range(2)]
    for number in range(2):
        await publish(broker, b"%d" % number, destination=f"/topic/jobs.{number}")
    failed = [await each.next_message() for each in members]

    for each, message in zip(members, failed, strict=True):
        await each.send("NACK", id=message.headers["ack"])

    again = [await each.next_message() for each in members]
    assert [each.body for each in again] == [each.body for each in reversed(failed)]


# One active member ----------------------------------------------------------------------------------------------------


async def test_exclusive_means_one_active_member_and_the_next_takes_over_in_order(
    autojump_clock: MockClock, broker: BrokerUnderTest
) -> None:
    members = [await member(broker, exclusive="true", prefetch_count="2") for _ in range(3)]
    await publish(broker, *numbered(6))

    first = await members[0].next_messages(2)
    await members[1].expect_nothing()
    await members[0].acknowledge(first[0])
    assert (await members[0].next_message()).body == b"2"
    await members[0].vanish()

    taken_over = await members[1].next_messages(2)
    assert [each.body for each in taken_over] == [b"1", b"2"]
    await members[2].expect_nothing()
    await members[1].acknowledge(*taken_over)
    assert [each.body for each in await members[1].next_messages(2)] == [b"3", b"4"]


async def test_a_member_that_stands_by_takes_over_also_if_the_active_one_had_nothing(
    autojump_clock: MockClock, broker: BrokerUnderTest
) -> None:
    active, next_one = await member(broker, exclusive="true"), await member(broker, exclusive="true")

    await active.vanish()
    await publish(broker, b"x")

    assert await bodies_of(next_one) == [b"x"]


# Durable groups -------------------------------------------------------------------------------------------------------


async def test_what_waits_goes_to_a_member_that_overtakes_one_whose_subscribe_waits_for_the_store(
    store_directory: Path,
) -> None:
    async with running_broker(store_in=store_directory) as broker:
        await (await member(broker, **DURABLE)).vanish()
        await broker.store_messages(b"waits", destination="/topic/jobs")
        late, quick = await broker.client(), await broker.client()

        with broker.held_store():
            await late.publish(b"stored", destination="/topic/jobs")
            await late.send("SUBSCRIBE", id="0", destination="/topic/jobs", ack="client-individual", **DURABLE)
            await wait_all_tasks_blocked()
            await quick.subscribe("/topic/jobs", ack="client-individual", **DURABLE)

            assert await bodies_of(quick) == [b"waits"]


async def test_a_group_is_kept_without_members_and_over_a_restart(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        one = await member(broker, **DURABLE, exclusive="true")
        await broker.store_messages(b"0", b"1", destination="/topic/jobs")
        await one.send("ACK", id=(await one.next_message()).headers["ack"])
        await broker.settle()
        await one.vanish()
        await broker.store_messages(b"2", destination="/topic/jobs")
    async with running_broker(store_in=store_directory) as broker:
        (group,) = broker.registry.durable.values()
        assert (group.is_shared, group.is_exclusive, group.key) == (True, True, "group:workers @ jobs")
        members = [await member(broker, **DURABLE) for _ in range(2)]
        got = [each.body for client in members for each in await broker.rest_for(client)]
        assert sorted(got) == [b"1", b"2"]
        assert not group.is_exclusive, "whoever comes first when there is nobody decides"


async def test_a_transaction_of_a_member_settles_what_it_has(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        one, two = await member(broker, **DURABLE), await member(broker, **DURABLE)
        await broker.store_messages(*numbered(4), destination="/topic/jobs")
        mine, theirs = await one.next_messages(2), await two.next_messages(2)
        await one.send("BEGIN", transaction="t")
        await one.send("ACK", id=mine[0].headers["ack"], transaction="t")
        await one.send("NACK", id=mine[1].headers["ack"], transaction="t", delay="0")
        await one.send("COMMIT", transaction="t", receipt="c")
        await one.expect_receipt("c")
        again = await two.next_message()
        assert again.body == mine[1].body
        await two.acknowledge(*theirs, again)
        (group,) = broker.registry.durable.values()
        assert (group.unsettled, group.counters.acked) == (0, 4)


async def test_a_durable_name_can_be_shared(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        headers: dict[str, Any] = {"x_queue_name": "q", "shared": "true", "ack": "client-individual"}
        members = [await broker.subscriber("/topic/jobs", **headers) for _ in range(2)]
        await broker.store_messages(*numbered(4), destination="/topic/jobs")
        got = [[each.body for each in await broker.rest_for(client)] for client in members]
        assert sorted(chain.from_iterable(got)) == numbered(4)
        assert all(got)
        plain = await broker.client()
        await plain.send("SUBSCRIBE", id="0", destination="/topic/jobs", x_queue_name="q")
        await plain.expect_error("another shared", "is not shared", "has members")
        for client in members:
            await client.vanish()
        plain = await broker.subscriber("/topic/jobs", x_queue_name="q", ack="client-individual")
        assert len(await broker.rest_for(plain)) == 4
        newest = await broker.subscriber("/topic/jobs", x_queue_name="q", ack="client-individual")
        await plain.expect_error("taken over")
        assert len(await broker.rest_for(newest)) == 4


# What is refused ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ({"group": ""}, ["'group'", "at least one character"]),
        ({"group": "g" * 256}, ["'group'", "255 bytes"]),
        ({"group": "g", "x_queue_name": "q"}, ["group contradicts 'x-queue-name'", "shared:true"]),
        ({"group": "g", "durable_subscription_name": "q"}, ["group contradicts 'durable-subscription-name'"]),
        ({"group": "g", "durable": "false"}, ["durable:false", "auto-delete:true"]),
        ({"group": "g", "no_local": "true"}, ["no-local", "leave no-local out"]),
        ({"group": "g", "selector": "a = 1"}, ["'selector'"]),
        ({"group": "g", "auto_delete": "maybe"}, ["'auto-delete'", "true or false"]),
        ({"group": "g"}, ["no durable subscriptions", "auto-delete:true"]),
        ({"shared": "true"}, ["shared:true", "group:NAME"]),
        ({"exclusive": "true"}, ["exclusive:true", "group:NAME"]),
        ({"activemq.exclusive": "true"}, ["activemq.exclusive:true", "group:NAME"]),
        ({"group": "g", "auto_delete": "true", "ordering": "strict", "ack": "client"}, ["ordering:strict", "durable"]),
    ],
)
async def test_what_contradicts_a_group_is_an_error_that_names_it(
    autojump_clock: MockClock, broker: BrokerUnderTest, headers: dict[str, Any], words: list[str]
) -> None:
    client = await broker.client()

    await client.send("SUBSCRIBE", id="0", destination="/topic/jobs", **headers)

    await client.expect_error(*words)


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ({"exclusive": "true"}, ["another exclusive", "one active member"]),
        ({"max_attempts": "3"}, ["another redelivery", "max_attempts"]),
        ({"auto_delete": "false"}, ["another auto-delete", "it ends with its last member; add auto-delete:true"]),
    ],
)
async def test_a_member_that_asks_otherwise_is_refused(
    autojump_clock: MockClock, broker: BrokerUnderTest, headers: dict[str, str], words: list[str]
) -> None:
    await member(broker)
    client = await broker.client()

    await client.send("SUBSCRIBE", id="0", destination="/topic/jobs", **{**TRANSIENT, **headers})

    await client.expect_error(*words, "group:workers @ jobs")


async def test_a_group_is_not_found_as_a_durable_subscription(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        await member(broker, **DURABLE)
        client = await broker.client()
        await client.send("SUBSCRIBE", id="0", destination="/dsub/workers")
        await client.expect_error("unknown durable subscription")


async def test_many_members_come_and_go_and_each_message_is_settled_once(
    autojump_clock: MockClock, broker: BrokerUnderTest
) -> None:
    acknowledged: list[bytes] = []

    async def work(client: Client, name: int) -> None:
        for turn in range(40):
            message = await client.next_message()
            if turn % 7 == name:
                await client.send("NACK", id=message.headers["ack"])
            elif turn < 39:
                await client.send("ACK", id=message.headers["ack"])
                acknowledged.append(message.body)
        await client.vanish()

    members = [await member(broker, prefetch_count="7") for _ in range(5)]
    keeper = await member(broker, prefetch_count="1")
    async with trio.open_nursery() as nursery:
        for name, client in enumerate(members):
            nursery.start_soon(work, client, name)
        await publish(broker, *numbered(300))
    while len(acknowledged) < 300:
        message = await keeper.next_message()
        await keeper.send("ACK", id=message.headers["ack"])
        acknowledged.append(message.body)
    assert sorted(acknowledged, key=int) == numbered(300)
    broker.check_invariants()
