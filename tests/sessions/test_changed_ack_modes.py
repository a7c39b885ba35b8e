"""A durable subscription is resumed in another ack mode while answers to earlier deliveries are outstanding.

An answer is read in the mode of the consumer that was sent the message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from stompbroker.delivery import sending
from stompbroker.stomp import Version
from tests.support.broker_under_test import running_broker
from tests.support.redelivery import MS, jump_to, refuse

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from stompbroker.delivery import Consumer
    from stompbroker.stomp import Frame
    from tests.support.broker_under_test import BrokerUnderTest, Client

BODIES = [b"0", b"1", b"2", b"3", b"4"]


async def unsubscribe(client: Client) -> None:
    await client.send("UNSUBSCRIBE", id="0", receipt="left")
    await client.expect_receipt("left")


async def sent_and_left(broker: BrokerUnderTest, ack: str) -> tuple[Client, list[Frame]]:
    """A client that was sent five messages in this mode, has answered none, and has unsubscribed."""
    client = await broker.durable_subscriber(ack=ack)
    await broker.store_messages(*BODIES)
    messages = await client.next_messages(5)
    await unsubscribe(client)
    return client, messages


async def unsettled(broker: BrokerUnderTest) -> list[bytes]:
    """What a subscriber gets that comes after everybody else has left."""
    return [message.body for message in await broker.rest_for(await broker.durable_subscriber())]


@pytest.mark.parametrize(
    ("sent_in", "left"),
    [("client-individual", [b"0", b"1", b"3", b"4"]), ("client", [b"3", b"4"])],
)
@pytest.mark.parametrize("resumed_in", ["client-individual", "client"])
async def test_a_late_ack_settles_what_it_means_in_the_mode_the_message_was_sent_in(
    sent_in: str, resumed_in: str, left: list[bytes], durable_broker: BrokerUnderTest
) -> None:
    first, messages = await sent_and_left(durable_broker, sent_in)
    second = await durable_broker.durable_subscriber(ack=resumed_in)
    await second.next_messages(5)

    await first.acknowledge(messages[2])

    durable_broker.check_invariants()
    await second.vanish()
    assert await unsettled(durable_broker) == left
    (subscription,) = durable_broker.registry.durable.values()
    assert subscription.counters.acked == 5 - len(left)


@pytest.mark.parametrize(
    ("sent_in", "resumed_in", "left"),
    [("client-individual", "client", [b"0", b"1", b"3", b"4"]), ("client", "client-individual", [b"3", b"4"])],
)
@pytest.mark.parametrize("is_killed", [True, False])
async def test_an_ack_in_a_transaction_keeps_the_mode_it_was_given_in(
    sent_in: str, resumed_in: str, left: list[bytes], is_killed: bool, store_directory: Path
) -> None:
    async with running_broker(store_in=store_directory) as broker:
        client = await broker.durable_subscriber(ack=sent_in)
        await broker.store_messages(*BODIES)
        messages = await client.next_messages(5)

        await client.send("BEGIN", transaction="t")
        await client.send("ACK", id=messages[2].headers["ack"], transaction="t")
        await unsubscribe(client)
        await client.subscribe(durable_subscription_name="orders", ack=resumed_in)
        await client.next_messages(5)
        await client.send("COMMIT", transaction="t", receipt="committed")
        await client.expect_receipt("committed")

        if is_killed:
            broker.kill()
        else:
            broker.check_invariants()
            await client.vanish()
            assert await unsettled(broker) == left

    async with running_broker(store_in=store_directory) as broker:
        assert await unsettled(broker) == left


@pytest.mark.parametrize(
    ("sent_in", "resumed_in", "refused"),
    [("client-individual", "client", [b"2"]), ("client", "client-individual", [b"0", b"1", b"2"])],
)
async def test_a_late_nack_refuses_what_it_means_in_the_mode_the_message_was_sent_in(
    sent_in: str, resumed_in: str, refused: list[bytes], store_directory: Path, mock_clock: MockClock
) -> None:
    async with running_broker(store_in=store_directory) as broker:
        first, messages = await sent_and_left(broker, sent_in)
        second = await broker.durable_subscriber(ack=resumed_in)
        await second.next_messages(5)
        await unsubscribe(second)

        refused_ns = await refuse(broker, first, messages[2], delay="5000")

        broker.check_invariants()
        third = await broker.durable_subscriber()
        taken = await broker.rest_for(third)
        assert [message.body for message in taken] == [body for body in BODIES if body not in refused]
        await third.acknowledge(*taken)
        await jump_to(broker, mock_clock, refused_ns + 5001 * MS)
        assert [message.body for message in await broker.rest_for(third)] == refused


def queue_for_auto(broker: BrokerUnderTest, client: Client) -> Consumer:
    """Resume the subscription in `auto` mode, without a checkpoint: what is delivered stays in the outbox."""
    client.session.receive(
        client.frame("SUBSCRIBE", id="0", destination="/topic/a", durable_subscription_name="orders", ack="auto")
    )
    (subscription,) = broker.registry.durable.values()
    consumer = subscription.consumer
    assert consumer is not None
    sending.deliver_slice(consumer, 0)
    assert consumer.in_flight == 5
    return consumer


@pytest.mark.parametrize("sent_in", ["client-individual", "client"])
async def test_a_late_ack_and_an_auto_consumer_settle_the_same_message_once(
    sent_in: str, durable_broker: BrokerUnderTest, mock_clock: MockClock
) -> None:
    second = await durable_broker.client(client_id="billing")
    first, messages = await sent_and_left(durable_broker, sent_in)
    consumer = queue_for_auto(durable_broker, second)

    first.session.receive(first.frame("ACK", id=messages[2].headers["ack"]))

    durable_broker.check_invariants()
    assert consumer.in_flight == (4 if sent_in == "client-individual" else 2)
    assert await second.next_bodies(5) == BODIES
    await durable_broker.settle()
    durable_broker.check_invariants()
    assert consumer.in_flight == 0
    assert consumer.subscription.counters.acked == 5
    await second.vanish()
    assert await unsettled(durable_broker) == []


@pytest.mark.parametrize(("version", "command"), [(Version.V1_0, "ACK"), (Version.V1_1, "ACK"), (Version.V1_1, "NACK")])
async def test_an_answer_to_a_queued_auto_delivery_is_late_after_an_unsubscribe(
    version: Version, command: str, durable_broker: BrokerUnderTest, mock_clock: MockClock
) -> None:
    second = await durable_broker.client(version, client_id="billing")
    _, messages = await sent_and_left(durable_broker, "client-individual")
    queue_for_auto(durable_broker, second)
    named = {"subscription": "0", "message_id": messages[2].headers["message-id"]}

    second.session.receive(second.frame("UNSUBSCRIBE", id="0") + second.frame(command, receipt="late", **named))

    assert await second.next_bodies(5) == BODIES
    await second.expect_receipt("late")
    assert second.session.commands.late_answers == 1
    durable_broker.check_invariants()
    assert await unsettled(durable_broker) == BODIES


@pytest.mark.parametrize("version", [Version.V1_0, Version.V1_1])
async def test_a_message_id_names_the_delivery_of_the_consumer_that_has_left_if_no_other_was_sent_it(
    version: Version, durable_broker: BrokerUnderTest
) -> None:
    client = await durable_broker.durable_subscriber(ack="client-individual", version=version)
    await durable_broker.store_messages(*BODIES)
    messages = await client.next_messages(5)
    await unsubscribe(client)
    await client.subscribe(durable_subscription_name="orders", ack="client", prefetch_count="1")
    assert await client.next_bodies(1) == [b"0"]

    named = {"subscription": "0", "message_id": messages[2].headers["message-id"]}
    await client.send("ACK", receipt="acknowledged", **named)
    await client.expect_receipt("acknowledged")

    await client.vanish()
    assert await unsettled(durable_broker) == [b"0", b"1", b"3", b"4"]
