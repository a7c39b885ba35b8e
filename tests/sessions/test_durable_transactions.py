"""A transaction with a stored part: all of it is in the file, or nothing of it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from trio.testing import wait_all_tasks_blocked

from tests.support.broker_under_test import running_broker

if TYPE_CHECKING:
    from pathlib import Path

    from stompbroker.stomp import Frame
    from tests.support.broker_under_test import BrokerUnderTest, Client


def transaction(client: Client, acked: Frame, *bodies: bytes, verdict: str = "ACK") -> bytes:
    """BEGIN, an answer, SENDs to two topics in turn, and COMMIT, as one chunk."""
    sends = [
        client.frame("SEND", body, destination=f"/topic/{'ab'[index % 2]}", transaction="t")
        for index, body in enumerate(bodies)
    ]
    return (
        client.frame("BEGIN", transaction="t")
        + client.frame(verdict, id=acked.headers["ack"], transaction="t")
        + b"".join(sends)
        + client.frame("COMMIT", transaction="t", receipt="committed")
    )


#: Where the subscription to the topic "a" stands.
FLOOR = "SELECT ack_floor FROM cursors JOIN topics ON topics.id = topic_id WHERE topics.name = 'a'"


async def test_commits_receipt_comes_when_all_of_it_is_in_the_file(durable_broker: BrokerUnderTest) -> None:
    subscriber = await durable_broker.durable_subscriber()
    await durable_broker.durable_subscriber("/topic/b", "others", client_id="others")
    await durable_broker.store_messages(b"0")
    message = await subscriber.next_message()
    ((floor_before,),) = durable_broker.look(FLOOR)

    await subscriber.send_raw(transaction(subscriber, message, b"1", b"2", b"3"))
    await subscriber.expect_receipt("committed")

    assert durable_broker.count("messages") == 4
    assert durable_broker.look(FLOOR) == [(floor_before + 1,)]
    assert await subscriber.next_bodies(2) == [b"1", b"3"]


@pytest.mark.parametrize("is_written", [False, True])
async def test_a_kill_leaves_all_of_a_transaction_or_nothing(is_written: bool, store_directory: Path) -> None:
    """With its ACK: either everything comes back as it was, or what was acknowledged is settled and the rest is
    there."""
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber()
        other = await broker.durable_subscriber("/topic/b", "others", client_id="others")
        await broker.store_messages(b"0")
        message = await subscriber.next_message()
        if is_written:
            await subscriber.send_raw(transaction(subscriber, message, b"1", b"2", b"3"))
            await subscriber.expect_receipt("committed")
            broker.kill()
        else:
            with broker.held_store():
                await subscriber.send_raw(transaction(subscriber, message, b"1", b"2", b"3"))
                await wait_all_tasks_blocked()
                broker.kill()

    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber()
        other = await broker.durable_subscriber("/topic/b", "others", client_id="others")
        assert await subscriber.next_bodies(2 if is_written else 1) == ([b"1", b"3"] if is_written else [b"0"])
        assert await other.next_bodies(int(is_written)) == [b"2"] * is_written
        await broker.expect_silence(subscriber, other)


async def test_an_aborted_transaction_leaves_nothing_in_the_file(durable_broker: BrokerUnderTest) -> None:
    subscriber = await durable_broker.durable_subscriber()
    await durable_broker.store_messages(b"0")
    message = await subscriber.next_message()
    before = durable_broker.look("SELECT ack_floor, sent_up_to FROM cursors")

    await subscriber.send_raw(
        subscriber.frame("BEGIN", transaction="t")
        + subscriber.frame("ACK", id=message.headers["ack"], transaction="t")
        + subscriber.frame("SEND", b"1", destination="/topic/a", transaction="t")
        + subscriber.frame("ABORT", transaction="t", receipt="aborted")
    )
    await subscriber.expect_receipt("aborted")

    await durable_broker.expect_silence(subscriber)
    assert durable_broker.count("messages") == 1
    assert durable_broker.look("SELECT ack_floor, sent_up_to FROM cursors") == before


@pytest.mark.parametrize("last", ["DISCONNECT", "UNSUBSCRIBE"])
async def test_a_committed_ack_counts_though_its_client_leaves_in_the_same_chunk(
    last: str, durable_broker: BrokerUnderTest
) -> None:
    """COMMIT has a receipt: what it acknowledged must not come again."""
    subscriber = await durable_broker.durable_subscriber()
    await durable_broker.store_messages(b"0")
    message = await subscriber.next_message()
    leave = {"DISCONNECT": {}, "UNSUBSCRIBE": {"id": "0"}}[last]

    await subscriber.send_raw(transaction(subscriber, message, b"1") + subscriber.frame(last, receipt="left", **leave))
    await subscriber.expect_receipt("committed")
    frame = await subscriber.next_frame()
    if frame.command == "MESSAGE":
        frame = await subscriber.next_frame()
    assert frame.headers["receipt-id"] == "left"

    again = await durable_broker.durable_subscriber()
    assert await again.next_bodies(1) == [b"1"]
    await durable_broker.expect_silence(again)


async def test_an_ack_behind_a_commit_counts_though_its_client_leaves_in_the_same_chunk(
    durable_broker: BrokerUnderTest,
) -> None:
    """The ACK has to keep its place behind the transaction, which is still being written when the client leaves."""
    subscriber = await durable_broker.durable_subscriber()
    await durable_broker.store_messages(b"0", b"1")
    first, second = await subscriber.next_messages(2)

    await subscriber.send_raw(
        transaction(subscriber, first)
        + subscriber.frame("ACK", id=second.headers["ack"], receipt="acked")
        + subscriber.frame("DISCONNECT", receipt="left")
    )
    for receipt in ("committed", "acked", "left"):
        await subscriber.expect_receipt(receipt)

    again = await durable_broker.durable_subscriber()
    await durable_broker.expect_silence(again)


async def test_a_committed_ack_counts_though_its_connection_is_lost_before_it_is_written(
    durable_broker: BrokerUnderTest,
) -> None:
    """Everything that came before the loss is applied, as a whole: not the SEND without the ACK."""
    subscriber = await durable_broker.durable_subscriber()
    await durable_broker.store_messages(b"0")
    message = await subscriber.next_message()

    with durable_broker.held_store():
        await subscriber.send_raw(transaction(subscriber, message, b"1"))
        await wait_all_tasks_blocked()
        await subscriber.vanish()
    await durable_broker.settle()

    again = await durable_broker.durable_subscriber()
    assert await again.next_bodies(1) == [b"1"]
    await durable_broker.expect_silence(again)


async def test_a_transaction_that_is_being_written_when_its_subscription_is_taken_over_happens_as_a_whole(
    durable_broker: BrokerUnderTest,
) -> None:
    """It had reached the journal: its client gets the receipt, so neither half of it may be missing."""
    subscriber = await durable_broker.durable_subscriber()
    await durable_broker.store_messages(b"0")
    message = await subscriber.next_message()

    with durable_broker.held_store():
        await subscriber.send_raw(transaction(subscriber, message, b"1"))
        await wait_all_tasks_blocked()
        newcomer = await durable_broker.client(client_id="billing")
        await newcomer.send(
            "SUBSCRIBE", id="0", destination="/topic/a", durable_subscription_name="orders", ack="client"
        )
        await wait_all_tasks_blocked()

    await subscriber.expect_receipt("committed")
    await subscriber.expect_error("taken over")
    assert [rest.body for rest in await durable_broker.rest_for(newcomer)] == [b"1"]


async def test_a_refused_message_of_a_transaction_is_counted_over_a_kill(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory, redelivery_first_delay_ms=0) as broker:
        subscriber = await broker.durable_subscriber()
        await broker.store_messages(b"0")
        message = await subscriber.next_message()
        await broker.settle()
        await subscriber.send_raw(transaction(subscriber, message, verdict="NACK"))
        await subscriber.expect_receipt("committed")
        broker.kill()

    async with running_broker(store_in=store_directory, redelivery_first_delay_ms=0) as broker:
        subscriber = await broker.durable_subscriber()
        again = await subscriber.next_message()
        assert (again.body, again.headers["redelivered"], again.headers["delivery-count"]) == (b"0", "true", "2")


async def test_a_transaction_with_an_unstored_part_becomes_visible_as_a_whole(durable_broker: BrokerUnderTest) -> None:
    await durable_broker.durable_subscriber("/topic/a")
    memory_only = await durable_broker.subscriber("/topic/b")
    publisher = await durable_broker.client()

    with durable_broker.held_store():
        await publisher.send_raw(
            publisher.frame("BEGIN", transaction="t")
            + publisher.frame("SEND", b"1", destination="/topic/b", transaction="t")
            + publisher.frame("SEND", b"2", destination="/topic/a", transaction="t")
            + publisher.frame("COMMIT", transaction="t", receipt="committed")
        )
        await wait_all_tasks_blocked()
        assert durable_broker.registry.topics["b"].published == 0

    await publisher.expect_receipt("committed")
    assert await memory_only.next_bodies(1) == [b"1"]
