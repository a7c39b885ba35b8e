"""One durable subscription, several connections: who has it, and what becomes of what was in flight."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from trio.testing import wait_all_tasks_blocked

from stompbroker.delivery import collecting

if TYPE_CHECKING:
    from trio.testing import MockClock

    from tests.support.broker_under_test import BrokerUnderTest


async def test_the_newest_connection_wins(durable_broker: BrokerUnderTest) -> None:
    old = await durable_broker.durable_subscriber()
    new = await durable_broker.durable_subscriber()

    await old.expect_error("durable subscription taken over", new.session.peer)
    await durable_broker.store_messages(b"1")
    assert await new.next_bodies(1) == [b"1"]


async def test_what_was_in_flight_comes_at_once_to_the_new_one_marked_redelivered(
    durable_broker: BrokerUnderTest,
) -> None:
    """Before anything new, in order. A take-over counts no attempt."""
    old = await durable_broker.durable_subscriber(prefetch_count="3")
    await durable_broker.store_messages(b"1", b"2", b"3", b"4")
    first, _, _ = await old.next_messages(3)
    await old.send("ACK", id=first.headers["ack"])
    assert await old.next_bodies(1) == [b"4"]

    new = await durable_broker.durable_subscriber()
    await durable_broker.store_messages(b"5")
    messages = await durable_broker.rest_for(new)

    assert [message.body for message in messages] == [b"2", b"3", b"4", b"5"]
    assert [message.headers["redelivered"] for message in messages] == ["true", "true", "true", "false"]
    assert {message.headers["delivery-count"] for message in messages} == {"1"}


async def test_an_ack_still_in_the_old_ones_buffer_is_not_applied(durable_broker: BrokerUnderTest) -> None:
    """It comes after the take-over, and would settle what the new one is working on."""
    old = await durable_broker.durable_subscriber()
    await durable_broker.store_messages(b"1")
    message = await old.next_message()
    new = await durable_broker.client(client_id="billing")

    # Both are sent before either is read: the newcomer's first.
    await new.send("SUBSCRIBE", id="0", destination="/topic/a", durable_subscription_name="orders", ack="client")
    await old.send("ACK", id=message.headers["ack"], receipt="too late")

    again = await new.next_message()
    assert (again.body, again.headers["redelivered"]) == (b"1", "true")
    await old.expect_error("taken over")
    await durable_broker.settle()
    topic = durable_broker.registry.topics["a"]
    assert collecting.settled_floor(topic) < topic.log.end_offset
    await new.vanish()
    third = await durable_broker.durable_subscriber()
    assert await third.next_bodies(1) == [b"1"]


async def test_the_third_take_over_within_a_minute_is_refused_with_the_others_address(
    durable_broker: BrokerUnderTest, mock_clock: MockClock
) -> None:
    """Two instances with one identity must not evict each other for ever."""
    first = await durable_broker.durable_subscriber()
    second = await durable_broker.durable_subscriber()
    await first.expect_error("taken over")
    third = await durable_broker.durable_subscriber()
    await second.expect_error("taken over")

    fourth = await durable_broker.client(client_id="billing")
    await fourth.send("SUBSCRIBE", id="0", destination="/topic/a", durable_subscription_name="orders", receipt="there")

    error = await fourth.expect_error("durable subscription in use", third.session.peer)
    assert error.headers["receipt-id"] == "there"
    await durable_broker.store_messages(b"1")
    assert await third.next_bodies(1) == [b"1"]
    # A minute later it may be taken over again.
    await durable_broker.settle()
    mock_clock.jump(61)
    await durable_broker.durable_subscriber()
    await third.expect_error("taken over")


async def test_coming_back_after_a_loss_is_no_take_over(durable_broker: BrokerUnderTest) -> None:
    for _ in range(6):
        subscriber = await durable_broker.durable_subscriber()
        await subscriber.vanish()


async def test_coming_back_before_the_loss_is_noticed_is_no_take_over(durable_broker: BrokerUnderTest) -> None:
    for number in range(6):
        subscriber = await durable_broker.durable_subscriber()
        await durable_broker.store_messages(b"%d" % number)
        assert (await subscriber.next_message()).body == b"0", "nothing of it is lost"
        subscriber.session.outbox.has_left = lambda: True

    # None of that was counted: it may still be taken over twice from somebody who is there.
    for _ in range(3):
        await durable_broker.durable_subscriber()


async def test_the_same_connection_cannot_have_it_twice(durable_broker: BrokerUnderTest) -> None:
    subscriber = await durable_broker.durable_subscriber()

    await subscriber.send("SUBSCRIBE", id="1", destination="/topic/a", durable_subscription_name="orders")

    await subscriber.expect_error("subscription exists", "orders")
    assert durable_broker.count("subscriptions") == 1


async def test_the_same_connection_cannot_have_it_twice_by_way_of_dsub(durable_broker: BrokerUnderTest) -> None:
    subscriber = await durable_broker.durable_subscriber()

    await subscriber.send("SUBSCRIBE", id="1", destination="/dsub/orders")

    await subscriber.expect_error("subscription exists", "orders")


@pytest.mark.parametrize("how", ["UNSUBSCRIBE", "DISCONNECT"])
async def test_a_plain_unsubscribe_and_a_disconnect_keep_it(how: str, durable_broker: BrokerUnderTest) -> None:
    subscriber = await durable_broker.durable_subscriber()
    await durable_broker.store_messages(b"1")
    assert await subscriber.next_bodies(1) == [b"1"]

    await subscriber.send(how, receipt="left", **({"id": "0"} if how == "UNSUBSCRIBE" else {}))
    await subscriber.expect_receipt("left")
    await durable_broker.store_messages(b"2")

    again = await durable_broker.durable_subscriber()
    messages = await durable_broker.rest_for(again)
    assert [(message.body, message.headers["redelivered"]) for message in messages] == [(b"1", "true"), (b"2", "false")]


async def test_after_a_plain_unsubscribe_the_same_connection_can_have_it_again(durable_broker: BrokerUnderTest) -> None:
    """In one chunk, with an answer to what came before: the answer is for the first attachment, and counts."""
    subscriber = await durable_broker.durable_subscriber()
    await durable_broker.store_messages(b"1", b"2")
    first, _ = await subscriber.next_messages(2)

    await subscriber.send_raw(
        subscriber.frame("ACK", id=first.headers["ack"])
        + subscriber.frame("UNSUBSCRIBE", id="0")
        + subscriber.frame(
            "SUBSCRIBE", id="0", destination="/topic/a", durable_subscription_name="orders", ack="client-individual"
        )
    )

    assert [message.body for message in await durable_broker.rest_for(subscriber)] == [b"2"]


async def test_deleting_one_that_another_connection_has_is_an_error(durable_broker: BrokerUnderTest) -> None:
    subscriber = await durable_broker.durable_subscriber()
    client = await durable_broker.client(client_id="billing")

    await client.send("UNSUBSCRIBE", id="0", durable_subscription_name="orders", receipt="gone")

    error = await client.expect_error("durable subscription in use", subscriber.session.peer)
    assert error.headers["receipt-id"] == "gone"
    assert durable_broker.count("subscriptions") == 1
    await durable_broker.store_messages(b"1")
    assert await subscriber.next_bodies(1) == [b"1"]


async def test_a_take_over_ends_the_transactions_of_the_old_one(durable_broker: BrokerUnderTest) -> None:
    old = await durable_broker.durable_subscriber()
    await durable_broker.store_messages(b"1")
    message = await old.next_message()
    await old.send("BEGIN", transaction="t")
    await old.send("ACK", id=message.headers["ack"], transaction="t")
    await old.send("SEND", b"never", destination="/topic/a", transaction="t")
    await wait_all_tasks_blocked()

    new = await durable_broker.durable_subscriber()

    await old.expect_error("taken over")
    assert [message.body for message in await durable_broker.rest_for(new)] == [b"1"]


async def test_a_take_over_gives_the_old_one_its_receipts_first(durable_broker: BrokerUnderTest) -> None:
    old = await durable_broker.durable_subscriber()

    with durable_broker.held_store():
        await old.send("SEND", b"1", destination="/topic/a", receipt="stored")
        await wait_all_tasks_blocked()
        new = await durable_broker.client(client_id="billing")
        await new.send("SUBSCRIBE", id="0", destination="/topic/a", durable_subscription_name="orders")
        await wait_all_tasks_blocked()

    await old.expect_receipt("stored")
    await old.expect_error("taken over")
    assert [message.body for message in await durable_broker.rest_for(new)] == [b"1"]
