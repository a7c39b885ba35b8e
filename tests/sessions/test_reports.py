"""Publishers that ask are told at once who will get a message (`report`), and that nobody will (`mandatory`)."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from trio.testing import wait_all_tasks_blocked

from tests.end_to_end.conformance.versions import every_version
from tests.support.broker_under_test import running_broker
from tests.support.users import PASSWORD, add_user
from tests.support.work import operations

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from trio.testing import MockClock

    from stompbroker.stomp import Frame, Version
    from tests.support.broker_under_test import BrokerUnderTest, Client

    Start = Callable[..., AbstractAsyncContextManager[BrokerUnderTest]]

JOBS = "/queue/jobs"
ANSWERS = "/queue/answers"


@pytest.fixture(params=[True, False], ids=["stored", "in-memory"])
def start(request: pytest.FixtureRequest, store_directory: Path) -> Start:
    """Starts a broker with or without a store; `has_store` says which."""

    @asynccontextmanager
    async def started(**settings: object) -> AsyncIterator[BrokerUnderTest]:
        where = {"store_in": store_directory} if request.param else {}
        async with running_broker(**where, **settings) as broker:  # type: ignore[arg-type]
            yield broker

    return started


def has_store(broker: BrokerUnderTest) -> bool:
    return broker.parts.opened is not None


async def report(client: Client, receipt: str = "r") -> dict[str, str]:
    """What the next RECEIPT says."""
    frame = await client.next_frame()
    assert frame.command == "RECEIPT", frame
    assert frame.headers.pop("receipt-id") == receipt
    return frame.headers


async def reported(client: Client, destination: str = "/topic/a", **headers: str) -> dict[str, str]:
    await client.publish(b"x", destination=destination, report="true", receipt="r", **headers)
    return await report(client)


def said(*, matched: int = 0, transient: int = 0, stored: bool = False, offset: int = 0) -> dict[str, str]:
    return {
        "matched": str(matched),
        "matched-transient": str(transient),
        "stored": str(stored).lower(),
        "offset": str(offset),
    }


# Reports --------------------------------------------------------------------------------------------------------------


async def test_a_report_counts_plain_subscribers_and_numbers_messages(start: Start) -> None:
    async with start() as broker:
        publisher = await broker.client()
        assert await reported(publisher) == said()
        await broker.subscriber("/topic/a")
        await broker.subscriber("/topic/>", ack="client")
        await broker.subscriber("/topic/b")

        assert await reported(publisher) == said(transient=2, offset=1)
        await publisher.publish(b"in between")

        assert await reported(publisher) == said(transient=2, offset=3)


async def test_a_report_counts_a_group_once_however_many_members_it_has(start: Start) -> None:
    async with start() as broker:
        for _ in range(3):
            await broker.subscriber("/topic/a", group="g", auto_delete="true")
        await broker.subscriber("/topic/a")

        assert await reported(await broker.client()) == said(matched=1, transient=1)


async def test_a_queue_is_one_match_with_and_without_consumers(start: Start) -> None:
    async with start() as broker:
        publisher = await broker.client()
        is_stored = has_store(broker)

        assert await reported(publisher, JOBS) == said(matched=1, stored=is_stored)
        for _ in range(2):
            await broker.subscriber(JOBS)

        assert await reported(publisher, JOBS) == said(matched=1, stored=is_stored, offset=1)
        assert await reported(publisher, JOBS, persistent="false") == said(matched=1, offset=2)


async def test_durable_subscriptions_match_while_they_are_away(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        away = await broker.durable_subscriber()
        await away.vanish()
        await broker.durable_subscriber("/topic/>", "everything", client_id="archive")
        publisher = await broker.client()

        assert await reported(publisher) == said(matched=2, stored=True)


async def test_persistent_false_matches_only_those_who_are_there(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        away = await broker.durable_subscriber()
        await away.vanish()
        await broker.durable_subscriber("/topic/>", "everything", client_id="archive")
        publisher = await broker.client()

        assert await reported(publisher, persistent="false") == said(matched=1)


async def test_what_a_topic_retains_is_stored_although_it_matches_nobody(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory, retain_messages=10) as broker:
        assert await reported(await broker.client()) == said(stored=True)


async def test_who_does_not_want_its_own_messages_does_not_match_them(start: Start) -> None:
    async with start() as broker:
        client = await broker.subscriber(no_local="true")

        assert await reported(client) == said()
        assert await reported(await broker.client()) == said(transient=1, offset=1)
        assert (await client.next_message()).body == b"x"


async def test_a_subscriber_that_has_left_does_not_match(start: Start) -> None:
    async with start() as broker:
        publisher = await broker.client()
        for destination in ("/topic/a", "/topic/>"):
            gone = await broker.subscriber(destination)
            await gone.vanish()

        assert await reported(publisher) == said()


async def test_a_subscriber_that_is_too_slow_to_get_a_message_does_not_match(autojump_clock: MockClock) -> None:
    async with running_broker(slow_subscriber="drop-newest", window_messages=10) as broker:
        await broker.subscriber(ack="client-individual", prefetch_count="1")
        publisher = await broker.client()
        for _ in range(12):
            await publisher.publish(b"x")
        await publisher.sync()

        assert (await reported(publisher))["matched-transient"] == "0"


async def test_many_in_one_write_have_each_their_report_in_order(start: Start) -> None:
    async with start() as broker:
        await broker.subscriber()
        publisher = await broker.client()
        frames = [
            publisher.frame(
                "SEND",
                b"%d" % number,
                destination="/topic/a",
                receipt=f"r{number}",
                **({} if number % 3 == 0 else {"report": "true"}),
            )
            for number in range(20)
        ]

        await publisher.send_raw(b"".join(frames))

        for number in range(20):
            expected = {} if number % 3 == 0 else said(transient=1, offset=number)
            assert await report(publisher, f"r{number}") == expected


async def test_receivers_do_not_see_what_was_asked(start: Start) -> None:
    async with start() as broker:
        subscriber, publisher = await broker.subscriber(), await broker.client()
        await publisher.publish(b"x", report="true", mandatory="true", receipt="r", color="red")
        await publisher.publish(b"y", report="false", mandatory="False", returned="no-subscriber")

        first, second = await subscriber.next_messages(2)

        assert first.headers["color"] == "red"
        for message in (first, second):
            assert not {"report", "mandatory", "receipt", "returned"} & message.headers.keys()


async def test_a_report_comes_when_the_message_is_on_disk(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        publisher = await broker.client()
        await reported(publisher, JOBS)
        with broker.held_store():
            await publisher.publish(b"x", destination=JOBS, report="true", receipt="held")
            await wait_all_tasks_blocked()
            assert not await publisher.has_more()

        assert await report(publisher, "held") == said(matched=1, stored=True, offset=1)


@every_version
async def test_every_version_is_told(broker: BrokerUnderTest, autojump_clock: MockClock, version: Version) -> None:
    publisher = await broker.client(version)

    assert await reported(publisher) == said()


async def test_an_escaped_receipt_comes_back_as_it_was(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    publisher = await broker.client()

    await publisher.publish(b"x", report="true", receipt="a:b\nc")

    assert await report(publisher, "a:b\nc") == said()


# Nobody gets it -------------------------------------------------------------------------------------------------------


async def returned(broker: BrokerUnderTest, destination: str = ANSWERS) -> Frame:
    reader = await broker.subscriber(destination)
    return await reader.next_message()


async def test_what_nobody_gets_goes_to_its_reply_to(start: Start) -> None:
    async with start() as broker:
        publisher = await broker.client()
        await publisher.publish(
            b"anybody?", mandatory="true", report="true", receipt="r", reply_to=ANSWERS, correlation_id="c", x="a:b\n"
        )

        assert await report(publisher) == said()
        message = await returned(broker)

        assert message.body == b"anybody?"
        own = {name: message.headers.pop(name) for name in ("message-id", "subscription", "content-length")}
        assert own["message-id"].endswith("-2")
        assert message.headers == {
            "destination": ANSWERS,
            "returned": "no-subscriber",
            "returned-destination": "/topic/a",
            "reply-to": ANSWERS,
            "correlation-id": "c",
            "x": "a:b\n",
            "redelivered": "false",
            "delivery-count": "1",
        }


async def test_its_publisher_gets_it_back_in_spite_of_no_local(start: Start) -> None:
    async with start() as broker:
        client = await broker.subscriber("/topic/answers", no_local="true")
        await client.publish(b"x", b"y", mandatory="true", reply_to="/topic/answers")

        assert await client.next_bodies(2) == [b"x", b"y"]


async def test_what_was_returned_survives_a_restart_once_its_receipt_has_come(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        publisher = await broker.client()
        await publisher.publish(b"x", mandatory="true", receipt="r", reply_to=ANSWERS)
        await publisher.expect_receipt("r")
        broker.kill()
    async with running_broker(store_in=store_directory) as broker:
        assert (await returned(broker)).headers["returned"] == "no-subscriber"


async def test_what_is_returned_keeps_its_time_to_live(start: Start) -> None:
    async with start() as broker:
        publisher = await broker.client()
        await publisher.publish(b"x", mandatory="true", reply_to=ANSWERS, ttl="60000", receipt="r1")
        await publisher.publish(b"y", mandatory="true", reply_to=ANSWERS, persistent="false", receipt="r2")
        await publisher.expect_receipt("r1")
        await publisher.expect_receipt("r2")

        messages = [message for _, message in broker.registry.topics[ANSWERS].log]

        assert [message.origin.lifetime_ns for message in messages] == [60_000_000_000, None]
        assert [message.origin.is_persistent for message in messages] == [True, False]


async def test_a_returned_message_that_nobody_gets_is_not_returned_again(start: Start) -> None:
    async with start() as broker:
        publisher = await broker.client()
        await publisher.publish(b"x", mandatory="true", reply_to="/topic/nobody", receipt="r")

        await publisher.expect_receipt("r")
        assert broker.registry.topics["nobody"].published == 1


async def test_without_reply_to_it_is_an_error(start: Start) -> None:
    async with start() as broker:
        publisher = await broker.client()
        await publisher.publish(b"x", mandatory="true", receipt="r")

        error = await publisher.expect_error("mandatory:true", "/topic/a has no subscriber", "add reply-to")
        assert error.headers["receipt-id"] == "r"


@pytest.mark.parametrize("destination", ["/topic/a", JOBS])
async def test_what_somebody_gets_is_not_returned(start: Start, destination: str) -> None:
    async with start() as broker:
        if destination != JOBS:
            await broker.subscriber(destination)
        publisher = await broker.client()

        await publisher.publish(b"x", destination=destination, mandatory="true", receipt="r", reply_to=ANSWERS)
        await publisher.expect_receipt("r")
        await publisher.publish(b"y", destination=destination, mandatory="true", receipt="r2")
        await publisher.expect_receipt("r2")

        assert ANSWERS not in broker.registry.topics


async def test_what_is_returned_does_not_fill_a_queue_without_bound(autojump_clock: MockClock) -> None:
    async with running_broker(window_messages=10, block_timeout_s=5.0) as broker:
        publisher = await broker.client()
        for _ in range(10):
            await publisher.publish(b"x", mandatory="true", reply_to=ANSWERS)
        await publisher.publish(b"too much", mandatory="true", reply_to=ANSWERS, receipt="r")
        await wait_all_tasks_blocked()
        assert publisher.session.is_held_back

        error = await publisher.expect_error("queue is full", "'answers' is full")
        assert error.headers["receipt-id"] == "r"
        assert broker.registry.topics[ANSWERS].log.message_count == 10


async def test_who_waits_for_room_is_told_later(autojump_clock: MockClock) -> None:
    async with running_broker(window_messages=10) as broker:
        publisher = await broker.client()
        for _ in range(10):
            await publisher.publish(b"x", mandatory="true", reply_to=ANSWERS)
        await publisher.publish(b"late", mandatory="true", reply_to=ANSWERS, report="true", receipt="r")
        await wait_all_tasks_blocked()
        assert publisher.session.is_held_back
        assert publisher.session.commands.published == 0, "all counted by the worker, and none twice"

        reader = await broker.subscriber(ANSWERS)

        assert await reader.next_bodies(11) == [b"x"] * 10 + [b"late"]
        assert await report(publisher) == said(offset=10)


async def test_too_many_topics_to_return_it_is_an_error(autojump_clock: MockClock) -> None:
    async with running_broker(max_topics=1) as broker:
        publisher = await broker.client()
        await publisher.publish(b"x", mandatory="true", reply_to=ANSWERS)

        await publisher.expect_error("too many topics")


# Bad input ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ({"report": "true"}, ["report:true without receipt", "add a receipt header"]),
        ({"report": "maybe", "receipt": "r"}, ["malformed header 'report'", "true or false"]),
        ({"mandatory": ""}, ["malformed header 'mandatory'", "true or false"]),
        ({"mandatory": "true", "reply_to": "/topic/*"}, ["malformed header 'reply-to'", "one topic"]),
        ({"mandatory": "true", "reply_to": ""}, ["malformed header 'reply-to'"]),
        ({"mandatory": "true", "reply_to": "/queues/a"}, ["malformed header 'reply-to'", "use /queue/NAME"]),
    ],
)
async def test_what_cannot_be_asked_is_an_error(
    autojump_clock: MockClock, broker: BrokerUnderTest, headers: dict[str, str], words: list[str]
) -> None:
    client = await broker.client()

    await client.publish(b"x", **headers)

    error = await client.expect_error(*words)
    assert error.headers.get("receipt-id") == headers.get("receipt")


@pytest.mark.parametrize("header", ["report", "mandatory"])
async def test_a_transaction_tells_nothing(autojump_clock: MockClock, broker: BrokerUnderTest, header: str) -> None:
    client = await broker.client()
    await client.send("BEGIN", transaction="t")

    await client.publish(b"x", transaction="t", receipt="r", **{header: "true"})

    error = await client.expect_error(f"{header}:true in a transaction", "leave the header out")
    assert error.headers["receipt-id"] == "r"


async def test_what_asks_for_nothing_is_fine_everywhere(autojump_clock: MockClock, broker: BrokerUnderTest) -> None:
    client = await broker.client()
    await client.send("BEGIN", transaction="t")
    await client.publish(b"x", transaction="t", report="false", mandatory="FALSE")
    await client.publish(b"x", report="false")
    await client.send("COMMIT", transaction="t", receipt="r")

    await client.expect_receipt("r")


async def test_what_was_sent_before_a_mistake_counts(start: Start) -> None:
    async with start() as broker:
        subscriber, publisher = await broker.subscriber(), await broker.client()
        asked = publisher.frame("SEND", b"x", destination="/topic/a", report="true", receipt="r")
        wrong = publisher.frame("SEND", b"x", destination="/topic/a", report="true")

        await publisher.send_raw(asked * 2 + wrong + asked)

        assert await report(publisher) == said(transient=1)
        assert await report(publisher) == said(transient=1, offset=1)
        await publisher.expect_error("report:true without receipt")
        assert await subscriber.next_bodies(2) == [b"x", b"x"]
        await subscriber.sync()


async def test_a_message_may_be_returned_only_where_its_publisher_may_write(tmp_path: Path) -> None:
    users = tmp_path / "users.toml"
    add_user(users, "shop", write=["a", "queue:answers"])
    async with running_broker(users_file=str(users)) as broker:
        for denied in ("/queue/secret", "/topic/answers"):
            shop = await broker.client(login="shop", passcode=PASSWORD)
            await shop.publish(b"x", mandatory="true", reply_to=denied, receipt="r")
            await shop.expect_error("not allowed", f"to write '{denied}'")
        assert not broker.registry.topics
        shop = await broker.client(login="shop", passcode=PASSWORD)
        await shop.publish(b"x", mandatory="true", reply_to=ANSWERS, receipt="r")
        await shop.expect_receipt("r")
        await shop.publish(b"x", reply_to="/queue/secret", receipt="plain")
        await shop.expect_receipt("plain")


# Cost -----------------------------------------------------------------------------------------------------------------


async def test_a_report_costs_few_operations(broker: BrokerUnderTest, autojump_clock: MockClock) -> None:
    """Where each RECEIPT is rendered for itself, and everything else is done once per chunk."""
    await broker.subscriber()
    publisher = await broker.client()
    chunk = publisher.frame("SEND", b"x", destination="/topic/a", report="true", receipt="r") * 500
    publisher.session.receive(chunk)

    work = operations(lambda: publisher.session.receive(chunk))

    assert work / 500 < 26
