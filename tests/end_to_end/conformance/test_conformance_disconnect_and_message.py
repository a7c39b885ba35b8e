"""The checklist's items 53 and 54: DISCONNECT and MESSAGE."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trio.testing import wait_all_tasks_blocked

from tests.end_to_end.conformance.versions import V1_0, answer, every_version, from_1_1_on

if TYPE_CHECKING:
    from trio.testing import MockClock

    from stompbroker.stomp import Version
    from tests.support.broker_under_test import BrokerUnderTest


@every_version
async def test_item_53_everything_before_disconnect_counts_and_nothing_behind_it(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    subscriber = await broker.subscriber()
    client = await broker.client(version)
    seen_before = len(client.received)

    await client.send_raw(
        client.frame("SEND", b"before", destination="/topic/a", receipt="1")
        + client.frame("DISCONNECT", receipt="2")
        + client.frame("SEND", b"behind", destination="/topic/a", receipt="3")
        + b"\xff this is not even a frame \0\n\n\0"
    )

    await client.expect_receipt("1")
    await client.expect_receipt("2")
    await client.expect_closed()
    assert client.received[seen_before:].endswith(b"RECEIPT\nreceipt-id:2\n\n\0\n")
    assert (await subscriber.next_message()).body == b"before"
    await subscriber.expect_nothing()


@every_version
async def test_item_53_disconnect_without_receipt_closes_without_a_word(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.client(version)

    await client.send("DISCONNECT")

    await client.expect_closed()


@every_version
async def test_item_53_what_comes_after_disconnect_in_another_chunk_is_ignored(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    subscriber = await broker.subscriber()
    client = await broker.client(version)
    await client.send("DISCONNECT", receipt="bye")
    await client.expect_receipt("bye")

    await client.publish(b"too late")

    await client.expect_closed()
    await subscriber.expect_nothing()


@every_version
async def test_item_53_messages_on_their_way_come_before_the_last_receipt(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.subscriber(version=version)
    publisher = await broker.client()
    await publisher.publish(b"1", b"2")
    await wait_all_tasks_blocked()

    await client.send("DISCONNECT", receipt="bye")

    assert [message.body for message in await client.next_messages(2)] == [b"1", b"2"]
    await client.expect_receipt("bye")
    await client.expect_closed()


@every_version
async def test_item_53_an_ack_right_before_disconnect_counts(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.subscriber(version=version, ack="client")
    (subscription,) = broker.registry.subscriptions
    await client.publish(b"1")
    message = await client.next_message()

    await answer(client, "ACK", message)
    await client.send("DISCONNECT", receipt="bye")

    await client.expect_receipt("bye")
    assert subscription.counters.acked == 1


@from_1_1_on
async def test_item_54_a_message_has_destination_id_subscription_and_lengths(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.subscriber("/topic/a", version, id="my:sub")

    await client.publish(b"hello", content_type="text/plain", foo="bar")

    headers = dict((await client.next_message()).headers)
    assert headers.pop("message-id")
    assert headers == {
        "subscription": "my:sub",
        "destination": "/topic/a",
        "content-type": "text/plain",
        "content-length": "5",
        "foo": "bar",
        "redelivered": "false",
        "delivery-count": "1",
    }


@every_version
async def test_item_54_a_message_looks_like_this_on_the_wire(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.subscriber("/topic/a", version)
    seen_before = len(client.received)

    await client.publish(b"hello", foo="bar")

    message = await client.next_message()
    assert client.received[seen_before:] == (
        b"MESSAGE\nsubscription:0\nredelivered:false\ndelivery-count:1\nmessage-id:%b\ncontent-length:5\n"
        b"destination:/topic/a\nfoo:bar\n\nhello\0\n" % message.headers["message-id"].encode()
    )


async def test_item_54_in_1_0_a_message_names_its_subscription_if_that_has_an_id(
    autojump_clock: MockClock, broker: BrokerUnderTest
) -> None:
    client = await broker.client(V1_0)
    await client.send("SUBSCRIBE", destination="/topic/a")
    await client.send("SUBSCRIBE", destination="/topic/b", id="named")

    await client.publish(b"a", destination="/topic/a")
    await client.publish(b"b", destination="/topic/b")

    without, named = await client.next_messages(2)
    assert "subscription" not in without.headers
    assert named.headers["subscription"] == "named"


@every_version
async def test_item_54_the_destination_is_the_one_that_was_sent_to(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.subscriber("/topic/*", version)

    for destination in ("/topic/a", "a", "/topic//a/"):
        await client.publish(b"x", destination=destination)

    sent_to = [message.headers["destination"] for message in await client.next_messages(3)]
    assert sent_to == ["/topic/a", "a", "/topic//a/"]


@every_version
async def test_item_54_every_message_has_an_id_of_its_own(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    subscriber = await broker.subscriber("/topic/>", version)
    publishers = [await broker.client() for _ in range(3)]

    for publisher in publishers:
        await publisher.publish(*[b"x"] * 10, destination="/topic/a")
        await publisher.publish(*[b"x"] * 10, destination="/topic/b")
        await publisher.send("BEGIN", transaction="t")
        await publisher.publish(*[b"x"] * 10, transaction="t")
        await publisher.send("COMMIT", transaction="t")

    message_ids = {message.headers["message-id"] for message in await subscriber.next_messages(90)}
    assert len(message_ids) == 90


@every_version
async def test_item_54_all_subscribers_see_the_same_message_id(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    first, second = await broker.subscriber(version=version), await broker.subscriber()

    await first.publish(b"x")

    assert (await first.next_message()).headers["message-id"] == (await second.next_message()).headers["message-id"]
