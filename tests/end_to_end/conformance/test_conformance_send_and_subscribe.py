"""The checklist's items 37 to 42: SEND, SUBSCRIBE, UNSUBSCRIBE."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.end_to_end.conformance.versions import V1_0, V1_2, answer, every_version, from_1_1_on

if TYPE_CHECKING:
    from trio.testing import MockClock

    from stompbroker.stomp import Version
    from tests.support.broker_under_test import BrokerUnderTest


@every_version
async def test_item_37_send_needs_a_destination(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.client(version)

    await client.send("SEND", b"x", receipt="r")

    error = await client.expect_error("SEND needs the header 'destination'")
    assert error.headers["receipt-id"] == "r"


@every_version
@pytest.mark.parametrize("destination", ["", "/topic/", "/topic/*", "/topic/a.>", "/exchange/a", "/topic/" + "x" * 256])
async def test_item_37_a_send_that_fails_ends_the_connection(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version, destination: str
) -> None:
    client = await broker.client(version)

    await client.send("SEND", b"x", destination=destination, receipt="r")

    error = await client.expect_error("invalid destination")
    assert error.headers["receipt-id"] == "r"


@every_version
@pytest.mark.parametrize("in_transaction", [False, True], ids=["alone", "in a transaction"])
async def test_item_38_the_users_headers_reach_the_subscriber_and_the_publishers_own_do_not(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version, in_transaction: bool
) -> None:
    subscriber = await broker.subscriber(version=version, ack="client")
    publisher = await broker.client(version)
    within = {"transaction": "t"} if in_transaction else {}
    if in_transaction:
        await publisher.send("BEGIN", transaction="t")

    await publisher.publish(b"x", foo="bar", priority="9", reply_to="/topic/b", receipt="r", **within)
    if in_transaction:
        await publisher.send("COMMIT", transaction="t")

    headers = (await subscriber.next_message()).headers
    assert {"foo": "bar", "priority": "9", "reply-to": "/topic/b", "destination": "/topic/a"}.items() <= headers.items()
    assert not {"receipt", "transaction"} & headers.keys()


@every_version
async def test_item_38_what_is_the_brokers_to_say_cannot_be_forged(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    subscriber = await broker.subscriber(version=version, ack="client")
    publisher = await broker.client(version)
    forged = dict.fromkeys(("message_id", "subscription", "ack", "redelivered", "delivery_count"), "forged")
    seen_before = len(subscriber.received)

    await publisher.publish(b"x", **forged)

    headers = (await subscriber.next_message()).headers
    assert headers["subscription"] == "0"
    assert headers["redelivered"] == "false"
    assert b"forged" not in subscriber.received[seen_before:]


async def test_item_38_a_line_feed_cannot_inject_a_header_into_1_0(
    autojump_clock: MockClock, broker: BrokerUnderTest
) -> None:
    subscriber = await broker.subscriber(version=V1_0)
    publisher = await broker.client(V1_2)

    await publisher.publish(b"x", foo="a\nevil:1", **{"b\nevil:2\nc": "d"})

    assert "evil" not in (await subscriber.next_message()).headers


@every_version
async def test_item_39_subscribe_needs_a_destination(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.client(version)

    await client.send("SUBSCRIBE", id="0", receipt="r")

    error = await client.expect_error("SUBSCRIBE needs the header 'destination'")
    assert error.headers["receipt-id"] == "r"


@from_1_1_on
async def test_item_39_subscribe_needs_an_id(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.client(version)

    await client.send("SUBSCRIBE", destination="/topic/a", receipt="r")

    error = await client.expect_error("SUBSCRIBE needs the header 'id'")
    assert error.headers["receipt-id"] == "r"


async def test_item_39_in_1_0_the_id_is_optional(autojump_clock: MockClock, broker: BrokerUnderTest) -> None:
    client = await broker.client(V1_0)

    await client.send("SUBSCRIBE", destination="/topic/a", receipt="r")
    await client.publish(b"x")

    await client.expect_receipt("r")
    assert (await client.next_message()).body == b"x"


@from_1_1_on
async def test_item_39_an_empty_id_is_an_id_like_any_other(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.client(version)
    await client.subscribe("/topic/a", id="")

    await client.publish(b"x")
    message = await client.next_message()
    await client.send("UNSUBSCRIBE", id="", receipt="gone")

    assert message.headers["subscription"] == ""
    await client.expect_receipt("gone")


@every_version
async def test_item_39_a_subscribe_that_fails_ends_the_connection(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.client(version)

    await client.send("SUBSCRIBE", id="0", destination="/exchange/a", receipt="r")

    error = await client.expect_error("invalid destination", "/exchange/")
    assert error.headers["receipt-id"] == "r"
    assert not broker.registry.subscriptions


@every_version
@pytest.mark.parametrize("destination", ["/topic/a", "/topic/b"], ids=["same topic", "another topic"])
async def test_item_40_an_id_in_use_is_an_error(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version, destination: str
) -> None:
    client = await broker.subscriber("/topic/a", version)

    await client.send("SUBSCRIBE", id="0", destination=destination, receipt="r")

    error = await client.expect_error("subscription exists", "'0'")
    assert error.headers["receipt-id"] == "r"


async def test_item_40_in_1_0_a_second_subscription_without_id_is_an_error(
    autojump_clock: MockClock, broker: BrokerUnderTest
) -> None:
    client = await broker.client(V1_0)
    await client.send("SUBSCRIBE", destination="/topic/a")

    await client.send("SUBSCRIBE", destination="/topic/a")

    await client.expect_error("subscription exists", "/topic/a")


@every_version
async def test_item_40_an_id_is_free_again_after_unsubscribe(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.subscriber("/topic/a", version)

    await client.send("UNSUBSCRIBE", id="0")
    await client.subscribe("/topic/b")
    await client.publish(b"not this", destination="/topic/a")
    await client.publish(b"this", destination="/topic/b")

    assert (await client.next_message()).body == b"this"


async def test_item_40_ids_are_unique_per_connection_only(autojump_clock: MockClock, broker: BrokerUnderTest) -> None:
    first, second = await broker.subscriber(), await broker.subscriber()

    await first.publish(b"x")

    assert (await first.next_message()).headers["subscription"] == "0"
    assert (await second.next_message()).headers["subscription"] == "0"


@every_version
async def test_item_40_two_subscriptions_to_one_topic_both_get_its_messages(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.client(version)
    await client.subscribe(id="one")
    await client.subscribe(id="two")

    await client.publish(b"x")

    subscriptions = {message.headers["subscription"] for message in await client.next_messages(2)}
    assert subscriptions == {"one", "two"}


@every_version
@pytest.mark.parametrize("value", ["none", "", "AUTO", "client-Individual", "true"])
async def test_item_41_an_unknown_ack_mode_is_an_error(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version, value: str
) -> None:
    client = await broker.client(version)

    await client.send("SUBSCRIBE", id="0", destination="/topic/a", ack=value, receipt="r")

    error = await client.expect_error("unknown ack mode", "auto, client, client-individual")
    assert error.headers["receipt-id"] == "r"


@every_version
@pytest.mark.parametrize("headers", [{}, {"ack": "auto"}], ids=["default", "auto"])
async def test_item_41_auto_is_the_default_and_waits_for_no_ack(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version, headers: dict[str, str]
) -> None:
    subscriber = await broker.subscriber(version=version, prefetch_count="1", **headers)

    await subscriber.publish(b"one", b"two", b"three")

    assert [message.body for message in await subscriber.next_messages(3)] == [b"one", b"two", b"three"]


@every_version
@pytest.mark.parametrize("mode", ["client", "client-individual"])
async def test_item_41_the_other_modes_wait_for_the_ack(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version, mode: str
) -> None:
    subscriber = await broker.subscriber(version=version, prefetch_count="1", ack=mode)

    await subscriber.publish(b"one", b"two")
    first = await subscriber.next_message()
    await subscriber.expect_nothing()
    await answer(subscriber, "ACK", first)

    assert (await subscriber.next_message()).body == b"two"


@every_version
async def test_item_42_no_message_comes_after_unsubscribe(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.subscriber(version=version)

    await client.send_raw(
        client.frame("UNSUBSCRIBE", id="0", receipt="gone") + client.frame("SEND", b"x", destination="/topic/a")
    )

    await client.expect_receipt("gone")
    await client.expect_nothing()
    assert not broker.registry.subscriptions


@every_version
async def test_item_42_no_message_comes_after_unsubscribe_though_more_was_waiting(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.subscriber(version=version, ack="client", prefetch_count="2")
    await client.publish(*[b"x"] * 10)
    await client.next_messages(2)

    await client.send("UNSUBSCRIBE", id="0", receipt="gone")

    await client.expect_receipt("gone")
    await client.expect_nothing()


@every_version
async def test_item_42_unsubscribe_from_nothing_is_an_error(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.subscriber(version=version)

    await client.send("UNSUBSCRIBE", id="1", receipt="r")

    error = await client.expect_error("unknown subscription", "'1'")
    assert error.headers["receipt-id"] == "r"


@from_1_1_on
async def test_item_42_unsubscribe_needs_an_id(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.subscriber(version=version)

    await client.send("UNSUBSCRIBE", destination="/topic/a")

    await client.expect_error("UNSUBSCRIBE needs the header 'id'")


async def test_item_42_in_1_0_unsubscribe_may_name_the_destination(
    autojump_clock: MockClock, broker: BrokerUnderTest
) -> None:
    client = await broker.client(V1_0)
    await client.send("SUBSCRIBE", destination="/topic/a")
    await client.send("SUBSCRIBE", destination="/topic/b")

    await client.send("UNSUBSCRIBE", destination="/topic/a", receipt="gone")
    await client.publish(b"not this", destination="/topic/a")
    await client.publish(b"this", destination="/topic/b")

    await client.expect_receipt("gone")
    assert (await client.next_message()).body == b"this"


async def test_item_42_in_1_0_unsubscribe_needs_one_of_the_two(
    autojump_clock: MockClock, broker: BrokerUnderTest
) -> None:
    client = await broker.client(V1_0)

    await client.send("UNSUBSCRIBE")

    await client.expect_error("'id'", "'destination'")


@every_version
async def test_item_42_a_destination_beside_the_id_does_no_harm(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.subscriber(version=version)

    await client.send("UNSUBSCRIBE", id="0", destination="/topic/a", receipt="gone")

    await client.expect_receipt("gone")


@every_version
async def test_item_42_an_answer_that_comes_after_unsubscribe_is_late_and_no_error(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.subscriber(version=version, ack="client")
    await client.publish(b"x")
    message = await client.next_message()

    await client.send("UNSUBSCRIBE", id="0")
    await answer(client, "ACK", message, receipt="late")

    await client.expect_receipt("late")
    assert client.session.commands.late_answers == 1


async def test_item_42_many_answers_that_come_after_unsubscribe_are_late_and_no_error(
    autojump_clock: MockClock, broker: BrokerUnderTest
) -> None:
    client = await broker.subscriber(ack="client-individual")
    await client.publish(b"1", b"2", b"3")
    messages = await client.next_messages(3)

    await client.send("UNSUBSCRIBE", id="0")
    await client.send_raw(b"".join(client.frame("ACK", id=message.headers["ack"]) for message in messages))

    await client.sync()
    assert client.session.commands.late_answers == 3


@every_version
async def test_item_42_an_answer_before_unsubscribe_in_the_same_chunk_counts(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.subscriber(version=version, ack="client")
    (subscription,) = broker.registry.subscriptions
    await client.publish(b"x")
    message = await client.next_message()
    named = {"message_id": message.headers["message-id"], "subscription": "0", "id": message.headers.get("ack", "0")}

    await client.send_raw(client.frame("ACK", **named) + client.frame("UNSUBSCRIBE", id="0", receipt="gone"))

    await client.expect_receipt("gone")
    assert subscription.counters.acked == 1
