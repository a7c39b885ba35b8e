"""What a transaction has acknowledged stays acknowledged, whatever its connection does before it is written.

A COMMIT's receipt says that all of it is on disk. Between the COMMIT and that moment the connection may end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from trio.testing import wait_all_tasks_blocked

from stompbroker.control.explaining import describe_delivery
from stompbroker.delivery import Waiting, collecting
from stompbroker.ids import FIRST_OFFSET
from tests.journal.broker_on_store import broker_on
from tests.journal.journal_under_test import until
from tests.journal.poison import POISON, refuse_messages

if TYPE_CHECKING:
    from pathlib import Path

    from tests.journal.broker_on_store import BrokerOnStore
    from tests.support.broker_under_test import Client


async def commit_of_an_ack(broker: BrokerOnStore) -> tuple[Client, bytes]:
    """A durable subscriber with one message; and what it sends to acknowledge it in a transaction."""
    subscriber = await broker.durable_subscriber()
    await broker.store_messages(b"one")
    message = await subscriber.next_message()
    frames = (
        subscriber.frame("BEGIN", transaction="t"),
        subscriber.frame("ACK", id=message.headers["ack"], transaction="t"),
        subscriber.frame("COMMIT", transaction="t", receipt="committed"),
    )
    return subscriber, b"".join(frames)


async def what_comes(broker: BrokerOnStore, subscriber: Client) -> list[bytes]:
    """Everything the subscriber gets that was published before now."""
    publisher = await broker.client()
    await publisher.publish(b"the last one")
    bodies: list[bytes] = []
    while (body := (await subscriber.next_message()).body) != b"the last one":
        bodies.append(body)
    return bodies


ENDINGS = ("DISCONNECT", "UNSUBSCRIBE", "a protocol violation")


@pytest.mark.parametrize("ending", ENDINGS)
async def test_an_ack_whose_commit_has_a_receipt_stays_when_the_client_ends(data: Path, ending: str) -> None:
    """In one chunk, as a client writes that acknowledges its last message and goes."""
    async with broker_on(data) as broker:
        subscriber, commit = await commit_of_an_ack(broker)
        last = {
            "DISCONNECT": subscriber.frame("DISCONNECT", receipt="goodbye"),
            "UNSUBSCRIBE": subscriber.frame("UNSUBSCRIBE", id="0", receipt="goodbye"),
            "a protocol violation": subscriber.frame("ACK", id="no such"),
        }[ending]

        await subscriber.send_raw(commit + last)
        await subscriber.expect_receipt("committed")
        if ending == "a protocol violation":
            await subscriber.expect_error("unknown ack id")
        else:
            await subscriber.expect_receipt("goodbye")
        await subscriber.vanish()

        assert await what_comes(broker, await broker.durable_subscriber()) == []


async def test_an_ack_whose_commit_has_a_receipt_stays_when_what_comes_behind_it_is_refused(data: Path) -> None:
    """The store refuses a message of the same connection, in the same batch."""
    refuse_messages(data)
    async with broker_on(data) as broker:
        subscriber, commit = await commit_of_an_ack(broker)

        await subscriber.send_raw(commit + subscriber.frame("SEND", POISON, destination="/topic/a"))
        await subscriber.expect_receipt("committed")
        await subscriber.expect_error("cannot be stored")

        assert await what_comes(broker, await broker.durable_subscriber()) == []


async def test_a_client_that_is_leaving_is_consistent_before_that_is_written(data: Path) -> None:
    async with broker_on(data) as broker:
        subscriber, commit = await commit_of_an_ack(broker)
        broker.store.hold()
        await subscriber.send_raw(commit + subscriber.frame("DISCONNECT", receipt="goodbye"))
        await wait_all_tasks_blocked()

        broker.check_invariants()


async def test_an_ack_behind_a_commit_stays_when_the_client_ends(data: Path) -> None:
    """Answers wait behind a transaction of their own connection, and count all the same."""
    async with broker_on(data) as broker:
        subscriber = await broker.durable_subscriber()
        await broker.store_messages(b"one")
        message = await subscriber.next_message()
        frames = (
            subscriber.frame("BEGIN", transaction="t"),
            subscriber.frame("SEND", b"two", destination="/topic/a", transaction="t"),
            subscriber.frame("COMMIT", transaction="t"),
            subscriber.frame("ACK", id=message.headers["ack"], receipt="acknowledged"),
            subscriber.frame("DISCONNECT", receipt="goodbye"),
        )

        await subscriber.send_raw(b"".join(frames))
        await subscriber.expect_receipt("acknowledged")
        await subscriber.expect_receipt("goodbye")
        await subscriber.vanish()

        assert await what_comes(broker, await broker.durable_subscriber()) == [b"two"]


async def test_a_commit_with_a_receipt_counts_although_its_subscription_was_taken_over(data: Path) -> None:
    async with broker_on(data) as broker:
        subscriber, commit = await commit_of_an_ack(broker)
        broker.store.hold()
        await subscriber.send_raw(commit)
        await wait_all_tasks_blocked()
        newcomer = await broker.client(client_id="billing")
        headers = {"ack": "client-individual", "durable-subscription-name": "orders", "receipt": "subscribed"}
        await newcomer.send("SUBSCRIBE", id="0", destination="/topic/a", **headers)
        await wait_all_tasks_blocked()

        broker.store.release()

        first = await subscriber.next_frame()
        await newcomer.expect_receipt("subscribed")
        has_come_again = bool(await what_comes(broker, newcomer))
        assert has_come_again != (first.command == "RECEIPT"), "it comes again exactly if nobody was told it counts"


async def test_a_commit_counts_as_a_whole_when_its_connection_is_lost_before_it_is_written(data: Path) -> None:
    """Its messages and its acknowledgements are one: both count or neither does."""
    async with broker_on(data) as broker:
        subscriber = await broker.durable_subscriber()
        await broker.store_messages(b"one")
        message = await subscriber.next_message()
        broker.store.hold()
        frames = (
            subscriber.frame("BEGIN", transaction="t"),
            subscriber.frame("ACK", id=message.headers["ack"], transaction="t"),
            subscriber.frame("SEND", b"the answer to one", destination="/topic/a", transaction="t"),
            subscriber.frame("COMMIT", transaction="t"),
        )
        await subscriber.send_raw(b"".join(frames))
        await wait_all_tasks_blocked()
        await subscriber.vanish()
        broker.store.release()
        await until(lambda: not broker.journal.statistics().backlog_bytes)

        came = await what_comes(broker, await broker.durable_subscriber())
        assert came in ([b"one"], [b"the answer to one"])


async def messages_for(broker: BrokerOnStore, subscriber: Client, *bodies: bytes) -> list[str]:
    """The `ack` ids of messages that the subscriber has in flight."""
    publisher = await broker.client()
    for body in bodies:
        await publisher.publish(body, receipt="published")
        await publisher.expect_receipt("published")
    return [(await subscriber.next_message()).headers["ack"] for _ in bodies]


def transaction(client: Client, name: str, *frames: bytes) -> bytes:
    return b"".join([client.frame("BEGIN", transaction=name), *frames, client.frame("COMMIT", transaction=name)])


async def test_what_is_pending_is_neither_in_flight_nor_settled(data: Path) -> None:
    """For whoever sends it is gone; for whoever deletes it is there: the unit may still be refused."""
    async with broker_on(data) as broker:
        subscriber, commit = await commit_of_an_ack(broker)
        broker.store.hold()
        await subscriber.send_raw(commit)
        await wait_all_tasks_blocked()

        (subscription,) = broker.registry.durable.values()
        ((topic, reading),) = subscription.readings.items()
        assert (subscription.pending, reading.cursor.in_flight, reading.cursor.free_count) == (1, 0, 0)
        assert (reading.cursor.ack_floor, collecting.settled_floor(topic)) == (0, 0)
        assert not reading.cursor.is_settled(0, 1)
        assert describe_delivery(reading, FIRST_OFFSET)["state"] == "pending"


async def test_a_batch_has_what_its_own_units_settle_and_not_what_later_ones_do(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ACK of a later transaction would else be durable without its SEND."""
    async with broker_on(data) as broker:
        subscriber = await broker.durable_subscriber()
        first, second = await messages_for(broker, subscriber, b"one", b"two")
        broker.store.hold()
        await subscriber.send_raw(transaction(subscriber, "t1", subscriber.frame("ACK", id=first, transaction="t1")))
        await wait_all_tasks_blocked()
        send = subscriber.frame("SEND", b"three", destination="/topic/a", transaction="t2")
        ack = subscriber.frame("ACK", id=second, transaction="t2")
        monkeypatch.setattr("stompbroker.journal.backlog.MAX_BATCH_UNITS", 1)
        await subscriber.send_raw(transaction(subscriber, "t2", ack, send))
        await wait_all_tasks_blocked()
        broker.store.release()
        await until(lambda: not broker.journal.statistics().backlog_bytes)

        moved = [(batch.cursors[-1].ack_floor, len(batch.messages)) for batch in broker.store.written if batch.cursors]
        assert moved[-2:] == [(1, 0), (2, 1)]


@pytest.mark.parametrize("answer", ["ACK", "NACK"])
async def test_what_a_refused_transaction_answered_comes_again_although_its_consumer_has_left(
    data: Path, answer: str
) -> None:
    refuse_messages(data)
    async with broker_on(data) as broker:
        subscriber = await broker.durable_subscriber()
        (ack,) = await messages_for(broker, subscriber, b"one")
        broker.store.hold()
        poison = subscriber.frame("SEND", POISON, destination="/topic/a", transaction="t")
        answered = subscriber.frame(answer, id=ack, transaction="t")
        await subscriber.send_raw(transaction(subscriber, "t", answered, poison))
        await wait_all_tasks_blocked()
        await subscriber.vanish()
        newcomer = await broker.durable_subscriber()
        broker.store.release()

        message = await newcomer.next_message()
        assert (message.body, message.headers["redelivered"]) == (b"one", "true")
        broker.check_invariants()


async def test_what_waits_and_is_acknowledged_by_a_refused_transaction_goes_again_when_it_is_due(data: Path) -> None:
    """Also if its time comes while it is pending, which nobody takes notice of."""
    refuse_messages(data)
    async with broker_on(data) as broker:
        subscriber = await broker.durable_subscriber()
        (ack,) = await messages_for(broker, subscriber, b"one")
        broker.store.hold()
        await subscriber.send("NACK", id=ack, delay="3600000")
        await wait_all_tasks_blocked()
        poison = subscriber.frame("SEND", POISON, destination="/topic/a", transaction="t")
        late = subscriber.frame("ACK", id=ack, transaction="t")
        await subscriber.send_raw(transaction(subscriber, "t", late, poison))
        await wait_all_tasks_blocked()
        (subscription,) = broker.registry.durable.values()
        (reading,) = subscription.readings.values()
        due_ns = reading.failures[FIRST_OFFSET].due_ns
        assert broker.registry.redeliveries.take_due(due_ns, 10) == []
        broker.store.release()
        await subscriber.expect_error("cannot be stored")

        assert broker.registry.redeliveries.take_due(due_ns, 10) == [Waiting(reading, FIRST_OFFSET)]
