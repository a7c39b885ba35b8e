"""Temporary destinations, and request and reply over them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tests.support.broker_under_test import running_broker
from tests.support.users import PASSWORD, add_user

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from tests.support.broker_under_test import BrokerUnderTest, Client

SERVICE = "/queue/service"
REPLIES = "/temp-queue/replies"


async def server(broker: BrokerUnderTest) -> Client:
    return await broker.subscriber(SERVICE, ack="client-individual")


async def answer(client: Client, request: Any, body: bytes) -> None:
    await client.publish(
        body, destination=request.headers["reply-to"], correlation_id=request.headers["correlation-id"], receipt="r"
    )
    await client.expect_receipt("r")


async def test_a_reply_comes_back_to_whoever_gave_its_temporary_queue(
    autojump_clock: MockClock, broker: BrokerUnderTest
) -> None:
    worker, caller = await server(broker), await broker.client()
    await caller.subscribe(REPLIES, id="7")

    await caller.publish(b"question", destination=SERVICE, reply_to=REPLIES, correlation_id="42")
    request = await worker.next_message()
    await answer(worker, request, b"answer")

    reply = await caller.next_message()
    assert (reply.body, reply.headers["subscription"], reply.headers["correlation-id"]) == (b"answer", "7", "42")
    assert request.headers["reply-to"].startswith("/reply-queue/")
    assert "replies" not in request.headers["reply-to"]


@pytest.mark.parametrize("destination", [REPLIES, "/temp-topic/replies"])
async def test_to_give_one_as_reply_to_subscribes_by_itself(
    autojump_clock: MockClock, broker: BrokerUnderTest, destination: str
) -> None:
    worker, caller = await server(broker), await broker.client()

    for number in (b"1", b"2"):
        await caller.publish(number, destination=SERVICE, reply_to=destination, correlation_id="c")
        await answer(worker, await worker.next_message(), number)

        reply = await caller.next_message()
        assert (reply.body, reply.headers["subscription"]) == (number, destination)
    await caller.subscribe(destination, id="own")
    await caller.publish(b"3", destination=SERVICE, reply_to=destination, correlation_id="c")
    await answer(worker, await worker.next_message(), b"3")
    reply = await caller.next_message()
    assert (reply.body, reply.headers["subscription"]) == (b"3", "own")
    await caller.expect_nothing()


@pytest.mark.parametrize("id", [REPLIES, "own"])
async def test_who_has_unsubscribed_and_asks_again_gets_the_answer(
    autojump_clock: MockClock, broker: BrokerUnderTest, id: str
) -> None:
    """Also if the header block is one that is remembered."""
    worker, caller = await server(broker), await broker.client()

    async def ask() -> Any:
        await caller.publish(b"?", destination=SERVICE, reply_to=REPLIES, correlation_id="c")
        await answer(worker, await worker.next_message(), b"!")
        return await caller.next_message()

    if id != REPLIES:
        await caller.subscribe(REPLIES, id=id)
    for _ in range(5):
        assert (await ask()).headers["subscription"] == id
    await caller.send("UNSUBSCRIBE", id=id)

    assert (await ask()).headers["subscription"] == REPLIES


async def test_many_requests_may_follow_what_is_being_stored(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        worker, caller = await server(broker), await broker.client()
        with broker.held_store():
            await caller.publish(b"first", destination="/queue/other")
            await wait_all_tasks_blocked()
            for number in range(3):
                await caller.publish(b"?", destination=SERVICE, reply_to=REPLIES, correlation_id=str(number))
            await wait_all_tasks_blocked()
        await caller.sync()

        for request in await worker.next_messages(3):
            await answer(worker, request, request.headers["correlation-id"].encode())

        assert await caller.next_bodies(3) == [b"0", b"1", b"2"]


async def test_one_that_nobody_has_used_for_long_works_again(
    autojump_clock: MockClock, broker: BrokerUnderTest
) -> None:
    worker, caller = await server(broker), await broker.client()
    await caller.subscribe(REPLIES)
    await caller.publish(b"?", destination=SERVICE, reply_to=REPLIES, correlation_id="c")
    request = await worker.next_message()
    await caller.send("UNSUBSCRIBE", id="0")
    await caller.sync()
    now_ns = broker.clock.now_ns()
    for topic in list(broker.registry.topics.values()):
        broker.registry.collect(topic, now_ns, unused_since_ns=now_ns)
    assert list(broker.registry.topics) == [SERVICE]
    for _ in range(5):
        await answer(worker, request, b"unread")

    await caller.subscribe(REPLIES)
    await caller.publish(b"own", destination=REPLIES)
    assert await caller.next_bodies(1) == [b"own"]
    await answer(worker, request, b"others")
    assert await caller.next_bodies(1) == [b"others"]


async def test_replies_keep_their_order_after_some_came_while_nobody_used_the_destination(
    autojump_clock: MockClock, broker: BrokerUnderTest
) -> None:
    worker, caller = await server(broker), await broker.client()
    await caller.publish(b"?", destination=SERVICE, reply_to=REPLIES, correlation_id="c")
    reply_to = (await worker.next_message()).headers["reply-to"]

    def reply(body: bytes, kind: str) -> bytes:
        return worker.frame("SEND", body, destination=reply_to, kind=kind)

    async def have_remembered(kind: str) -> None:
        for _ in range(3):
            await worker.send_raw(reply(b"0", kind))
            await worker.sync()

    await have_remembered("one")
    await caller.next_messages(3)
    await caller.send("UNSUBSCRIBE", id=REPLIES)
    await caller.sync()
    now_ns = broker.clock.now_ns()
    for topic in list(broker.registry.topics.values()):
        broker.registry.collect(topic, now_ns, unused_since_ns=now_ns)
    await have_remembered("other")
    await caller.subscribe(REPLIES)

    await worker.send_raw(reply(b"1", "one") + reply(b"2", "other") + reply(b"3", "one"))

    assert await caller.next_bodies(3) == [b"1", b"2", b"3"]


@pytest.mark.parametrize("asks", [{"mandatory": "true", "reply_to": ""}, {"outcome_to": ""}], ids=["returned", "told"])
async def test_what_is_returned_or_told_comes_again_after_nobody_used_the_destination(
    autojump_clock: MockClock, broker: BrokerUnderTest, asks: dict[str, str]
) -> None:
    """Although the header block is one that is remembered."""
    worker, caller = await server(broker), await broker.client()
    await caller.publish(b"?", destination=SERVICE, reply_to=REPLIES, correlation_id="c")
    reply_to = (await worker.next_message()).headers["reply-to"]
    headers = {name: value or reply_to for name, value in asks.items()}
    headers["destination"] = "/topic/nobody" if "mandatory" in asks else "/queue/work"
    await caller.send("UNSUBSCRIBE", id=REPLIES)
    await caller.sync()
    now_ns = broker.clock.now_ns()
    for topic in list(broker.registry.topics.values()):
        broker.registry.collect(topic, now_ns, unused_since_ns=now_ns)
    for _ in range(3):
        await worker.publish(b"1", **headers)
        await worker.sync()

    await caller.subscribe(REPLIES, id="replies")
    await worker.publish(b"2", **headers)
    if "mandatory" not in asks:
        await caller.subscribe(headers["destination"], id="work", ack="auto")
        assert await caller.next_bodies(4) == [b"1"] * 3 + [b"2"]

    assert (await caller.next_message()).headers["subscription"] == "replies"


async def test_two_connections_with_the_same_name_have_one_each(
    autojump_clock: MockClock, broker: BrokerUnderTest
) -> None:
    worker = await server(broker)
    callers = [await broker.client() for _ in range(2)]
    for number, caller in enumerate(callers):
        await caller.publish(b"%d" % number, destination=SERVICE, reply_to=REPLIES, correlation_id="c")

    requests = await worker.next_messages(2)
    assert len({each.headers["reply-to"] for each in requests}) == 2
    for request in requests:
        await answer(worker, request, request.body)

    for number, caller in enumerate(callers):
        assert await caller.next_bodies(1) == [b"%d" % number]


async def test_a_reply_to_a_caller_that_is_gone_is_taken_counted_and_dropped(
    autojump_clock: MockClock, broker: BrokerUnderTest
) -> None:
    worker, caller = await server(broker), await broker.client()
    await caller.publish(b"1", b"2", destination=SERVICE, reply_to=REPLIES, correlation_id="c")
    one, two = await worker.next_messages(2)
    await answer(worker, one, b"in time")
    assert (await caller.next_message()).body == b"in time"

    await caller.vanish()
    await answer(worker, two, b"too late")

    assert broker.registry.nowhere.published == 1
    assert not worker.session.ending
    await worker.publish(b"again", destination=two.headers["reply-to"], receipt="again")
    await worker.expect_receipt("again")
    assert broker.registry.nowhere.published == 2


async def test_what_nobody_gets_is_dropped_if_its_sender_is_gone_and_makes_nothing(autojump_clock: MockClock) -> None:
    async with running_broker(max_topics=3) as broker:
        worker, caller, publisher = await server(broker), await broker.client(), await broker.client()
        await caller.publish(b"?", destination=SERVICE, reply_to=REPLIES, correlation_id="c")
        reply_to = (await worker.next_message()).headers["reply-to"]
        headers = {"destination": "/topic/nobody", "mandatory": "true", "reply_to": reply_to, "receipt": "r"}
        await publisher.publish(b"1", **headers)
        await publisher.expect_receipt("r")
        assert (await caller.next_message()).body == b"1"
        (replies,) = (key for key in broker.registry.topics if key.startswith("/temporary/"))

        await caller.vanish()
        await publisher.publish(b"2", **headers)
        await publisher.expect_receipt("r")
        assert broker.registry.nowhere.published == 1
        now_ns = broker.clock.now_ns()
        broker.registry.collect(broker.registry.topics[replies], now_ns, unused_since_ns=now_ns)
        await publisher.publish(b"3", **headers)
        await publisher.expect_receipt("r")
        late = await broker.client()
        await late.publish(b"4", **headers)
        await late.expect_receipt("r")

        assert broker.registry.nowhere.published == 3
        assert sorted(broker.registry.topics) == ["/queue/service", "nobody"]


async def test_whoever_sees_its_name_cannot_send_there(autojump_clock: MockClock, broker: BrokerUnderTest) -> None:
    """It is in the API, in metrics and in logs."""
    caller, stranger = await broker.client(), await broker.client()
    await caller.subscribe(REPLIES)
    (replies,) = broker.registry.topics.values()

    await stranger.publish(b"forged", destination=f"/reply-queue/{replies.name}", receipt="r")

    await stranger.expect_receipt("r")
    await caller.expect_nothing()
    assert broker.registry.nowhere.published == 1


async def test_they_end_with_their_connection_whatever_was_in_them(
    autojump_clock: MockClock, broker: BrokerUnderTest
) -> None:
    caller, publisher = await broker.client(), await broker.client()
    await caller.subscribe(REPLIES, ack="client-individual")
    await caller.publish(b"to myself", destination=REPLIES)
    assert (await caller.next_message()).body == b"to myself"

    await caller.vanish()
    await wait_all_tasks_blocked()
    now_ns = broker.clock.now_ns()
    for topic in list(broker.registry.topics.values()):
        broker.registry.collect(topic, now_ns, unused_since_ns=now_ns)

    assert not broker.registry.topics
    await publisher.sync()


@pytest.mark.parametrize("settings", [{}, {"retain_messages": 100}])
async def test_nothing_of_them_is_stored(store_directory: Path, settings: dict[str, Any]) -> None:
    async with running_broker(store_in=store_directory, **settings) as broker:
        everything = await broker.client(client_id="audit")
        await everything.subscribe("/topic/>", durable_subscription_name="all", ack="client-individual")
        worker, caller = await server(broker), await broker.client()
        await caller.publish(b"question", destination=SERVICE, reply_to=REPLIES, correlation_id="c")
        request = await worker.next_message()
        await answer(worker, request, b"answer")
        assert (await caller.next_message()).body == b"answer"
        await worker.acknowledge(request)
        await caller.vanish()
        await answer(worker, request, b"too late")
        await broker.settle()
        assert broker.look("SELECT count(*) FROM topics WHERE kind = 'temporary'") == [(0,)]
        await broker.expect_silence(everything)


@pytest.mark.parametrize("wish", [{}, {"when_used_up": "dead-letter"}])
async def test_what_is_refused_for_good_makes_no_dead_letter(store_directory: Path, wish: dict[str, str]) -> None:
    """Nobody could read it, and it would stay when the connection has ended."""
    async with running_broker(store_in=store_directory) as broker:
        caller = await broker.client()
        await caller.subscribe(REPLIES, ack="client-individual", **wish)
        await caller.publish(b"1", b"2", destination=REPLIES)

        for message in await caller.next_messages(2):
            await caller.send("NACK", id=message.headers["ack"], requeue="false")
        await caller.sync()
        await broker.settle()

        (topic,) = broker.registry.topics.values()
        assert [reading.subscription.counters.discarded for reading in topic.readings.values()] == [2]
        assert broker.look("SELECT count(*) FROM messages") == [(0,)]


async def test_one_caller_never_gets_the_answers_of_another(autojump_clock: MockClock, broker: BrokerUnderTest) -> None:
    workers = [await server(broker) for _ in range(3)]
    callers = [await broker.client() for _ in range(10)]

    async def serve(worker: Client) -> None:
        while True:
            request = await worker.next_message()
            await worker.publish(
                request.body,
                destination=request.headers["reply-to"],
                correlation_id=request.headers["correlation-id"],
            )
            await worker.send("ACK", id=request.headers["ack"])

    async def call(caller: Client, name: int) -> None:
        for number in range(50):
            question = b"%d/%d" % (name, number)
            await caller.publish(question, destination=SERVICE, reply_to=REPLIES, correlation_id=str(number))
            reply = await caller.next_message()
            assert (reply.body, reply.headers["correlation-id"]) == (question, str(number))

    async with trio.open_nursery() as serving:
        for worker in workers:
            serving.start_soon(serve, worker)
        async with trio.open_nursery() as calling:
            for name, caller in enumerate(callers):
                calling.start_soon(call, caller, name)
        serving.cancel_scope.cancel()


async def test_no_permission_is_needed_for_ones_own_replies_and_the_request_needs_one(tmp_path: Path) -> None:
    users = tmp_path / "users.toml"
    add_user(users, "caller", write=["queue:service"])
    add_user(users, "worker", read=["queue:service"])
    async with running_broker(users_file=str(users)) as broker:
        worker = await broker.client(login="worker", passcode=PASSWORD)
        await worker.subscribe(SERVICE, ack="client-individual")
        caller = await broker.client(login="caller", passcode=PASSWORD)
        await caller.publish(b"?", destination=SERVICE, reply_to=REPLIES, correlation_id="c")
        await answer(worker, await worker.next_message(), b"!")
        assert (await caller.next_message()).body == b"!"
        await caller.send("SEND", destination="/queue/other", reply_to=REPLIES)
        await caller.expect_error("not allowed")


@pytest.mark.parametrize(
    ("command", "headers", "words"),
    [
        ("SUBSCRIBE", {"destination": "/reply-queue/" + "a" * 32}, ["temporary destination", "one connection"]),
        ("SUBSCRIBE", {"destination": "/remote-temp-queue/" + "a" * 32}, ["temporary destination"]),
        ("SUBSCRIBE", {"destination": "/temp-queue/"}, ["'destination'", "at least one character"]),
        ("SUBSCRIBE", {"destination": REPLIES, "group": "g"}, ["contradicts durability", "leave group"]),
        ("SUBSCRIBE", {"destination": REPLIES, "durable": "true"}, ["contradicts durability"]),
        ("SEND", {"destination": REPLIES}, ["unknown temporary destination", "SUBSCRIBE to it"]),
        ("SEND", {"destination": "/reply-queue/guess"}, ["unknown temporary destination", "reply-to of the request"]),
        ("SEND", {"destination": "/topic/a", "reply_to": "/temp-queue/"}, ["'reply-to'", "at least one character"]),
        ("SEND", {"destination": "/topic/a", "reply_to": "/temp-topic/" + "x" * 256}, ["'reply-to'", "255 bytes"]),
        ("SEND", {"destination": "/topic/a", "outcome_to": "/temp-queue/"}, ["'outcome-to'", "at least one character"]),
    ],
)
async def test_bad_input_is_an_error_that_says_what_to_do(
    autojump_clock: MockClock, broker: BrokerUnderTest, command: str, headers: dict[str, str], words: list[str]
) -> None:
    client = await broker.client()

    await client.send(command, id="0", **headers)

    await client.expect_error(*words)


async def test_there_is_a_bound_on_how_many_a_connection_has(autojump_clock: MockClock) -> None:
    async with running_broker(max_subscriptions=3) as broker:
        client = await broker.client()
        for number in range(4):
            await client.publish(b"x", destination="/topic/a", reply_to=f"/temp-queue/{number}")

        await client.expect_error("too many")


async def test_a_request_that_cannot_subscribe_to_its_replies_is_named(autojump_clock: MockClock) -> None:
    async with running_broker(max_subscriptions=1) as broker:
        client = await broker.subscriber("/topic/a")

        await client.publish(b"?", destination=SERVICE, reply_to=REPLIES, receipt="r")

        assert (await client.expect_error("too many subscriptions")).headers["receipt-id"] == "r"


async def test_that_nobody_serves_is_told_in_one_round_trip(autojump_clock: MockClock, broker: BrokerUnderTest) -> None:
    caller = await broker.client()

    await caller.publish(
        b"?", destination="/topic/service", reply_to=REPLIES, correlation_id="42", mandatory="true", receipt="sent"
    )

    await caller.expect_receipt("sent")
    returned = await caller.next_message()
    assert (returned.body, returned.headers["returned"]) == (b"?", "no-subscriber")
    assert (returned.headers["correlation-id"], returned.headers["subscription"]) == ("42", REPLIES)
