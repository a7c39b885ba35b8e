"""What a RECEIPT says about the database file, at the moment it comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trio.testing import wait_all_tasks_blocked

from tests.support.broker_under_test import running_broker

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.support.broker_under_test import BrokerUnderTest


async def test_a_sends_receipt_comes_when_its_row_is_in_the_file(durable_broker: BrokerUnderTest) -> None:
    await durable_broker.durable_subscriber()
    publisher = await durable_broker.client()

    for number in range(1, 4):
        await publisher.send("SEND", b"x", destination="/topic/a", receipt="stored")
        await publisher.expect_receipt("stored")
        assert durable_broker.count("messages") == number


async def test_nothing_is_sent_and_nothing_receipted_while_the_store_is_at_it(durable_broker: BrokerUnderTest) -> None:
    """Persisted before it is distributed: to the durable subscriber, and to everybody else on the topic."""
    durable = await durable_broker.durable_subscriber()
    transient = await durable_broker.subscriber()
    publisher = await durable_broker.client()

    with durable_broker.held_store():
        await publisher.send("SEND", b"x", destination="/topic/a", receipt="stored")
        await wait_all_tasks_blocked()
        topic = durable_broker.registry.topics["a"]
        assert topic.log.message_count == 0
        assert publisher.session.outbox.put_bytes == publisher.session.outbox.sent_bytes == len(publisher.received)

    await publisher.expect_receipt("stored")
    assert await durable.next_bodies(1) == await transient.next_bodies(1) == [b"x"]


async def test_an_acks_receipt_comes_when_its_cursor_is_in_the_file(durable_broker: BrokerUnderTest) -> None:
    subscriber = await durable_broker.durable_subscriber()
    await durable_broker.store_messages(b"1", b"2", b"3")
    messages = await subscriber.next_messages(3)
    ((floor_before,),) = durable_broker.look("SELECT ack_floor FROM cursors")

    for count, message in enumerate(messages, 1):
        await subscriber.send("ACK", id=message.headers["ack"], receipt="settled")
        await subscriber.expect_receipt("settled")
        assert durable_broker.look("SELECT ack_floor FROM cursors") == [(floor_before + count,)]


async def test_a_nacks_receipt_comes_when_its_failure_is_in_the_file(durable_broker: BrokerUnderTest) -> None:
    subscriber = await durable_broker.durable_subscriber()
    await durable_broker.store_messages(b"1")
    message = await subscriber.next_message()

    await subscriber.send("NACK", id=message.headers["ack"], receipt="refused", reason="no paper")
    await subscriber.expect_receipt("refused")

    assert durable_broker.look("SELECT attempts, reason FROM redeliveries") == [(1, "no paper")]


async def test_a_durable_subscribes_receipt_comes_when_it_is_in_the_file(durable_broker: BrokerUnderTest) -> None:
    client = await durable_broker.client(client_id="billing")

    await client.send("SUBSCRIBE", id="0", destination="/topic/a", durable_subscription_name="orders", receipt="there")
    await client.expect_receipt("there")

    assert durable_broker.look("SELECT kind, scope, name, destination, pattern, ack_mode FROM subscriptions") == [
        ("named", "billing", "orders", "/topic/a", "a", "auto")
    ]


async def test_a_durable_subscribes_receipt_comes_before_its_first_message(durable_broker: BrokerUnderTest) -> None:
    """Though there is a message for it already, when it is resumed; and one right behind it, when it is new."""
    client = await durable_broker.client(client_id="billing")
    subscribe = client.frame(
        "SUBSCRIBE", id="0", destination="/topic/a", durable_subscription_name="orders", receipt="there"
    )
    await client.send_raw(subscribe + client.frame("SEND", b"1", destination="/topic/a"))
    await client.expect_receipt("there")
    assert await client.next_bodies(1) == [b"1"]
    await client.vanish()
    await durable_broker.store_messages(b"2")

    again = await durable_broker.client(client_id="billing")
    await again.send_raw(subscribe)

    await again.expect_receipt("there")
    assert await again.next_bodies(1) == [b"2"]


async def test_a_subscribe_that_is_resumed_while_it_is_being_made_waits_for_the_file(
    durable_broker: BrokerUnderTest,
) -> None:
    """Two connections with one identity: the second takes it over before it is written, and must not be told that it
    is durable before it is."""
    first = await durable_broker.client(client_id="billing")
    second = await durable_broker.client(client_id="billing")
    subscribe = first.frame(
        "SUBSCRIBE", id="0", destination="/topic/a", durable_subscription_name="orders", receipt="there"
    )

    with durable_broker.held_store():
        await first.send_raw(subscribe)
        await wait_all_tasks_blocked()
        await second.send_raw(subscribe)
        await wait_all_tasks_blocked()
        assert durable_broker.count("subscriptions") == 0
        said_too_early = second.session.outbox.put_bytes - len(second.received)

    await second.expect_receipt("there")
    assert durable_broker.count("subscriptions") == 1
    assert said_too_early == 0


async def test_an_unsubscribes_receipt_comes_when_it_is_deleted_from_the_file(durable_broker: BrokerUnderTest) -> None:
    subscriber = await durable_broker.durable_subscriber()
    await durable_broker.store_messages(b"1")
    message = await subscriber.next_message()
    await subscriber.send("NACK", id=message.headers["ack"])

    await subscriber.send("UNSUBSCRIBE", id="0", durable_subscription_name="orders", receipt="gone")
    await subscriber.expect_receipt("gone")

    for table in ("subscriptions", "cursors", "redeliveries"):
        assert durable_broker.count(table) == 0, table


async def test_disconnects_receipt_comes_after_everything(durable_broker: BrokerUnderTest) -> None:
    """Also after what nobody asked a receipt for: the ACK is in the file, and so are the messages."""
    subscriber = await durable_broker.durable_subscriber()
    await durable_broker.store_messages(b"1")
    message = await subscriber.next_message()
    ((floor_before,),) = durable_broker.look("SELECT ack_floor FROM cursors")

    await subscriber.send_raw(
        subscriber.frame("SEND", b"2", destination="/topic/a")
        + subscriber.frame("ACK", id=message.headers["ack"])
        + subscriber.frame("DISCONNECT", receipt="bye")
    )
    await subscriber.expect_receipt("bye")

    assert durable_broker.count("messages") == 2
    assert durable_broker.look("SELECT ack_floor FROM cursors") == [(floor_before + 1,)]
    await subscriber.expect_closed()


async def test_disconnects_receipt_waits_for_an_ack_alone(durable_broker: BrokerUnderTest) -> None:
    """Nothing else is on its way through the journal that the ACK could ride with."""
    subscriber = await durable_broker.durable_subscriber()
    await durable_broker.store_messages(b"1")
    message = await subscriber.next_message()
    await durable_broker.settle()
    ((floor_before,),) = durable_broker.look("SELECT ack_floor FROM cursors")

    await subscriber.send_raw(
        subscriber.frame("ACK", id=message.headers["ack"]) + subscriber.frame("DISCONNECT", receipt="bye")
    )
    await subscriber.expect_receipt("bye")

    assert durable_broker.look("SELECT ack_floor FROM cursors") == [(floor_before + 1,)]


async def test_receipts_keep_their_order_when_stored_and_unstored_sends_alternate(
    durable_broker: BrokerUnderTest,
) -> None:
    await durable_broker.durable_subscriber("/topic/stored")
    publisher = await durable_broker.client()
    destinations = ["/topic/stored", "/topic/memory"] * 20

    for whole_chunk in (True, False):
        frames = [
            publisher.frame("SEND", b"x", destination=destination, receipt=str(number))
            for number, destination in enumerate(destinations)
        ]
        for chunk in [b"".join(frames)] if whole_chunk else frames:
            await publisher.send_raw(chunk)
        for number in range(len(destinations)):
            await publisher.expect_receipt(str(number))

    assert durable_broker.count("messages") == 40


async def test_an_error_comes_behind_the_receipts_that_were_owed(durable_broker: BrokerUnderTest) -> None:
    await durable_broker.durable_subscriber()
    publisher = await durable_broker.client()

    await publisher.send_raw(
        publisher.frame("SEND", b"1", destination="/topic/a", receipt="first")
        + publisher.frame("SEND", b"2", destination="/topic/a", receipt="second")
        + publisher.frame("ACK", id="nothing", receipt="wrong")
        + publisher.frame("SEND", b"3", destination="/topic/a", receipt="third")
    )

    await publisher.expect_receipt("first")
    await publisher.expect_receipt("second")
    error = await publisher.expect_error("unknown ack id")
    assert error.headers["receipt-id"] == "wrong"
    assert durable_broker.count("messages") == 2


async def test_what_has_a_receipt_survives_a_kill_and_what_is_stuck_does_not_come_twice(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber()
        await broker.store_messages(b"1", b"2")
        first, _ = await subscriber.next_messages(2)
        await subscriber.acknowledge(first)
        publisher = await broker.client()
        with broker.held_store():
            await publisher.send("SEND", b"never", destination="/topic/a", receipt="never")
            await wait_all_tasks_blocked()
            broker.kill()

    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber()
        assert await subscriber.next_bodies(1) == [b"2"]
        await broker.store_messages(b"3")
        assert await subscriber.next_bodies(1) == [b"3"]
        await broker.expect_silence(subscriber)


async def test_durable_subscriptions_are_refused_while_too_much_waits_to_be_stored(
    durable_broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever comes, subscribes and goes again while the store hangs must not fill the memory."""
    monkeypatch.setattr("stompbroker.journal.backlog.MAX_BACKLOG_BYTES", 2048)
    monkeypatch.setattr("stompbroker.journal.backlog.OVERFULL_BACKLOG_BYTES", 3 * 2048)
    old = await durable_broker.durable_subscriber(name="old")

    with durable_broker.held_store():
        for number in range(3):
            client = await durable_broker.client(client_id="billing")
            await client.send("SUBSCRIBE", id="0", destination="/topic/a", durable_subscription_name=f"new {number}")
            await wait_all_tasks_blocked()
        refused = await durable_broker.client(client_id="billing")
        await refused.send("SUBSCRIBE", id="0", destination="/topic/a", durable_subscription_name="too many")
        await refused.expect_error("too much waits to be stored", "try again later")
        await old.send("UNSUBSCRIBE", id="0", durable_subscription_name="old")
        await old.expect_error("too much waits to be stored")

    await durable_broker.settle()
    assert durable_broker.count("subscriptions") == 4
    await durable_broker.durable_subscriber(name="too many")
