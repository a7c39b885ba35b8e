"""The checklist's items 43 to 49: ACK and NACK.

What was acknowledged shows in what comes next: with a prefetch of n no more than n messages are in flight.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.end_to_end.conformance.mock_time import pass_time
from tests.end_to_end.conformance.versions import (
    V1_0,
    V1_1,
    V1_2,
    answer,
    every_answer,
    every_version,
    from_1_1_on,
    in_versions,
)

if TYPE_CHECKING:
    from trio.testing import MockClock

    from stompbroker.stomp import Frame, Version
    from tests.support.broker_under_test import BrokerUnderTest, Client

#: How long a refused message waits by default.
NACK_DELAY_S = 1.0


async def bodies(client: Client, count: int) -> list[bytes]:
    """The bodies of the next messages, and there are no more than these."""
    found = [message.body for message in await client.next_messages(count)]
    await client.expect_nothing()
    return found


async def consumer_of(
    broker: BrokerUnderTest, version: Version, mode: str, *, prefetch: int, sent: int
) -> tuple[Client, list[Frame]]:
    """A subscriber to whom numbered messages have been sent, as many as its prefetch lets through."""
    client = await broker.subscriber(version=version, ack=mode, prefetch_count=str(prefetch))
    await client.publish(*(b"%d" % number for number in range(1, sent + 1)))
    return client, await client.next_messages(min(prefetch, sent))


async def test_item_43_in_1_2_an_ack_names_the_ack_header(autojump_clock: MockClock, broker: BrokerUnderTest) -> None:
    client, (first,) = await consumer_of(broker, V1_2, "client", prefetch=1, sent=2)

    await client.send("ACK", id=first.headers["ack"])

    assert await bodies(client, 1) == [b"2"]


async def test_item_43_in_1_2_a_subscription_beside_the_id_is_ignored(
    autojump_clock: MockClock, broker: BrokerUnderTest
) -> None:
    client, (first,) = await consumer_of(broker, V1_2, "client", prefetch=1, sent=2)

    await client.send("ACK", id=first.headers["ack"], subscription="another", message_id="another")

    assert await bodies(client, 1) == [b"2"]


async def test_item_43_in_1_2_a_message_id_is_not_enough(autojump_clock: MockClock, broker: BrokerUnderTest) -> None:
    client, (first,) = await consumer_of(broker, V1_2, "client", prefetch=1, sent=1)

    await client.send("ACK", message_id=first.headers["message-id"], subscription="0")

    await client.expect_error("ACK needs the header 'id'")


async def test_item_43_in_1_1_an_ack_names_message_and_subscription(
    autojump_clock: MockClock, broker: BrokerUnderTest
) -> None:
    client, (first,) = await consumer_of(broker, V1_1, "client", prefetch=1, sent=2)

    await client.send("ACK", message_id=first.headers["message-id"], subscription="0")

    assert await bodies(client, 1) == [b"2"]


@pytest.mark.parametrize("missing", ["message-id", "subscription"])
async def test_item_43_in_1_1_both_are_needed(autojump_clock: MockClock, broker: BrokerUnderTest, missing: str) -> None:
    client, (first,) = await consumer_of(broker, V1_1, "client", prefetch=1, sent=1)
    headers = {"message-id": first.headers["message-id"], "subscription": "0"}
    del headers[missing]

    await client.send("ACK", **headers)

    await client.expect_error(f"ACK needs the header '{missing}'")


async def test_item_43_in_1_1_the_subscription_decides_whose_message_is_meant(
    autojump_clock: MockClock, broker: BrokerUnderTest
) -> None:
    client = await broker.client(V1_1)
    await client.subscribe(id="a", ack="client", prefetch_count="1")
    await client.subscribe(id="b", ack="client", prefetch_count="1")
    await client.publish(b"1", b"2")
    message_ids = {message.headers["message-id"] for message in await client.next_messages(2)}
    assert len(message_ids) == 1

    await client.send("ACK", message_id=message_ids.pop(), subscription="b")

    message = await client.next_message()
    assert (message.headers["subscription"], message.body) == ("b", b"2")
    await client.expect_nothing()


async def test_item_43_in_1_0_an_ack_names_the_message_alone(
    autojump_clock: MockClock, broker: BrokerUnderTest
) -> None:
    client, (first,) = await consumer_of(broker, V1_0, "client", prefetch=1, sent=2)

    await client.send("ACK", message_id=first.headers["message-id"])

    assert await bodies(client, 1) == [b"2"]


async def test_item_43_in_1_0_an_ack_counts_for_one_subscription_after_the_other(
    autojump_clock: MockClock, broker: BrokerUnderTest
) -> None:
    client = await broker.client(V1_0)
    for name in ("a", "b"):
        await client.subscribe(id=name, ack="client", prefetch_count="1")
    await client.publish(b"1", b"2")
    first, _ = await client.next_messages(2)

    subscriptions = []
    for _ in range(2):
        await client.send("ACK", message_id=first.headers["message-id"])
        following = await client.next_message()
        assert following.body == b"2"
        subscriptions.append(following.headers["subscription"])
        await client.expect_nothing()

    assert sorted(subscriptions) == ["a", "b"]


async def test_item_43_in_1_0_the_message_id_is_needed(autojump_clock: MockClock, broker: BrokerUnderTest) -> None:
    client = await broker.client(V1_0)

    await client.send("ACK", id="1-1")

    await client.expect_error("ACK needs the header 'message-id'")


@every_version
async def test_item_44_in_client_mode_an_ack_counts_for_everything_before_it(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client, messages = await consumer_of(broker, version, "client", prefetch=4, sent=10)

    await answer(client, "ACK", messages[2])

    assert await bodies(client, 3) == [b"5", b"6", b"7"]


@every_version
async def test_item_44_in_individual_mode_an_ack_counts_for_its_message_alone(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client, messages = await consumer_of(broker, version, "client-individual", prefetch=4, sent=10)

    await answer(client, "ACK", messages[2])

    assert await bodies(client, 1) == [b"5"]


@every_version
async def test_item_44_a_cumulative_ack_leaves_other_subscriptions_alone(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.client(version)
    for name in ("a", "b"):
        await client.subscribe(f"/topic/{name}", id=name, ack="client", prefetch_count="2")
    for name in ("a", "b"):
        await client.publish(b"1", b"2", b"3", b"4", destination=f"/topic/{name}")
    messages = await client.next_messages(4)
    last_of_b = next(m for m in reversed(messages) if m.headers["subscription"] == "b")

    await answer(client, "ACK", last_of_b)

    following = await client.next_messages(2)
    assert [(m.headers["subscription"], m.body) for m in following] == [("b", b"3"), ("b", b"4")]
    await client.expect_nothing()


@every_version
async def test_item_44_a_cumulative_ack_counts_over_all_topics_of_its_subscription(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.subscriber("/topic/*", version, ack="client", prefetch_count="3")
    (subscription,) = broker.registry.subscriptions
    for name in ("a", "b", "c"):
        await client.publish(name.encode(), destination=f"/topic/{name}")
    messages = await client.next_messages(3)

    await answer(client, "ACK", messages[1])

    await client.sync()
    assert subscription.counters.acked == 2


async def test_item_44_many_acks_in_one_chunk_count_each(autojump_clock: MockClock, broker: BrokerUnderTest) -> None:
    client, messages = await consumer_of(broker, V1_2, "client-individual", prefetch=6, sent=20)
    odd = [message for message in messages if int(message.body) % 2]

    await client.send_raw(b"".join(client.frame("ACK", id=message.headers["ack"]) for message in odd))

    assert await bodies(client, 3) == [b"7", b"8", b"9"]


@from_1_1_on
async def test_item_45_in_individual_mode_a_nack_counts_for_its_message_alone(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client, messages = await consumer_of(broker, version, "client-individual", prefetch=4, sent=4)

    await answer(client, "NACK", messages[2])
    await pass_time(NACK_DELAY_S)

    again = await client.next_message()
    assert (again.body, again.headers["redelivered"]) == (b"3", "true")
    assert again.headers["message-id"] == messages[2].headers["message-id"]
    await client.expect_nothing()


@from_1_1_on
async def test_item_45_in_client_mode_a_nack_counts_for_everything_before_it(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client, messages = await consumer_of(broker, version, "client", prefetch=4, sent=4)

    await answer(client, "NACK", messages[2])
    await pass_time(NACK_DELAY_S)

    assert await bodies(client, 3) == [b"1", b"2", b"3"]


@from_1_1_on
async def test_item_45_a_nack_leaves_what_was_acknowledged_before_alone(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client, messages = await consumer_of(broker, version, "client", prefetch=4, sent=4)

    await answer(client, "ACK", messages[1])
    await answer(client, "NACK", messages[3])
    await pass_time(NACK_DELAY_S)

    assert await bodies(client, 2) == [b"3", b"4"]


async def test_item_45_1_0_has_no_nack(autojump_clock: MockClock, broker: BrokerUnderTest) -> None:
    client, (first,) = await consumer_of(broker, V1_0, "client", prefetch=1, sent=1)

    await client.send("NACK", message_id=first.headers["message-id"], receipt="r")

    error = await client.expect_error("NACK is not part of STOMP 1.0")
    assert error.headers["receipt-id"] == "r"


@pytest.mark.parametrize(
    ("version", "missing"), [(V1_1, "message-id"), (V1_1, "subscription"), (V1_2, "id")], ids=lambda value: str(value)
)
async def test_item_45_a_nack_is_addressed_as_an_ack_is(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version, missing: str
) -> None:
    client, (first,) = await consumer_of(broker, version, "client", prefetch=1, sent=1)
    headers = {"id": "1-1", "message-id": first.headers["message-id"], "subscription": "0"}
    del headers[missing]

    await client.send("NACK", **headers)

    await client.expect_error(f"NACK needs the header '{missing}'")


@every_version
async def test_item_46_an_ack_in_an_unknown_transaction_is_an_error(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client, (first,) = await consumer_of(broker, version, "client", prefetch=1, sent=1)

    await answer(client, "ACK", first, transaction="none", receipt="r")

    error = await client.expect_error("unknown transaction", "'none'")
    assert error.headers["receipt-id"] == "r"


@from_1_1_on
async def test_item_46_a_nack_in_an_unknown_transaction_is_an_error(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client, (first,) = await consumer_of(broker, version, "client", prefetch=1, sent=1)

    await answer(client, "NACK", first, transaction="none")

    await client.expect_error("unknown transaction", "'none'")


@pytest.mark.parametrize("mode", ["client", "client-individual"])
async def test_item_47_in_1_2_a_message_that_wants_an_ack_says_which(
    autojump_clock: MockClock, broker: BrokerUnderTest, mode: str
) -> None:
    client = await broker.client()
    for name in ("0", "with:colon\nand \\"):
        await client.subscribe(id=name, ack=mode)
    await client.publish(*[b"x"] * 20)

    ack_ids = [message.headers["ack"] for message in await client.next_messages(40)]

    assert len(set(ack_ids)) == 40
    assert all(re.fullmatch("[A-Za-z0-9_-]+", ack_id) for ack_id in ack_ids)


async def test_item_47_a_redelivery_has_an_ack_id_of_its_own(
    autojump_clock: MockClock, broker: BrokerUnderTest
) -> None:
    client, (first,) = await consumer_of(broker, V1_2, "client-individual", prefetch=1, sent=1)

    await answer(client, "NACK", first)
    again = await client.next_message()

    assert again.headers["ack"] != first.headers["ack"]
    assert re.fullmatch("[A-Za-z0-9_-]+", again.headers["ack"])


async def test_item_47_a_message_that_wants_no_ack_has_no_ack_id(
    autojump_clock: MockClock, broker: BrokerUnderTest
) -> None:
    client = await broker.subscriber(ack="auto")

    await client.publish(b"x")

    assert "ack" not in (await client.next_message()).headers


@in_versions(V1_0, V1_1)
async def test_item_47_before_1_2_there_are_no_ack_ids(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    _, (first,) = await consumer_of(broker, version, "client", prefetch=1, sent=1)

    assert "ack" not in first.headers


@pytest.mark.parametrize("command", ["ACK", "NACK"])
@pytest.mark.parametrize(
    "ack_id",
    ["", "0", "1", "1-", "-1", "1-0", "1-3", "0-1", "2-1", "1-1-1", "1-x", "1 -1", "1-\u0661", "1-" + "9" * 50],
)
async def test_item_48_in_1_2_an_id_never_given_is_an_error(
    autojump_clock: MockClock, broker: BrokerUnderTest, command: str, ack_id: str
) -> None:
    client, _ = await consumer_of(broker, V1_2, "client", prefetch=2, sent=2)

    await client.send(command, id=ack_id, receipt="r")

    error = await client.expect_error("unknown ack id", repr(ack_id))
    assert error.headers["receipt-id"] == "r"


async def test_item_48_in_1_2_an_id_never_given_is_an_error_among_many_acks(
    autojump_clock: MockClock, broker: BrokerUnderTest
) -> None:
    client, _ = await consumer_of(broker, V1_2, "client-individual", prefetch=3, sent=3)
    (subscription,) = broker.registry.subscriptions

    await client.send_raw(b"".join(b"ACK\nid:1-%d\n\n\0" % number for number in (1, 2, 3, 4)))

    await client.expect_error("unknown ack id", "'1-4'")
    assert subscription.counters.acked == 3


@in_versions(V1_0, V1_1)
async def test_item_48_a_message_id_never_given_is_an_error(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client, (first,) = await consumer_of(broker, version, "client", prefetch=1, sent=1)

    await client.send("ACK", message_id=first.headers["message-id"] + "0", subscription="0", receipt="r")

    error = await client.expect_error("unknown message id")
    assert error.headers["receipt-id"] == "r"


async def test_item_48_in_1_1_a_subscription_that_never_was_is_an_error(
    autojump_clock: MockClock, broker: BrokerUnderTest
) -> None:
    client, (first,) = await consumer_of(broker, V1_1, "client", prefetch=1, sent=1)

    await client.send("ACK", message_id=first.headers["message-id"], subscription="another")

    await client.expect_error("unknown subscription", "'another'")


@every_answer
@pytest.mark.parametrize("mode", ["client", "client-individual"])
async def test_item_48_an_answer_to_what_is_settled_is_counted_and_does_no_harm(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version, mode: str, command: str
) -> None:
    client, (first,) = await consumer_of(broker, version, mode, prefetch=1, sent=1)
    (subscription,) = broker.registry.subscriptions
    await answer(client, "ACK", first)

    await answer(client, command, first, receipt="late")
    await client.expect_receipt("late")
    await pass_time(NACK_DELAY_S)

    await client.expect_nothing()
    assert subscription.counters.acked == 1
    assert subscription.counters.late + client.session.commands.late_answers == 1


@from_1_1_on
async def test_item_48_an_ack_that_comes_while_its_message_waits_to_go_again_settles_it(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client, (first,) = await consumer_of(broker, version, "client-individual", prefetch=1, sent=1)
    await answer(client, "NACK", first)

    await answer(client, "ACK", first)
    await pass_time(10 * NACK_DELAY_S)

    await client.expect_nothing()


@from_1_1_on
async def test_item_48_an_ack_of_the_first_delivery_settles_the_message_though_it_went_again(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client, (first,) = await consumer_of(broker, version, "client-individual", prefetch=1, sent=2)
    await answer(client, "NACK", first)
    second = await client.next_message()
    await answer(client, "ACK", second)
    again = await client.next_message()
    assert again.body == first.body

    await answer(client, "ACK", first, receipt="late")

    await client.expect_receipt("late")
    (subscription,) = broker.registry.subscriptions
    assert subscription.counters.acked == 2


@every_version
async def test_item_49_what_a_lost_client_had_not_acknowledged_is_not_consumed(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    """As long as a subscription has one consumer and ends with it, nobody else can be given its messages."""
    lost, messages = await consumer_of(broker, version, "client-individual", prefetch=3, sent=3)
    (subscription,) = broker.registry.subscriptions
    await answer(lost, "ACK", messages[1])

    await lost.vanish()

    assert subscription.counters.acked == 1
    assert subscription.is_closed


@every_version
async def test_item_49_another_subscriber_still_gets_what_a_lost_client_did_not_acknowledge(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    stays = await broker.subscriber(version=version, ack="client-individual", prefetch_count="1")
    lost, messages = await consumer_of(broker, version, "client-individual", prefetch=3, sent=3)
    await answer(lost, "ACK", messages[1])

    await lost.vanish()

    for expected in (b"1", b"2", b"3"):
        message = await stays.next_message()
        assert message.body == expected
        await answer(stays, "ACK", message)
