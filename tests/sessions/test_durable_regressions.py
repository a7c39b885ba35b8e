"""Defects of durable subscriptions that a reviewer and an attacker found, each shown in frames.

Law: every defect has a test that fails when what mended it is taken out again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from trio.testing import wait_all_tasks_blocked

from stompbroker.stomp import Version
from tests.support.broker_under_test import running_broker

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.broker_under_test import BrokerUnderTest


# Stores that no broker started on ------------------------------------------------------------------------------------


async def test_a_broker_starts_again_after_a_wildcard_on_a_topic_that_was_not_stored_for_a_while(
    store_directory: Path,
) -> None:
    """The topic has gone on in memory since its only durable subscription was deleted. The wildcard begins where the
    topic ends now, which is ahead of what the store knew of it."""
    async with running_broker(store_in=store_directory) as broker:
        first = await broker.durable_subscriber("/topic/t", name="d1")
        await broker.store_messages(b"stored", destination="/topic/t")
        await first.next_message()
        await first.send("UNSUBSCRIBE", id="0", durable_subscription_name="d1", receipt="gone")
        await first.expect_receipt("gone")
        await broker.store_messages(*[b"in memory"] * 5, destination="/topic/t")
        await broker.durable_subscriber("/topic/>", name="d2")

    async with running_broker(store_in=store_directory) as broker:
        await broker.store_messages(b"after", destination="/topic/t")
        returned = await broker.durable_subscriber("/topic/>", name="d2")
        assert await returned.next_bodies(1) == [b"after"]
        await broker.expect_silence(returned)


# Messages that only memory has ---------------------------------------------------------------------------------------


async def test_a_page_does_not_hide_what_only_the_log_has(durable_broker: BrokerUnderTest) -> None:
    await (await durable_broker.durable_subscriber(prefetch_count="1")).vanish()
    await durable_broker.store_messages(b"p0")
    await durable_broker.store_messages(b"np1", persistent="false")
    topic = durable_broker.registry.topics["a"]
    durable_broker.registry.collect(topic, 0, unused_since_ns=0)
    assert topic.log.start_offset == 2, "as the collector leaves it: nobody here needs them"
    returned = await durable_broker.durable_subscriber(prefetch_count="1")
    first = await returned.next_message()
    assert first.body == b"p0"
    await durable_broker.store_messages(b"np2", persistent="false")
    await durable_broker.settle()
    for _ in range(2):
        durable_broker.registry.pages.forget_unused()
    assert durable_broker.registry.pages.size_bytes == 0

    await returned.send("ACK", id=first.headers["ack"])

    assert [message.body for message in await durable_broker.rest_for(returned)] == [b"np2"]


# Receipts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_one_chunk", [True, False])
@pytest.mark.parametrize("last", ["UNSUBSCRIBE", "DISCONNECT"])
async def test_a_receipt_stands_for_acks_that_asked_for_none_although_the_subscription_was_left(
    last: str, is_one_chunk: bool, durable_broker: BrokerUnderTest
) -> None:
    subscriber = await durable_broker.durable_subscriber()
    await durable_broker.store_messages(b"1")
    message = await subscriber.next_message()
    await durable_broker.settle()
    ((floor_before,),) = durable_broker.look("SELECT ack_floor FROM cursors")
    frames = [subscriber.frame("ACK", id=message.headers["ack"])]
    if last == "UNSUBSCRIBE":
        frames.append(subscriber.frame("UNSUBSCRIBE", id="0", receipt="last"))
    else:
        frames += [subscriber.frame("UNSUBSCRIBE", id="0"), subscriber.frame("DISCONNECT", receipt="last")]

    with durable_broker.held_store():
        for chunk in [b"".join(frames)] if is_one_chunk else frames:
            await subscriber.send_raw(chunk)
            await wait_all_tasks_blocked()
        said_too_early = subscriber.session.outbox.put_bytes - len(subscriber.received)

    await subscriber.expect_receipt("last")
    assert durable_broker.look("SELECT ack_floor FROM cursors") == [(floor_before + 1,)]
    assert said_too_early == 0
    assert durable_broker.count("subscriptions") == 1, "it was left, and not deleted"


# Answers -------------------------------------------------------------------------------------------------------------


async def test_a_late_ack_in_stomp_1_1_for_a_message_of_before_a_restart_is_no_error(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber(version=Version.V1_1, ack="client")
        await broker.store_messages(b"1")
        message_id = (await subscriber.next_message()).headers["message-id"]
        await subscriber.send("ACK", message_id=message_id, subscription="0", receipt="settled")
        await subscriber.expect_receipt("settled")

    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber(version=Version.V1_1, ack="client")
        await subscriber.send("ACK", message_id=message_id, subscription="0", receipt="late")
        await subscriber.expect_receipt("late")
        await broker.store_messages(b"2")
        assert await subscriber.next_bodies(1) == [b"2"]


@pytest.mark.parametrize("made_up", ["{store}-9-1", "{store}-1-", "{store}-1-01", "00000000-1-1", "nonsense"])
async def test_an_ack_in_stomp_1_1_for_an_id_that_no_message_had_is_an_error(
    made_up: str, durable_broker: BrokerUnderTest
) -> None:
    """Of a start that is still to come, not a number, or of another store."""
    subscriber = await durable_broker.durable_subscriber(version=Version.V1_1, ack="client")
    await durable_broker.store_messages(b"1")
    store = (await subscriber.next_message()).headers["message-id"].partition("-")[0]

    await subscriber.send("ACK", message_id=made_up.format(store=store), subscription="0")

    await subscriber.expect_error("message")


# NUL -----------------------------------------------------------------------------------------------------------------


async def is_alive(broker: BrokerUnderTest) -> bool:
    subscriber = await broker.durable_subscriber("/topic/alive", name="alive", client_id="alive")
    await broker.store_messages(b"alive", destination="/topic/alive")
    return await subscriber.next_bodies(1) == [b"alive"]


@pytest.mark.parametrize("transaction", [b"", b"transaction:t\n"], ids=["alone", "in a transaction"])
async def test_a_nul_in_the_reason_of_a_nack_is_an_error_that_names_it(
    transaction: bytes, durable_broker: BrokerUnderTest
) -> None:
    subscriber = await durable_broker.durable_subscriber()
    await durable_broker.store_messages(b"1")
    message = await subscriber.next_message()
    await subscriber.send("BEGIN", transaction="t")

    await subscriber.send_raw(b"NACK\nid:%b\n%breason:no\0paper\n\n\0" % (message.headers["ack"].encode(), transaction))

    await subscriber.expect_error("'reason'", "NUL")
    assert await is_alive(durable_broker)
    assert durable_broker.count("redeliveries") == 0


async def test_a_nul_in_a_client_id_is_an_error_that_names_it(durable_broker: BrokerUnderTest) -> None:
    client = await durable_broker.open()

    await client.send_raw(b"CONNECT\naccept-version:1.2\nhost:test\nclient-id:bil\0ling\n\n\0")

    await client.expect_error("'client-id'", "NUL")
    assert await is_alive(durable_broker)


@pytest.mark.parametrize("command", ["SUBSCRIBE", "UNSUBSCRIBE"])
@pytest.mark.parametrize(
    "header",
    ["activemq.subscriptionName", "durable-subscription-name", "durable-subscriber-name", "x-queue-name", "id"],
)
async def test_a_nul_in_a_durable_name_is_an_error_that_names_its_header(
    header: str, command: str, durable_broker: BrokerUnderTest
) -> None:
    client = await durable_broker.client(client_id="billing")
    headers = {"id": "0", "destination": "/topic/a", "durable": "true"} | {header: "or\0ders"}
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())

    await client.send_raw(f"{command}\n{lines}\n\0".encode())

    await client.expect_error(f"'{header}'", "NUL")
    assert await is_alive(durable_broker)
    assert durable_broker.look("SELECT name FROM subscriptions") == [("alive",)]


async def test_a_topic_whose_name_looks_like_a_queue_outlives_the_broker(store_directory: Path) -> None:
    """Its name alone is no destination any more."""
    async with running_broker(store_in=store_directory) as broker:
        await (await broker.durable_subscriber("/topic/jms.queue.a")).vanish()
        await broker.store_messages(b"kept", destination="/topic/jms.queue.a")

    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber("/topic/jms.queue.a")

        assert [message.body for message in await broker.rest_for(subscriber)] == [b"kept"]
