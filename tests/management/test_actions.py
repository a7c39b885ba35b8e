"""What an operator does is done, and the clients it concerns are told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from tests.management.asker import asking
from tests.support.broker_under_test import running_broker

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from stompbroker.stomp import Frame
    from tests.support.broker_under_test import BrokerUnderTest, Client


#: So that everything stays there to be moved to.
RETAINED = {"topics": [{"pattern": "a", "retain_s": 3600}]}


def bodies(messages: list[Frame]) -> list[bytes]:
    return [message.body for message in messages]


def numbered(start: int, stop: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, stop)]


async def kill(broker: BrokerUnderTest, subscriber: Client, *payloads: bytes) -> None:
    """Publish these, and have the subscriber refuse them for good."""
    await broker.store_messages(*payloads)
    for message in await subscriber.next_messages(len(payloads)):
        await subscriber.send("NACK", id=message.headers["ack"], requeue="false", reason="no")
    await subscriber.sync()
    await broker.settle()


# Pause and resume -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ack", ["auto", "client", "client-individual"])
async def test_nothing_is_sent_while_it_is_paused_and_then_it_goes_on_where_it_was(
    ack: str, broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    subscriber = await broker.subscriber(ack=ack)
    other = await broker.subscriber()
    publisher = await broker.client()
    await publisher.publish(*numbered(0, 2))
    assert await subscriber.next_bodies(2) == numbered(0, 2)
    async with asking(broker) as ask:
        public_id = (await ask.subscription(connection=subscriber.session.connection_id))["id"]

        assert (await ask.post(f"/subscriptions/{public_id}/pause"))["paused"] is True
        await publisher.publish(*numbered(2, 1000))
        assert await other.next_bodies(1000) == numbered(0, 1000)
        await trio.sleep(60)
        await subscriber.expect_nothing()
        paused = await ask.get(f"/subscriptions/{public_id}")
        assert (paused["paused"], paused["backlog"], paused["delivered"]) == (True, 998, 2)

        resumed = await ask.post(f"/subscriptions/{public_id}/resume")
        assert (resumed["paused"], resumed["id"]) == (False, public_id)
        assert await subscriber.next_bodies(998) == numbered(2, 1000)


async def test_what_is_acknowledged_while_it_is_paused_counts(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    subscriber = await broker.subscriber(ack="client-individual", prefetch_count="2")
    publisher = await broker.client()
    await publisher.publish(*numbered(0, 4))
    sent = await subscriber.next_messages(2)
    async with asking(broker) as ask:
        public_id = (await ask.subscription(key="0"))["id"]
        await ask.post(f"/subscriptions/{public_id}/pause")
        await subscriber.acknowledge(*sent)
        await subscriber.expect_nothing()
        paused = await ask.get(f"/subscriptions/{public_id}")
        assert (paused["acked"], paused["in_flight"], paused["backlog"]) == (2, 0, 2)
        await ask.post(f"/subscriptions/{public_id}/resume")
        assert await subscriber.next_bodies(2) == numbered(2, 4)


async def test_what_was_refused_waits_too_while_it_is_paused(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    subscriber = await broker.subscriber(ack="client-individual", redelivery_delay="1000")
    publisher = await broker.client()
    await publisher.publish(b"1")
    message = await subscriber.next_message()
    async with asking(broker) as ask:
        public_id = (await ask.subscription(key="0"))["id"]
        await ask.post(f"/subscriptions/{public_id}/pause")
        await subscriber.send("NACK", id=message.headers["ack"])
        await trio.sleep(10)
        await subscriber.expect_nothing()
        await ask.post(f"/subscriptions/{public_id}/resume")
        again = await subscriber.next_message()
    assert (again.body, again.headers["delivery-count"]) == (b"1", "2")


async def test_whoever_attaches_to_a_paused_durable_subscription_waits(durable_broker: BrokerUnderTest) -> None:
    broker = durable_broker
    await (await broker.durable_subscriber()).vanish()
    async with asking(broker) as ask:
        public_id = (await ask.subscription(durable=True))["id"]
        await ask.post(f"/subscriptions/{public_id}/pause")
        await broker.store_messages(b"1")
        subscriber = await broker.durable_subscriber()
        await broker.expect_silence(subscriber)
        await ask.post(f"/subscriptions/{public_id}/resume")
        assert (await subscriber.next_message()).body == b"1"


async def test_to_pause_or_resume_twice_is_as_once(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    subscriber = await broker.subscriber()
    publisher = await broker.client()
    async with asking(broker) as ask:
        public_id = (await ask.subscription(key="0"))["id"]
        for action in ("resume", "pause", "pause", "resume", "resume"):
            await ask.post(f"/subscriptions/{public_id}/{action}")
    await publisher.publish(b"1")
    assert await subscriber.next_bodies(1) == [b"1"]
    await subscriber.expect_nothing()


# Move -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("to", "first"),
    [("earliest", 0), ("latest", 10), ("offset=4", 4), ("offset=0", 0), ("offset=10", 10), ("offset=99", 10)],
)
@pytest.mark.parametrize("is_killed", [True, False])
async def test_a_moved_subscription_reads_on_from_there_also_after_a_restart(
    to: str, first: int, is_killed: bool, store_directory: Path
) -> None:
    async with running_broker(store_in=store_directory, **RETAINED) as broker, asking(broker) as ask:
        subscriber = await broker.durable_subscriber()
        await broker.store_messages(*numbered(0, 10))
        messages = await subscriber.next_messages(10)
        await subscriber.acknowledge(*messages[:5], messages[7])
        public_id = (await ask.subscription(durable=True))["id"]

        moved = await ask.post(f"/subscriptions/{public_id}/move", to=to)

        assert (moved["offset"], moved["backlog"], moved["in_flight"]) == (first, 10 - first, 0)
        assert moved["connected"] is False
        await subscriber.expect_error("subscription was moved", "billing/orders", "by an operator")
        if is_killed:
            broker.kill()

    async with running_broker(store_in=store_directory, **RETAINED) as broker, asking(broker) as ask:
        assert (await ask.subscription(durable=True))["backlog"] == 10 - first
        subscriber = await broker.durable_subscriber()
        await broker.store_messages(b"10")
        assert bodies(await broker.rest_for(subscriber)) == numbered(first, 11)


async def test_a_moved_subscription_goes_on_without_a_restart_too(durable_broker: BrokerUnderTest) -> None:
    broker = durable_broker
    subscriber = await broker.durable_subscriber()
    keeper = await broker.durable_subscriber(client_id="audit")  # for whom all of it is kept
    await broker.store_messages(*numbered(0, 6))
    await subscriber.acknowledge(*await subscriber.next_messages(6))
    await keeper.next_messages(6)
    async with asking(broker) as ask:
        public_id = (await ask.subscription(key="billing/orders"))["id"]
        await ask.post(f"/subscriptions/{public_id}/move", to="offset=2")
        await subscriber.expect_error("moved")

        again = await broker.durable_subscriber()
        messages = await broker.rest_for(again)
        assert bodies(messages) == numbered(2, 6)
        await again.acknowledge(*messages)
        shown = await ask.get(f"/subscriptions/{public_id}")
        assert (shown["backlog"], shown["in_flight"], shown["acked"]) == (0, 0, 10)
        await ask.post(f"/subscriptions/{public_id}/move", to="latest")
        await again.expect_error("moved")
        await broker.expect_silence(keeper, await broker.durable_subscriber())


async def test_a_subscription_is_moved_to_a_time_and_by_an_age(store_directory: Path, mock_clock: MockClock) -> None:
    async with running_broker(store_in=store_directory, **RETAINED) as broker, asking(broker) as ask:
        await (await broker.durable_subscriber()).vanish()
        for number in range(4):
            await broker.store_messages(b"%d" % number)
            await broker.settle()
            mock_clock.jump(60)
        public_id = (await ask.subscription(durable=True))["id"]
        (listed,) = (await ask.get("/collector", topic="a"))["topics"]
        published_at = listed["pinned_by"][0]["since"]

        by_age = await ask.post(f"/subscriptions/{public_id}/move", to="150s")
        to_the_first = await ask.post(f"/subscriptions/{public_id}/move", to=published_at)
        to_the_future = await ask.post(f"/subscriptions/{public_id}/move", to="2100-01-01T00:00:00Z")
        assert by_age["offset"] == 2
        assert to_the_first["offset"] == 0
        assert to_the_future["offset"] == 4
        await ask.post(f"/subscriptions/{public_id}/move", to="90s")
        assert bodies(await broker.rest_for(await broker.durable_subscriber())) == [b"3"]


async def test_what_was_refused_and_waited_is_forgotten_with_a_move(durable_broker: BrokerUnderTest) -> None:
    broker = durable_broker
    subscriber = await broker.durable_subscriber()
    await broker.store_messages(b"1", b"2")
    message, _ = await subscriber.next_messages(2)
    await subscriber.send("NACK", id=message.headers["ack"], delay="1000")
    await broker.settle()
    async with asking(broker) as ask:
        shown = await ask.subscription(durable=True)
        assert shown["waiting"] == 1
        moved = await ask.post(f"/subscriptions/{shown['id']}/move", to="latest")
        assert (moved["waiting"], moved["backlog"]) == (0, 0)
    await broker.settle()
    assert broker.count("redeliveries") == 0


async def test_what_cannot_be_moved_is_not_and_nobody_is_disconnected(durable_broker: BrokerUnderTest) -> None:
    broker = durable_broker
    transient = await broker.subscriber()
    wild = await broker.durable_subscriber("/topic/*", client_id="wild")
    durable = await broker.durable_subscriber()
    async with asking(broker) as ask:
        for key, to, said in (
            ("0", "earliest", "only a durable subscription to one topic can be moved"),
            ("wild/orders", "earliest", "only a durable subscription to one topic can be moved"),
            ("billing/orders", "yesterday", "earliest"),
            ("billing/orders", "", "earliest"),
            ("billing/orders", "offset=-1", "earliest"),
        ):
            public_id = (await ask.subscription(key=key))["id"]
            await ask.refused(400, "POST", f"/api/v1/subscriptions/{public_id}/move", said, json={"to": to})
        await ask.refused(404, "POST", "/api/v1/subscriptions/d999/move", "no subscription", json={"to": "latest"})
    await broker.expect_silence(transient, wild, durable)


# Delete ---------------------------------------------------------------------------------------------------------------


async def test_a_deleted_durable_subscription_is_gone_for_good(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker, asking(broker) as ask:
        subscriber = await broker.durable_subscriber()
        other = await broker.durable_subscriber(client_id="audit")
        await broker.store_messages(b"1")
        await subscriber.next_message()
        public_id = (await ask.subscription(key="billing/orders"))["id"]

        answer = await ask.delete(f"/subscriptions/{public_id}")

        assert answer == {"id": public_id, "key": "billing/orders", "backlog": 0}
        await subscriber.expect_error("subscription was deleted", "by an operator")
        await ask.refused(404, "GET", f"/api/v1/subscriptions/{public_id}", "no subscription")
        assert (await other.next_message()).body == b"1"
        broker.kill()
    async with running_broker(store_in=store_directory) as broker, asking(broker) as ask:
        assert [each["key"] for each in (await ask.get("/subscriptions"))["subscriptions"]] == ["audit/orders"]
        await broker.expect_silence(await broker.durable_subscriber())


async def test_a_deleted_transient_subscription_takes_its_client_with_it(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    subscriber = await broker.client()
    await subscriber.subscribe(id="one")
    await subscriber.subscribe("/topic/b", id="two")
    async with asking(broker) as ask:
        public_id = (await ask.subscription(key="two"))["id"]

        answer = await ask.delete(f"/subscriptions/{public_id}")

        assert answer == {"id": public_id, "key": "two", "backlog": 0}
        await subscriber.expect_error("subscription was deleted")
        assert (await ask.get("/subscriptions"))["total"] == 0


async def test_while_the_store_fails_what_must_be_durable_is_refused_at_once(durable_broker: BrokerUnderTest) -> None:
    broker = durable_broker
    subscriber = await broker.durable_subscriber()
    async with asking(broker) as ask:
        public_id = (await ask.subscription(durable=True))["id"]
        broker.journal.health.note_failing("no such disk")
        try:
            for method, path, body in (
                ("DELETE", f"/api/v1/subscriptions/{public_id}", None),
                ("POST", f"/api/v1/subscriptions/{public_id}/move", {"to": "latest"}),
            ):
                await ask.refused(503, method, path, "try again later", json=body)
        finally:
            broker.journal.health.note_room(None)
        await broker.expect_silence(subscriber)
        assert (await ask.get(f"/subscriptions/{public_id}"))["connected"]


# Dead letters, the collector, connections -----------------------------------------------------------------------------


async def test_dead_letters_are_redriven(durable_broker: BrokerUnderTest) -> None:
    subscriber = await durable_broker.durable_subscriber()
    await kill(durable_broker, subscriber, b"1", b"2", b"3")
    async with asking(durable_broker) as ask:
        one = await ask.post("/dead-letters/a/redrive", offset=1)
        assert (one["redriven"], one["skipped"], one["is_complete"]) == (1, [], True)
        assert (await subscriber.next_message()).body == b"2"

        rest = await ask.post("/dead-letters/a/redrive", to="topic")
        assert rest["redriven"] == 2
        assert await subscriber.next_bodies(2) == [b"1", b"3"]
        await durable_broker.settle()
        assert (await ask.get("/dead-letters"))["topics"] == []
        assert (await ask.get("/overview"))["now"]["dead_letters"] == 0


async def test_dead_letters_are_purged(durable_broker: BrokerUnderTest) -> None:
    subscriber = await durable_broker.durable_subscriber()
    await kill(durable_broker, subscriber, b"1", b"2", b"3")
    async with asking(durable_broker) as ask:
        some = await ask.post("/dead-letters/a/purge", limit=2)
        assert (some["purged"], some["is_complete"]) == (2, False)
        assert (await ask.get("/dead-letters"))["topics"][0]["letters"] == 1
        rest = await ask.post("/dead-letters/a/purge", after=some["after"])
        assert (rest["purged"], rest["is_complete"]) == (1, True)
        await durable_broker.settle()
        assert (await ask.get("/overview"))["now"]["dead_letters"] == 0
        await ask.refused(404, "POST", "/api/v1/dead-letters/b/purge", "there are no dead letters of 'b'")
    await durable_broker.expect_silence(subscriber)


async def test_the_collector_looks_when_it_is_told_to(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    """Its own next look would be a second later."""
    subscriber = await broker.subscriber(ack="client-individual")
    publisher = await broker.client()
    await publisher.publish(b"1")
    await subscriber.acknowledge(await subscriber.next_message())
    began_at_s = trio.current_time()
    async with asking(broker) as ask:
        assert (await ask.get("/topics/a"))["kept_messages"] == 1
        assert await ask.post("/collector/run") == {"started": True}
        while (await ask.get("/topics/a"))["kept_messages"]:
            await trio.lowlevel.checkpoint()
    assert trio.current_time() - began_at_s < 0.1


async def test_a_connection_is_closed(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    subscriber = await broker.subscriber()
    other = await broker.subscriber()
    connection_id = subscriber.session.connection_id
    async with asking(broker) as ask:
        answer = await ask.delete(f"/connections/{connection_id}")

        assert (answer["id"], answer["subscriptions"]) == (connection_id, 1)
        await subscriber.expect_error("connection closed", "an operator has closed it")
        await subscriber.vanish()
        await ask.refused(404, "GET", f"/api/v1/connections/{connection_id}", "there is no connection")
        assert [each["id"] for each in (await ask.get("/connections"))["connections"]] == [other.session.connection_id]
    await other.sync()
