"""What a connection that ends does to what was in flight to it: who counts a failed attempt, and who does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from trio.testing import lockstep_stream_pair, wait_all_tasks_blocked

from stompbroker.clock import iso_time
from stompbroker.transport import StreamTransport
from tests.support.broker_under_test import Client, running_broker
from tests.support.redelivery import MS, S, history, jump_to, letters_of, refuse, subscription_of

if TYPE_CHECKING:
    from pathlib import Path

    import trio
    from trio.testing import MockClock

    from stompbroker.stomp import Frame
    from tests.support.broker_under_test import BrokerUnderTest


LOST = "the connection was lost"


def counts(messages: list[Frame]) -> list[str]:
    return [message.headers["delivery-count"] for message in messages]


async def with_three_in_flight(broker: BrokerUnderTest, **headers: Any) -> Client:
    subscriber = await broker.durable_subscriber(**headers)
    await broker.store_messages(b"1", b"2", b"3")
    await subscriber.next_messages(3)
    return subscriber


async def next_three(broker: BrokerUnderTest, **headers: Any) -> list[Frame]:
    """What somebody gets who comes now: all three again, at once and in their order."""
    messages = await broker.rest_for(await broker.durable_subscriber(**headers))
    assert [message.body for message in messages] == [b"1", b"2", b"3"]
    assert {message.headers["redelivered"] for message in messages} == {"true"}
    return messages


# Loss ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ack", ["client", "client-individual"])
async def test_a_lost_connection_counts_an_attempt_of_the_oldest_message_in_flight_only(
    ack: str, durable_broker: BrokerUnderTest
) -> None:
    await (await with_three_in_flight(durable_broker, ack=ack)).vanish()

    messages = await next_three(durable_broker, ack=ack)

    assert [history(message) for message in messages] == [
        ("true", "2", LOST),
        ("true", "1", None),
        ("true", "1", None),
    ]


async def test_what_was_in_flight_says_when_it_was_first_sent(store_directory: Path, mock_clock: MockClock) -> None:
    async with running_broker(store_in=store_directory) as broker:
        first_ns = broker.clock.now_ns()
        subscriber = await with_three_in_flight(broker)
        await jump_to(broker, mock_clock, first_ns + 5 * S)
        await subscriber.vanish()
        subscriber = await broker.durable_subscriber()
        assert len(await broker.rest_for(subscriber)) == 3
        await jump_to(broker, mock_clock, first_ns + 10 * S)
        await subscriber.vanish()

        messages = await next_three(broker)

        assert {message.headers["first-delivered-at"] for message in messages} == {iso_time(first_ns)}


async def test_what_is_refused_after_that_says_so_too_in_whatever_order_it_is_refused(
    store_directory: Path, mock_clock: MockClock
) -> None:
    headers: dict[str, Any] = {"redelivery_delay": "1000", "redelivery_jitter": "0"}
    async with running_broker(store_in=store_directory) as broker:
        first_ns = broker.clock.now_ns()
        subscriber = await with_three_in_flight(broker, **headers)
        await jump_to(broker, mock_clock, first_ns + 5 * S)
        await subscriber.vanish()
        subscriber = await broker.durable_subscriber(**headers)
        messages = await broker.rest_for(subscriber)
        refusals = [subscriber.frame("NACK", id=message.headers["ack"]) for message in reversed(messages)]
        await subscriber.send_raw(b"".join(refusals))
        await subscriber.sync()
        await jump_to(broker, mock_clock, first_ns + 10 * S)

        messages = await broker.rest_for(subscriber)

        assert [message.body for message in messages] == [b"1", b"2", b"3"]
        assert {message.headers["first-delivered-at"] for message in messages} == {iso_time(first_ns)}


async def test_what_was_answered_is_not_the_oldest_in_flight(durable_broker: BrokerUnderTest) -> None:
    """It is the one behind: the first was acknowledged, the second waits after a NACK."""
    subscriber = await durable_broker.durable_subscriber()
    await durable_broker.store_messages(b"1", b"2", b"3", b"4")
    first, second, _, _ = await subscriber.next_messages(4)
    await refuse(durable_broker, subscriber, second, delay="60000")
    await subscriber.acknowledge(first)

    await subscriber.vanish()

    messages = await durable_broker.rest_for(await durable_broker.durable_subscriber())
    assert [(message.body, *history(message)) for message in messages] == [
        (b"3", "true", "2", LOST),
        (b"4", "true", "1", None),
    ]


async def test_the_oldest_in_flight_is_the_one_that_was_sent_first_not_the_lowest(
    store_directory: Path, mock_clock: MockClock
) -> None:
    """A message that failed and was sent again came to its consumer behind those that it has had since."""
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber()
        await broker.store_messages(b"1", b"2")
        first, _ = await subscriber.next_messages(2)
        refused_ns = await refuse(broker, subscriber, first, delay="100")
        await jump_to(broker, mock_clock, refused_ns + 101 * MS)
        assert await subscriber.next_bodies(1) == [b"1"]

        await subscriber.vanish()

        messages = await broker.rest_for(await broker.durable_subscriber())
        assert [(message.body, *history(message)) for message in messages] == [
            (b"1", "true", "2", None),
            (b"2", "true", "2", LOST),
        ]


async def test_what_a_lost_connection_has_counted_survives_a_kill(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        await (await with_three_in_flight(broker)).vanish()
        await broker.settle()
        broker.kill()

    async with running_broker(store_in=store_directory) as broker:
        messages = await next_three(broker)
        assert counts(messages) == ["2", "1", "1"]
        assert messages[0].headers["redelivery-reason"] == LOST


async def test_a_client_that_falls_silent_is_lost(store_directory: Path, mock_clock: MockClock) -> None:
    """It may hang over what it was sent."""
    async with running_broker(store_in=store_directory, heart_beat_want_ms=1000) as broker:
        subscriber = await broker.client(client_id="billing", heart_beat="1000,0")
        await subscriber.subscribe(durable_subscription_name="orders", ack="client-individual")
        await broker.store_messages(b"1", b"2", b"3")
        await subscriber.next_messages(3)
        await broker.settle()
        mock_clock.jump(10)
        await broker.settle()
        assert (await subscriber.next_frame()).command == "ERROR"

        assert counts(await next_three(broker)) == ["2", "1", "1"]


async def test_each_subscription_of_a_lost_connection_counts_its_own_oldest(durable_broker: BrokerUnderTest) -> None:
    client = await durable_broker.client(client_id="billing")
    for name in ("x", "y"):
        await client.subscribe(f"/topic/{name}", id=name, durable_subscription_name=name, ack="client-individual")
    for name in ("x", "y"):
        await durable_broker.store_messages(b"1", b"2", destination=f"/topic/{name}")
    await client.next_messages(4)

    await client.vanish()

    for name in ("x", "y"):
        subscriber = await durable_broker.durable_subscriber(f"/topic/{name}", name)
        assert counts(await durable_broker.rest_for(subscriber)) == ["2", "1"]


# No loss -------------------------------------------------------------------------------------------------------------


async def test_a_disconnect_counts_nothing(durable_broker: BrokerUnderTest) -> None:
    subscriber = await with_three_in_flight(durable_broker)

    await subscriber.send("DISCONNECT", receipt="bye")
    await subscriber.expect_receipt("bye")
    await subscriber.vanish()

    assert counts(await next_three(durable_broker)) == ["1", "1", "1"]


async def test_a_disconnect_without_a_receipt_and_a_closed_socket_count_nothing(
    durable_broker: BrokerUnderTest,
) -> None:
    subscriber = await with_three_in_flight(durable_broker)

    await subscriber.send("DISCONNECT")
    await subscriber.vanish()

    assert counts(await next_three(durable_broker)) == ["1", "1", "1"]


async def test_an_unsubscribe_counts_nothing_also_if_the_connection_is_lost_later(
    durable_broker: BrokerUnderTest,
) -> None:
    subscriber = await with_three_in_flight(durable_broker)

    await subscriber.send("UNSUBSCRIBE", id="0", receipt="left")
    await subscriber.expect_receipt("left")
    await subscriber.vanish()

    assert counts(await next_three(durable_broker)) == ["1", "1", "1"]


async def test_a_take_over_counts_nothing(durable_broker: BrokerUnderTest) -> None:
    old = await with_three_in_flight(durable_broker)

    messages = await next_three(durable_broker)

    assert counts(messages) == ["1", "1", "1"]
    await old.expect_error("taken over")


async def test_an_error_counts_nothing(durable_broker: BrokerUnderTest) -> None:
    """The client made a mistake that has nothing to do with what it was sent."""
    subscriber = await with_three_in_flight(durable_broker)

    await subscriber.send("ACK", id="7-7")
    await subscriber.expect_error("unknown ack id")

    assert counts(await next_three(durable_broker)) == ["1", "1", "1"]


async def test_a_shutdown_of_the_broker_counts_nothing(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        await with_three_in_flight(broker)

    async with running_broker(store_in=store_directory) as broker:
        assert counts(await next_three(broker)) == ["1", "1", "1"]


async def test_a_kill_of_the_broker_counts_nothing(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        await with_three_in_flight(broker)
        await broker.settle()
        broker.kill()

    async with running_broker(store_in=store_directory) as broker:
        messages = await broker.rest_for(await broker.durable_subscriber())
        assert counts(messages) == ["1", "1", "1"]


async def test_a_loss_counts_nothing_in_auto_mode(durable_broker: BrokerUnderTest) -> None:
    """What was sent is settled."""
    await (await with_three_in_flight(durable_broker, ack="auto")).vanish()

    await durable_broker.expect_silence(await durable_broker.durable_subscriber(ack="auto"))
    (subscription,) = durable_broker.registry.durable.values()
    assert all(not reading.failures for reading in subscription.readings.values())


# What never left our hands -------------------------------------------------------------------------------------------


async def client_that_can_stop_reading(broker: BrokerUnderTest, nursery: trio.Nursery) -> Client:
    """On a stream without a buffer: what it does not read is not sent."""
    ours, theirs = lockstep_stream_pair()
    before = set(broker.parts.sessions)
    nursery.start_soon(broker.parts.serve_connection, StreamTransport(theirs, "lockstep"))
    await wait_all_tasks_blocked()
    (new,) = set(broker.parts.sessions) - before
    client = Client(ours, broker.parts.sessions[new], patience_s=20.0)
    await client.connect(client_id="billing")
    return client


async def test_what_never_left_our_hands_counts_nothing(durable_broker: BrokerUnderTest, nursery: trio.Nursery) -> None:
    subscriber = await client_that_can_stop_reading(durable_broker, nursery)
    await subscriber.subscribe(durable_subscription_name="orders", ack="client-individual")
    await durable_broker.store_messages(b"1", b"2", b"3")
    await durable_broker.settle()
    consumer = subscription_of(durable_broker, subscriber).consumer
    assert consumer is not None
    assert consumer.in_flight == 3

    await subscriber.vanish()

    assert counts(await next_three(durable_broker)) == ["1", "1", "1"]


async def test_the_oldest_that_left_our_hands_counts_though_others_did_not(
    durable_broker: BrokerUnderTest, nursery: trio.Nursery
) -> None:
    subscriber = await client_that_can_stop_reading(durable_broker, nursery)
    await subscriber.subscribe(durable_subscription_name="orders", ack="client-individual")
    await durable_broker.store_messages(b"1")
    await subscriber.next_message()
    await durable_broker.store_messages(b"2", b"3")
    await durable_broker.settle()

    await subscriber.vanish()

    assert counts(await next_three(durable_broker)) == ["2", "1", "1"]


async def test_what_left_our_hands_and_was_acknowledged_lets_nothing_behind_it_count_that_did_not(
    durable_broker: BrokerUnderTest, nursery: trio.Nursery
) -> None:
    subscriber = await client_that_can_stop_reading(durable_broker, nursery)
    await subscriber.subscribe(durable_subscription_name="orders", ack="client-individual")
    await durable_broker.store_messages(b"0")
    await subscriber.acknowledge(await subscriber.next_message())
    await durable_broker.store_messages(b"1", b"2", b"3")
    await durable_broker.settle()

    await subscriber.vanish()

    assert counts(await next_three(durable_broker)) == ["1", "1", "1"]


# Poison and storms ---------------------------------------------------------------------------------------------------


async def work_until_poison(client: Client, messages: list[Frame]) -> bool:
    """Acknowledge in order, and die of the poison; True if there was some."""
    acks: list[bytes] = []
    for message in messages:
        if message.body == b"poison":
            await client.send_raw(b"".join(acks))
            await client.vanish()
            return True
        acks.append(client.frame("ACK", id=message.headers["ack"]))
    await client.send_raw(b"".join(acks))
    return False


async def test_a_message_that_kills_its_consumer_dies_and_its_999_neighbours_do_not(store_directory: Path) -> None:
    """All of them in flight together, each time."""
    async with running_broker(store_in=store_directory, max_attempts=4) as broker:
        await (await broker.durable_subscriber()).vanish()
        bodies = [b"%d" % number for number in range(999)]
        await broker.store_messages(*bodies[:300], b"poison", *bodies[300:])
        received: list[list[Frame]] = []
        while True:
            subscriber = await broker.durable_subscriber(prefetch_count="1000")
            received.append(await broker.rest_for(subscriber))
            if not await work_until_poison(subscriber, received[-1]):
                break

        assert [len(messages) for messages in received] == [1000, 700, 700, 700, 699]
        assert [message.body for message in received[-1]] == bodies[300:]
        assert set(counts(received[-1])) == {"1"}
        (letter,) = await letters_of(broker)
        assert letter.body == b"poison"
        assert letter.headers["dead-letter-attempts"] == "4"
        assert letter.headers["dead-letter-reason"] == LOST
        await broker.expect_silence(subscriber)


async def test_poison_that_nobody_comes_back_for_dies_of_its_last_attempt(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory, max_attempts=1) as broker:
        await (await with_three_in_flight(broker)).vanish()

        assert [letter.body for letter in await letters_of(broker)] == [b"1"]
        messages = await broker.rest_for(await broker.durable_subscriber())
        assert [(message.body, message.headers["delivery-count"]) for message in messages] == [(b"2", "1"), (b"3", "1")]


async def test_a_take_over_storm_between_two_connections_kills_nothing(
    store_directory: Path, mock_clock: MockClock
) -> None:
    """Also when the one that takes over is refused because it does so too often."""
    async with running_broker(store_in=store_directory, max_attempts=2) as broker:
        await with_three_in_flight(broker)
        refused = 0
        for _ in range(20):
            client = await broker.client(client_id="billing")
            await client.send(
                "SUBSCRIBE",
                id="0",
                destination="/topic/a",
                durable_subscription_name="orders",
                ack="client-individual",
            )
            first = await client.next_frame()
            if first.command == "ERROR":
                refused += 1
            else:
                assert counts([first, *await client.next_messages(2)]) == ["1", "1", "1"]
            await broker.settle()
            mock_clock.jump(15)

        await broker.settle()
        assert 0 < refused < 20
        assert await letters_of(broker) == []
        (subscription,) = broker.registry.durable.values()
        assert subscription.counters.dead == 0
        assert all(not reading.failures for reading in subscription.readings.values())
