"""A cursor never says more than the ledger, whatever is settled while a batch is being formed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from trio.testing import wait_all_tasks_blocked

from stompbroker.journal import StoreJournal
from tests.journal.poison import refuse_messages
from tests.ledger.recorded import recorded
from tests.support.answers import acknowledge
from tests.support.broker_under_test import A_LOOK_S, running_broker

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from trio.testing import MockClock

    from stompbroker.delivery import Consumer
    from stompbroker.journal import Formed
    from stompbroker.stomp import Frame
    from tests.support.broker_under_test import BrokerUnderTest, Client

#: Cursors that move: more than are written down in one step.
TOPICS = 250


def offsets(broker: BrokerUnderTest, topic: str) -> list[int]:
    """Of which the ledger has a record."""
    return sorted(row["offset"] for row in recorded(broker, topic))


def ack_floor(broker: BrokerUnderTest, topic: str) -> int:
    ((floor,),) = broker.look(
        f"SELECT c.ack_floor FROM cursors c JOIN topics t ON t.id = c.topic_id WHERE t.name = '{topic}'"
    )
    assert isinstance(floor, int)
    return floor


def acknowledge_between_steps(monkeypatch: pytest.MonkeyPatch, consumer: Consumer, number: int) -> None:
    """While the next batch is formed that takes more than one step."""
    form_in_steps = StoreJournal.form_in_steps

    def form_and_acknowledge(journal: StoreJournal) -> Generator[None, None, Formed]:
        steps = form_in_steps(journal)
        try:
            yield next(steps)
        except StopIteration as last:
            formed: Formed = last.value
            return formed
        acknowledge(consumer, number, number)
        return (yield from steps)

    monkeypatch.setattr(StoreJournal, "form_in_steps", form_and_acknowledge)


async def consumer_of_many(broker: BrokerUnderTest) -> tuple[Consumer, Client, list[Frame]]:
    """A durable subscriber with three messages of the first topic, numbered 1 to 3, and one of each of the others."""
    subscriber = await broker.durable_subscriber("/topic/many.*", prefetch_count="1000")
    publisher = await broker.client()
    await publisher.publish(b"1", b"2", b"3", destination="/topic/many.0")
    for number in range(1, TOPICS):
        await publisher.publish(b"one", destination=f"/topic/many.{number}")
    await publisher.sync()
    messages = await subscriber.next_messages(TOPICS + 2)
    await broker.settle()
    (subscription,) = broker.registry.durable.values()
    assert subscription.consumer is not None
    return subscription.consumer, subscriber, messages


async def test_what_is_settled_while_a_transaction_is_written_down(
    store_directory: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transaction's cursor is that of the last step, and what has moved it since the first goes with it."""
    async with running_broker(store_in=store_directory) as broker:
        consumer, subscriber, messages = await consumer_of_many(broker)
        # The second of the first topic, and all of the others: no receipt is owed, so it all waits for company.
        acknowledge(consumer, 2, 2)
        acknowledge(consumer, 4, TOPICS + 2)
        acknowledge_between_steps(monkeypatch, consumer, 1)

        await subscriber.send("BEGIN", transaction="t")
        await subscriber.send("ACK", id=messages[2].headers["ack"], transaction="t")
        await subscriber.send("COMMIT", transaction="t", receipt="committed")
        await subscriber.expect_receipt("committed")
        broker.kill()

    assert ack_floor(broker, "many.0") == 3
    assert offsets(broker, "many.0") == [0, 1, 2]


async def test_what_is_settled_and_deleted_in_one_batch(
    store_directory: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind what was acknowledged between two steps there is nothing any more that could be delivered again."""
    async with running_broker(store_in=store_directory) as broker:
        consumer, _, _ = await consumer_of_many(broker)
        acknowledge_between_steps(monkeypatch, consumer, 3)
        acknowledge(consumer, 1, 2)
        acknowledge(consumer, 4, TOPICS + 2)
        written = broker.journal.batches
        mock_clock.jump(0.06)
        while broker.journal.batches == written:
            await wait_all_tasks_blocked(A_LOOK_S)
        broker.kill()

    assert broker.look("SELECT count(*) FROM messages") == [(0,)]
    assert ack_floor(broker, "many.0") == 3
    assert offsets(broker, "many.0") == [0, 1, 2]


async def test_what_is_settled_while_the_store_is_asked_whom_it_refuses(
    store_directory: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_messages(store_directory)
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber()
        await broker.store_messages(b"0", b"1", b"2")
        messages = await subscriber.next_messages(3)
        await broker.settle()
        (subscription,) = broker.registry.durable.values()
        consumer = subscription.consumer
        assert consumer is not None
        publisher = await broker.client()
        refuse = StoreJournal.refuse

        def acknowledge_and_refuse(*args: Any) -> None:
            acknowledge(consumer, 2, 2)
            refuse(*args)

        monkeypatch.setattr(StoreJournal, "refuse", acknowledge_and_refuse)
        with broker.held_store():
            await publisher.publish(b"first")
            await wait_all_tasks_blocked()
            await publisher.publish(b"poison")
            await subscriber.send("BEGIN", transaction="t")
            await subscriber.send("ACK", id=messages[0].headers["ack"], transaction="t")
            await subscriber.send("COMMIT", transaction="t", receipt="committed")
            await wait_all_tasks_blocked()
        await subscriber.next_message()
        await subscriber.expect_receipt("committed")
        broker.kill()

    assert ack_floor(broker, "a") == 2
    assert offsets(broker, "a") == [0, 1]


@pytest.mark.parametrize("ack", ["client-individual", "auto"])
async def test_a_persistent_false_message_that_is_lost_with_a_kill_has_no_record(
    ack: str, store_directory: Path
) -> None:
    """The store knows that it was sent, and nobody knows what it was."""
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber()
        await broker.store_messages(b"stored")
        await broker.store_messages(b"lost", persistent="false")
        await broker.store_messages(b"last")
        _, _, last = await subscriber.next_messages(3)
        await subscriber.acknowledge(last)
        broker.kill()

    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber(ack=ack)
        again = await subscriber.next_message()
        assert again.body == b"stored"
        if ack != "auto":
            await subscriber.acknowledge(again)
        await broker.expect_silence(subscriber)

        records = {row["offset"]: row["outcome"] for row in recorded(broker, "a")}
        assert records == {0: "sent" if ack == "auto" else "acked", 2: "acked"}
        (reading,) = broker.registry.topics["a"].readings.values()
        assert reading.cursor.ack_floor == 3
