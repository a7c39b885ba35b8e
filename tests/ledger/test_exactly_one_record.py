"""Every delivery that is settled has one record, and what was never a delivery has none; whoever meets on the way.

Each test is something that once went wrong. Kills are in `test_records_beside_cursors`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from stompbroker.actors import journal as journal_actor
from stompbroker.changes import Appended, Unit
from tests.journal.poison import refuse_messages
from tests.ledger.recorded import recorded
from tests.support.broker_under_test import running_broker
from tests.support.messages import make_message
from tests.support.patience import HARD_TIMEOUT_S
from tests.support.redelivery import begin_from, iso

if TYPE_CHECKING:
    from pathlib import Path

    from stompbroker.delivery import Subscription
    from stompbroker.stomp import Frame
    from tests.support.broker_under_test import BrokerUnderTest, Client


LETTERS = "/topic/DLQ.a"


class Outcome(NamedTuple):
    offset: int
    outcome: str
    generation: int = 0


def outcomes(broker: BrokerUnderTest, name: str = "orders", *, topic: str = "a") -> list[Outcome]:
    """Of one subscription, in the order of offsets."""
    rows = recorded(broker, topic)
    return sorted(
        Outcome(row["offset"], row["outcome"], row["generation"]) for row in rows if row["subscription_name"] == name
    )


def subscription_of(broker: BrokerUnderTest, name: str = "orders") -> Subscription:
    (found,) = [each for identity, each in broker.registry.durable.items() if identity.name == name]
    return found


async def absent(broker: BrokerUnderTest, name: str) -> None:
    """Somebody else for whom messages are kept, and who is not there."""
    await (await broker.durable_subscriber(name=name, client_id=name)).vanish()


async def move(broker: BrokerUnderTest, to: str) -> None:
    await broker.parts.control.call("move_subscription", {"id": subscription_of(broker).public_id, "to": to})


async def a_little_later(broker: BrokerUnderTest) -> str:
    """When what lives for a millisecond has expired."""
    at_ns = broker.clock.now_ns() + 2_000_000
    while broker.clock.now_ns() < at_ns:
        await trio.lowlevel.checkpoint()
    return iso(at_ns)


async def publish_into_one_batch(broker: BrokerUnderTest) -> None:
    """While the store is held: this is stuck in it, and what comes from now on makes one batch."""
    await (await broker.client()).publish(b"stuck")
    await wait_all_tasks_blocked()


# What the store does not take ----------------------------------------------------------------------------------------


async def test_an_acknowledgement_beside_a_transaction_that_is_refused(store_directory: Path) -> None:
    refuse_messages(store_directory)
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber()
        await broker.store_messages(b"0")
        message = await subscriber.next_message()
        await broker.settle()
        with broker.held_store():
            await subscriber.send("BEGIN", transaction="t")
            await subscriber.send("ACK", id=message.headers["ack"], transaction="t")
            await subscriber.send("SEND", b"poison", destination="/topic/a", transaction="t")
            await subscriber.send("COMMIT", transaction="t", receipt="committed")
            await wait_all_tasks_blocked()
            await subscriber.send("ACK", id=message.headers["ack"])
            await wait_all_tasks_blocked()
        await broker.settle()

        assert outcomes(broker) == [Outcome(0, "acked")]


async def test_a_late_acknowledgement_of_what_cannot_be_buried(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber()
        await broker.store_messages(b"poison")
        message = await subscriber.next_message()
        await broker.settle()
        refuse_messages(store_directory)
        with broker.held_store():
            await subscriber.send("NACK", id=message.headers["ack"], requeue="false")
            await wait_all_tasks_blocked()
            await subscriber.send("ACK", id=message.headers["ack"])
            await wait_all_tasks_blocked()
        await broker.settle()

        assert outcomes(broker) == [Outcome(0, "acked")]


# A subscription that goes --------------------------------------------------------------------------------------------


async def test_evicted_while_another_message_is_being_buried(store_directory: Path) -> None:
    policy: dict[str, Any] = {"when_used_up": "evict", "max_attempts": 1, "redelivery_first_delay_ms": 0}
    async with running_broker(store_in=store_directory, **policy) as broker:
        subscriber = await broker.durable_subscriber()
        await broker.store_messages(b"0", b"1")
        first, second = await subscriber.next_messages(2)
        await broker.settle()
        await subscriber.send_raw(
            subscriber.frame("NACK", id=first.headers["ack"], requeue="false")
            + subscriber.frame("NACK", id=second.headers["ack"])
        )
        await wait_all_tasks_blocked()
        await broker.settle()

        assert outcomes(broker) == [Outcome(0, "dead"), Outcome(1, "evicted")]


def refused_for_good(client: Client, message: Frame) -> bytes:
    return client.frame("NACK", id=message.headers["ack"], requeue="false") + client.frame(
        "UNSUBSCRIBE", id="0", durable_subscription_name="orders", receipt="done"
    )


def acknowledged_too_late(client: Client, message: Frame) -> bytes:
    return (
        client.frame("BEGIN", transaction="t")
        + client.frame("ACK", id=message.headers["ack"], transaction="t")
        + client.frame("UNSUBSCRIBE", id="0")
        + client.frame("UNSUBSCRIBE", id="0", durable_subscription_name="orders")
        + client.frame("COMMIT", transaction="t", receipt="done")
    )


@pytest.mark.parametrize("answered", [refused_for_good, acknowledged_too_late])
async def test_answered_and_removed_in_one_batch(answered: Any, store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber(prefetch_count="1")
        await broker.store_messages(b"0")
        message = await subscriber.next_message()
        await broker.settle()
        with broker.held_store():
            await publish_into_one_batch(broker)
            await subscriber.send_raw(answered(subscriber, message))
            await wait_all_tasks_blocked()
        await subscriber.expect_receipt("done")
        await broker.settle()

        assert [one.offset for one in outcomes(broker)] == [0, 1]


async def test_published_and_removed_in_one_batch(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        await absent(broker, "orders")
        await absent(broker, "others")
        deleter = await broker.client(client_id="orders")
        with broker.held_store():
            await publish_into_one_batch(broker)
            await publish_into_one_batch(broker)
            await deleter.send("UNSUBSCRIBE", id="0", durable_subscription_name="orders", receipt="gone")
            await wait_all_tasks_blocked()
        await deleter.expect_receipt("gone")
        await broker.settle()

        assert outcomes(broker) == [Outcome(0, "unsubscribed"), Outcome(1, "unsubscribed")]


# A subscription that is moved ----------------------------------------------------------------------------------------


async def test_what_was_settled_before_a_move_is_of_the_generation_before(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        await absent(broker, "others")
        subscriber = await broker.durable_subscriber(prefetch_count="2")
        await broker.store_messages(b"0", b"1", b"2")
        for message in await subscriber.next_messages(2):
            await subscriber.send("ACK", id=message.headers["ack"])
        await wait_all_tasks_blocked()
        await move(broker, "latest")
        await move(broker, "earliest")
        subscriber = await broker.durable_subscriber()
        await subscriber.acknowledge(*await subscriber.next_messages(3))

        first = [Outcome(0, "acked"), Outcome(1, "acked"), Outcome(2, "skipped")]
        last = [Outcome(offset, "acked", 2) for offset in range(3)]
        assert outcomes(broker) == sorted(first + last)


async def test_moved_while_a_transaction_is_being_completed(
    store_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_actor, "SLICE_S", 0.0)  # others run after each unit
    async with running_broker(store_in=store_directory) as broker:
        await absent(broker, "others")
        subscriber = await broker.durable_subscriber(prefetch_count="1")
        await broker.store_messages(b"0")
        message = await subscriber.next_message()
        await broker.settle()
        second = await broker.client(client_id="billing")
        topic = broker.registry.topics["a"]
        reading = subscription_of(broker).readings[topic]
        with broker.held_store():
            await publish_into_one_batch(broker)
            await subscriber.send("BEGIN", transaction="t")
            await subscriber.send("ACK", id=message.headers["ack"], transaction="t")
            await subscriber.send("COMMIT", transaction="t")
            await wait_all_tasks_blocked()
            for _ in range(900):
                broker.journal.submit(Unit([Appended(topic, [make_message(b"x")])]))
        while reading.cursor.ack_floor == 0:
            await trio.lowlevel.checkpoint()
        assert not broker.journal.is_idle
        async with trio.open_nursery() as nursery:
            nursery.start_soon(move, broker, "earliest")
            await second.subscribe(durable_subscription_name="orders", ack="auto")
            await second.next_message()
        await broker.settle()

        assert outcomes(broker)[:2] == [Outcome(0, "acked"), Outcome(0, "sent", 1)]


async def test_one_that_once_asked_for_a_time_stays_where_it_was_moved(store_directory: Path) -> None:
    settings: dict[str, Any] = {"store_in": store_directory, "topics": [{"pattern": "a", "retain_messages": 1000}]}
    async with running_broker(**settings) as broker:
        await broker.store_messages(b"old")
        since = await a_little_later(broker)
        subscriber = await broker.durable_subscriber(**begin_from(since))
        await broker.store_messages(b"new")
        await subscriber.acknowledge(await subscriber.next_message())
        await move(broker, "earliest")

    async with running_broker(**settings) as broker:
        subscriber = await broker.durable_subscriber()

        assert [message.body for message in await broker.rest_for(subscriber)] == [b"old", b"new"]


# What is gone --------------------------------------------------------------------------------------------------------


async def letter_purged_in_flight(broker: BrokerUnderTest) -> tuple[Client, Frame]:
    reader = await broker.durable_subscriber(LETTERS, "letters", client_id="undertaker")
    subscriber = await broker.durable_subscriber()
    await broker.store_messages(b"x")
    message = await subscriber.next_message()
    await subscriber.send("NACK", id=message.headers["ack"], requeue="false")
    letter = await reader.next_message()
    await broker.settle()
    await broker.parts.control.call("purge_dead_letters", {"topic": "a"})
    return reader, letter


async def test_purged_in_flight_and_the_client_is_lost(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        reader, _ = await letter_purged_in_flight(broker)
        await reader.vanish()
        reader = await broker.durable_subscriber(LETTERS, "letters", client_id="undertaker")

        assert await broker.rest_for(reader) == []
        assert outcomes(broker, "letters", topic="DLQ.a") == [Outcome(0, "skipped")]


async def test_purged_in_flight_and_refused(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory, redelivery_first_delay_ms=0) as broker:
        reader, letter = await letter_purged_in_flight(broker)
        await reader.send("NACK", id=letter.headers["ack"])
        with trio.fail_after(HARD_TIMEOUT_S):
            while not outcomes(broker, "letters", topic="DLQ.a"):
                await broker.settle()

        assert await broker.rest_for(reader) == []
        assert outcomes(broker, "letters", topic="DLQ.a") == [Outcome(0, "skipped")]


async def test_dropped_for_a_slow_durable_subscriber(store_directory: Path) -> None:
    """What opted out of the store is all that can be dropped for one."""
    policy: dict[str, Any] = {"window_messages": 10, "slow_subscriber": "drop-oldest"}
    async with running_broker(store_in=store_directory, **policy) as broker:
        subscriber = await broker.durable_subscriber(prefetch_count="1")
        for _ in range(40):
            await broker.store_messages(b"x", persistent="false")
        while messages := await broker.rest_for(subscriber):
            for message in messages:
                await subscriber.send("ACK", id=message.headers["ack"])
        await broker.settle()

        found = outcomes(broker)
        dropped = subscription_of(broker).counters.dropped
        assert [one.offset for one in found] == list(range(40))
        assert sum(one.outcome == "dropped" for one in found) == dropped > 0


# What was never meant ------------------------------------------------------------------------------------------------


async def test_what_was_redriven_to_another_subscriber(store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        other = await broker.durable_subscriber(name="others", client_id="others")
        subscriber = await broker.durable_subscriber()
        await broker.store_messages(b"0")
        await other.acknowledge(await other.next_message())
        await other.vanish()
        message = await subscriber.next_message()
        await subscriber.send("NACK", id=message.headers["ack"], requeue="false")
        await subscriber.sync()
        await broker.settle()
        await broker.parts.control.call("redrive_dead_letters", {"topic": "a"})
        await subscriber.acknowledge(await subscriber.next_message())
        await broker.delete_subscription("others/others")
        await broker.settle()

        assert outcomes(broker, "others") == [Outcome(0, "acked")]


@pytest.mark.parametrize("is_moved", [True, False])
async def test_ones_own_message_that_one_does_not_want(is_moved: bool, store_directory: Path) -> None:
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber(no_local="true")
        subscription = subscription_of(broker)
        await broker.parts.control.call("pause_subscription", {"id": subscription.public_id})
        await subscriber.publish(b"own")
        await subscriber.sync()
        if is_moved:
            await move(broker, "latest")
        else:
            await broker.delete_subscription("billing/orders")
        await broker.settle()

        assert outcomes(broker) == []


async def test_what_expired_before_the_time_that_was_asked_for(store_directory: Path) -> None:
    topics = [{"pattern": "a", "retain_messages": 1_000_000}]
    async with running_broker(store_in=store_directory, topics=topics) as broker:
        await broker.store_messages(b"old", ttl="1")
        since = await a_little_later(broker)
        await broker.store_messages(b"new")
        subscriber = await broker.durable_subscriber(**begin_from(since))
        await subscriber.acknowledge(await subscriber.next_message())

        assert outcomes(broker) == [Outcome(1, "acked")]
