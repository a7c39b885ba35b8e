"""A browser is shown what is in a queue, takes nothing, and holds nothing up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from trio.testing import wait_all_tasks_blocked

from stompbroker.ids import Offset
from stompbroker.stomp import Version
from stompbroker.storage import migrate
from tests.end_to_end.conformance.versions import every_version
from tests.management.asker import asking
from tests.sessions.test_damaged_store import damage
from tests.sessions.test_queues import JOBS, collect, consumer, numbered, send
from tests.support.broker_under_test import running_broker
from tests.support.users import PASSWORD, add_user

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from stompbroker.stomp import Frame
    from tests.support.broker_under_test import BrokerUnderTest, Client


async def browser(broker: BrokerUnderTest, version: Version = Version.V1_2, **headers: str) -> Client:
    return await broker.subscriber(JOBS, version, browser="true", **headers)


async def shown(client: Client) -> list[Frame]:
    """Everything up to the end marker, which is checked."""
    messages = []
    while "browser" not in (message := await client.next_message()).headers:
        messages.append(message)
    headers = message.headers
    assert (headers["browser"], headers["destination"], message.body) == ("end", JOBS, b"")
    assert headers["message-id"] not in [each.headers["message-id"] for each in messages]
    assert headers.get("subscription", "0") == "0"
    return messages


async def browse(broker: BrokerUnderTest) -> list[bytes]:
    client = await browser(broker)
    bodies = [message.body for message in await shown(client)]
    await client.sync()
    await client.vanish()
    return bodies


@pytest.fixture(params=["memory", "stored", "stored and not in memory", "postgresql"])
def where(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Of whom the broker has to ask for what is in a queue."""
    if request.param == "memory":
        return {}
    if request.param == "postgresql":
        url, directory = request.getfixturevalue("postgres_url"), request.getfixturevalue("tmp_path")
        migrate(url, directory)
        return {"store_in": directory, "database": url, "window_messages": 2}
    window = {"window_messages": 2} if request.param == "stored and not in memory" else {}
    return {"store_in": request.getfixturevalue("store_directory"), **window}


# What is shown --------------------------------------------------------------------------------------------------------


@every_version
async def test_a_browser_gets_what_is_there_in_order_then_one_end_marker_and_nothing_more(
    broker: BrokerUnderTest, autojump_clock: MockClock, version: Version
) -> None:
    publisher = await broker.client()
    await publisher.publish(*numbered(3), destination=JOBS, priority="4")
    await publisher.sync()

    client = await browser(broker, version)

    messages = await shown(client)
    assert [message.body for message in messages] == numbered(3)
    assert {message.headers["priority"] for message in messages} == {"4"}
    assert not any("ack" in message.headers for message in messages)
    await publisher.publish(b"later", destination=JOBS)
    await client.expect_nothing()
    await client.send("UNSUBSCRIBE", id="0", destination=JOBS, receipt="gone")
    await client.expect_receipt("gone")
    assert not [each for each in broker.registry.subscriptions if each.browser is not None]


async def test_what_is_unsettled_is_shown_whatever_becomes_of_it_and_stays(where: dict[str, Any]) -> None:
    async with running_broker(**where, redelivery_first_delay_ms=60_000) as broker:
        publisher = await broker.client()
        await publisher.publish(*numbered(6), destination=JOBS)
        await publisher.sync()
        worker = await consumer(broker, prefetch_count="4")
        taken = await worker.next_messages(4)
        await worker.send("ACK", id=taken[1].headers["ack"])
        await worker.send("NACK", id=taken[2].headers["ack"], reason="no paper")
        # It has credit for the rest.
        assert await worker.next_bodies(2) == [b"4", b"5"]
        await worker.sync()

        client = await browser(broker)

        messages = await shown(client)
        assert [message.body for message in messages] == [b"0", b"2", b"3", b"4", b"5"]
        failed = messages[1].headers
        assert (failed["delivery-count"], failed["redelivery-reason"]) == ("2", "no paper")
        assert {each.headers["delivery-count"] for each in messages if each is not messages[1]} == {"1"}
        (group,) = (each for each in broker.registry.subscriptions if each.is_shared)
        assert (group.unsettled, group.in_flight, group.counters.delivered, len(group.consumers)) == (5, 4, 6, 1)


async def test_what_a_consumer_has_and_the_full_window_has_not_is_shown(autojump_clock: MockClock) -> None:
    async with running_broker(window_messages=10) as broker:
        worker = await consumer(broker, prefetch_count="2")
        publisher = await broker.client()
        for body in numbered(12):
            await publisher.publish(body, destination=JOBS)
        await publisher.sync()
        assert await worker.next_bodies(2) == numbered(2)
        assert broker.registry.topics[JOBS].log.get(Offset(0)) is None

        assert await browse(broker) == numbered(12)


async def test_a_message_in_a_transaction_that_is_being_stored_is_still_shown(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        await send(broker, b"pending", b"other")
        worker = await consumer(broker)
        messages = await worker.next_messages(2)
        await broker.settle()
        with broker.held_store():
            await worker.send("BEGIN", transaction="t")
            await worker.send("ACK", id=messages[0].headers["ack"], transaction="t")
            await worker.send("COMMIT", transaction="t", receipt="done")
            await wait_all_tasks_blocked()
            (group,) = broker.registry.subscriptions
            assert group.pending == 1

            assert await browse(broker) == [b"pending", b"other"]
        await worker.expect_receipt("done")
        assert await browse(broker) == [b"other"]


async def test_a_browser_sees_what_its_own_connection_sent_before(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        client = await broker.client()
        await client.publish(*numbered(3), destination=JOBS)
        await client.subscribe(JOBS, browser="true")
        await client.publish(b"later", destination=JOBS)

        assert [message.body for message in await shown(client)] == numbered(3)


async def test_a_queue_that_nobody_has_made_is_empty_and_is_not_made(
    broker: BrokerUnderTest, autojump_clock: MockClock
) -> None:
    client = await browser(broker)

    assert await shown(client) == []
    assert not broker.registry.topics
    await client.send("UNSUBSCRIBE", id="0")
    await client.sync()
    assert not broker.registry.subscriptions


async def test_what_expires_or_is_settled_before_the_browser_comes_there_is_stepped_over(
    store_directory: Path, mock_clock: MockClock
) -> None:
    async with running_broker(store_in=store_directory) as broker:
        await send(broker, b"0")
        await send(broker, b"short", ttl="1000")
        await send(broker, b"2")
        mock_clock.jump(2)

        assert await browse(broker) == [b"0", b"2"]


async def test_after_a_restart_everything_is_shown_that_was_kept(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        await send(broker, *numbered(3))
        worker = await consumer(broker)
        await worker.acknowledge((await worker.next_messages(3))[1])
    async with running_broker(store_in=store_directory) as broker:
        assert await browse(broker) == [b"0", b"2"]


# What it holds up -----------------------------------------------------------------------------------------------------


async def test_a_browser_counts_in_nothing_of_its_queue(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    first = await consumer(broker, exclusive="true", prefetch_count="1")
    client = await browser(broker)
    assert await shown(client) == []
    publisher = await broker.client()

    await publisher.publish(b"0", destination=JOBS, report="true", receipt="r")

    receipt = await publisher.next_frame()
    assert (receipt.headers["matched"], receipt.headers["matched-transient"]) == ("1", "0")
    message = await first.next_message()
    assert await browse(broker) == [b"0"]
    await first.send("ACK", id=message.headers["ack"])
    await first.sync()
    (group,) = (each for each in broker.registry.subscriptions if each.is_shared)
    assert (group.counters.delivered, group.counters.acked, group.unsettled) == (1, 1, 0)
    await first.send("UNSUBSCRIBE", id="0")
    await first.sync()
    collect(broker)
    assert not broker.registry.topics, "a browser that is still there keeps no queue"
    await client.expect_nothing()


async def test_a_hundred_thousand_messages_are_shown_in_order_while_others_work(store_directory: Path) -> None:
    count = 100_000
    async with running_broker(store_in=store_directory, window_messages=1000) as broker:
        publisher = await broker.client()
        bodies = numbered(count)
        for start in range(0, count, 10_000):
            await publisher.publish(*bodies[start : start + 10_000], destination=JOBS)
            await publisher.sync()
        log = broker.registry.topics[JOBS].log

        client = await browser(broker)
        assert await client.next_bodies(1) == bodies[:1]
        await publisher.publish(b"later", destination=JOBS)
        await publisher.sync()
        worker = await consumer(broker, prefetch_count="1")
        assert await worker.next_bodies(1) == bodies[:1]

        assert [message.body for message in await shown(client)] == bodies[1:]
        assert log.message_count <= 11_000


async def test_a_browser_is_listed_as_one(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker, asking(broker) as ask:
        await send(broker, *numbered(2))
        client = await browser(broker)
        await shown(client)

        (one,) = (await ask.get("/subscriptions", durable=False))["subscriptions"]

        assert (one["browser"], one["destination"], one["kind"], one["sharing"]) == (True, JOBS, "queue", "none")
        assert (one["delivered"], one["backlog"], one["in_flight"], one["members"]) == (2, 0, 0, 1)
        (group,) = (await ask.get("/subscriptions", durable=True))["subscriptions"]
        assert (group["browser"], group["backlog"], group["members"], group["delivered"]) == (False, 2, 0, 0)


async def test_whoever_may_not_read_a_queue_may_not_browse_it(tmp_path: Path) -> None:
    users = tmp_path / "users.toml"
    add_user(users, "shop", write=["queue:jobs"])
    add_user(users, "viewer", read=["queue:jobs"])
    async with running_broker(users_file=str(users)) as broker:
        client = await broker.client(login="viewer", passcode=PASSWORD)
        await client.subscribe(JOBS, browser="true")
        assert await shown(client) == []
        client = await broker.client(login="shop", passcode=PASSWORD)
        await client.send("SUBSCRIBE", id="0", destination=JOBS, browser="true")
        await client.expect_error("not allowed", "permission to read '/queue/jobs'")


# Where it cannot go on ------------------------------------------------------------------------------------------------


async def test_in_front_of_what_the_store_has_lost_the_end_marker_says_so(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        await send(broker, *numbered(1500))
    damage(store_directory, 'DELETE FROM messages WHERE "offset" = 1200')
    async with running_broker(store_in=store_directory) as broker:
        client = await browser(broker)

        messages = await client.next_messages(1200)
        end = await client.next_message()

        assert [message.body for message in messages] == numbered(1200)
        assert (end.headers["browser"], end.headers["browser-incomplete"]) == (
            "end",
            "the store has lost what comes next in this queue",
        )
        await client.sync()


async def test_a_browser_that_waits_for_a_page_when_its_client_goes_leaves_nothing_behind(
    store_directory: Path,
) -> None:
    async with running_broker(store_in=store_directory) as broker:
        await send(broker, *numbered(1500))
    async with running_broker(store_in=store_directory) as broker:
        client = await broker.client()
        await client.send("SUBSCRIBE", id="0", destination=JOBS, browser="true")
        await client.send("DISCONNECT")
        await broker.settle()
        assert not [each for each in broker.registry.subscriptions if each.browser is not None]


# Bad input ------------------------------------------------------------------------------------------------------------


CONTRADICTIONS = [
    *[(name, "x") for name in ("group", "durable-subscription-name", "activemq.subscriptionName", "x-queue-name")],
    *[(name, "true") for name in ("shared", "exclusive", "activemq.exclusive", "durable", "no-local", "auto-delete")],
    ("from", "earliest"),
    ("x-stream-offset", "first"),
    ("ordering", "strict"),
    ("ack", "client"),
    ("ack", "client-individual"),
]


@pytest.mark.parametrize(("header", "value"), CONTRADICTIONS)
async def test_what_a_browser_cannot_be_is_an_error_that_names_it(
    broker: BrokerUnderTest, autojump_clock: MockClock, header: str, value: str
) -> None:
    client = await broker.client(client_id="c")

    await client.send_raw(f"SUBSCRIBE\nid:0\ndestination:{JOBS}\nbrowser:true\n{header}:{value}\n\n\0".encode())

    error = await client.expect_error(f"browser:true contradicts {header!r}", "leave the header")
    assert repr(header) in error.headers["message"]
    assert not broker.registry.topics
    assert not broker.registry.subscriptions


@pytest.mark.parametrize("destination", ["/topic/a", "a.>", "/temp-queue/a", "/temp-topic/a"])
async def test_only_a_queue_can_be_browsed(
    broker: BrokerUnderTest, autojump_clock: MockClock, destination: str
) -> None:
    client = await broker.client()

    await client.send("SUBSCRIBE", id="0", destination=destination, browser="true")

    await client.expect_error("browser:true is for queues", destination, "/queue/NAME", "from:earliest")
    assert not broker.registry.subscriptions


@pytest.mark.parametrize("command", ["ACK", "NACK"])
@pytest.mark.parametrize("version", [Version.V1_1, Version.V1_2])
async def test_an_answer_to_a_browsers_message_is_an_error_that_names_it(
    broker: BrokerUnderTest, autojump_clock: MockClock, version: Version, command: str
) -> None:
    publisher = await broker.client()
    await publisher.publish(b"0", destination=JOBS)
    await publisher.sync()
    client = await browser(broker, version)
    (message,) = await shown(client)

    if version is Version.V1_1:
        await client.send(command, subscription="0", message_id=message.headers["message-id"])
    else:
        await client.send(command, id="1-1")

    await client.expect_error("a browser's message needs no answer", "'0' has browser:true", "without browser")
    assert await browse(broker) == [b"0"]


async def test_a_browser_cannot_follow_its_queue(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    client = await broker.client()

    await client.send_raw(f"SUBSCRIBE\nid:0\ndestination:{JOBS}\nbrowser:true\nbrowser-end:false\n\n\0".encode())

    await client.expect_error("unsupported header 'browser-end'", "'false'", "leave the header out")
