"""The checklist's items 50 to 52: transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.end_to_end.conformance.mock_time import pass_time
from tests.end_to_end.conformance.versions import V1_1, V1_2, answer, every_version, from_1_1_on
from tests.support.broker_under_test import running_broker

if TYPE_CHECKING:
    from trio.testing import MockClock

    from stompbroker.stomp import Version
    from tests.support.broker_under_test import BrokerUnderTest

#: How long a refused message waits by default.
NACK_DELAY_S = 1.0


@every_version
@pytest.mark.parametrize("command", ["BEGIN", "COMMIT", "ABORT"])
async def test_item_50_the_transaction_must_be_named(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version, command: str
) -> None:
    client = await broker.client(version)

    await client.send(command, receipt="r")

    error = await client.expect_error(f"{command} needs the header 'transaction'")
    assert error.headers["receipt-id"] == "r"


@every_version
async def test_item_50_an_open_transaction_cannot_be_begun_again(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.client(version)
    await client.send("BEGIN", transaction="t")

    await client.send("BEGIN", transaction="t", receipt="r")

    error = await client.expect_error("transaction already open", "'t'")
    assert error.headers["receipt-id"] == "r"


@every_version
@pytest.mark.parametrize("end", ["COMMIT", "ABORT"])
async def test_item_50_an_id_is_free_again_when_its_transaction_has_ended(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version, end: str
) -> None:
    client = await broker.subscriber(version=version)

    for number in range(3):
        await client.send("BEGIN", transaction="t")
        await client.publish(b"%d" % number, transaction="t")
        await client.send(end, transaction="t", receipt=str(number))

    frames = [await client.next_frame() for _ in range(6 if end == "COMMIT" else 3)]
    assert [f.headers["receipt-id"] for f in frames if f.command == "RECEIPT"] == ["0", "1", "2"]
    assert [f.body for f in frames if f.command == "MESSAGE"] == ([b"0", b"1", b"2"] if end == "COMMIT" else [])
    await client.expect_nothing()


@every_version
@pytest.mark.parametrize("end", ["COMMIT", "ABORT"])
async def test_item_50_what_was_not_begun_cannot_end(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version, end: str
) -> None:
    client = await broker.client(version)
    await client.send("BEGIN", transaction="t")
    await client.send("COMMIT", transaction="t")

    await client.send(end, transaction="t", receipt="r")

    error = await client.expect_error("unknown transaction", "'t'")
    assert error.headers["receipt-id"] == "r"


async def test_item_50_ids_are_unique_per_connection_only(autojump_clock: MockClock, broker: BrokerUnderTest) -> None:
    first, second = await broker.client(), await broker.client()

    for client in (first, second):
        await client.send("BEGIN", transaction="t", receipt="r")

    for client in (first, second):
        await client.expect_receipt("r")


@every_version
async def test_item_51_what_was_sent_in_a_transaction_is_seen_at_commit_and_in_order(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    subscriber = await broker.subscriber()
    publisher = await broker.client(version)
    await publisher.send("BEGIN", transaction="t")

    await publisher.publish(b"1", b"2", transaction="t")
    await publisher.publish(b"outside")
    assert (await subscriber.next_message()).body == b"outside"
    await subscriber.expect_nothing()
    await publisher.send("COMMIT", transaction="t")

    assert [message.body for message in await subscriber.next_messages(2)] == [b"1", b"2"]


@every_version
async def test_item_51_two_transactions_do_not_mix(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    subscriber = await broker.subscriber()
    publisher = await broker.client(version)
    for name in ("a", "b"):
        await publisher.send("BEGIN", transaction=name)
    for number in (1, 2):
        for name in ("a", "b"):
            await publisher.publish(f"{name}{number}".encode(), transaction=name)

    await publisher.send("COMMIT", transaction="b")
    await publisher.send("ABORT", transaction="a")

    assert [message.body for message in await subscriber.next_messages(2)] == [b"b1", b"b2"]
    await subscriber.expect_nothing()


@every_version
async def test_item_51_abort_drops_what_was_sent(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    subscriber = await broker.subscriber()
    publisher = await broker.client(version)
    await publisher.send("BEGIN", transaction="t")
    await publisher.publish(b"1", transaction="t")

    await publisher.send("ABORT", transaction="t", receipt="aborted")

    await publisher.expect_receipt("aborted")
    await subscriber.expect_nothing()


@every_version
async def test_item_51_an_ack_in_a_transaction_counts_at_commit(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.subscriber(version=version, ack="client-individual")
    (subscription,) = broker.registry.subscriptions
    await client.publish(b"1")
    message = await client.next_message()
    await client.send("BEGIN", transaction="t")

    await answer(client, "ACK", message, transaction="t", receipt="kept")
    await client.expect_receipt("kept")
    assert subscription.counters.acked == 0
    await client.send("COMMIT", transaction="t", receipt="done")
    await client.expect_receipt("done")

    assert subscription.counters.acked == 1


@every_version
@pytest.mark.parametrize("mode", ["client", "client-individual"])
async def test_item_51_after_abort_what_was_acknowledged_can_be_acknowledged_again(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version, mode: str
) -> None:
    client = await broker.subscriber(version=version, ack=mode, prefetch_count="2")
    (subscription,) = broker.registry.subscriptions
    await client.publish(b"1", b"2")
    messages = await client.next_messages(2)
    await client.send("BEGIN", transaction="t")
    for message in messages:
        await answer(client, "ACK", message, transaction="t")

    await client.send("ABORT", transaction="t", receipt="aborted")
    await client.expect_receipt("aborted")
    assert subscription.counters.acked == 0
    for message in messages:
        await answer(client, "ACK", message)
    await client.sync()

    assert subscription.counters.acked == 2
    assert subscription.counters.late == 0


@every_version
async def test_item_51_after_abort_the_credit_is_taken_again(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.subscriber(version=version, ack="client-individual", prefetch_count="1")
    await client.publish(b"1")
    message = await client.next_message()
    await client.send("BEGIN", transaction="t")
    await answer(client, "ACK", message, transaction="t")
    await client.send("ABORT", transaction="t")

    await client.publish(b"2")
    await client.expect_nothing()
    await answer(client, "ACK", message)

    assert (await client.next_message()).body == b"2"


@from_1_1_on
async def test_item_51_a_nack_in_a_transaction_counts_at_commit(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.subscriber(version=version, ack="client-individual")
    await client.publish(b"1")
    message = await client.next_message()
    await client.send("BEGIN", transaction="t")

    await answer(client, "NACK", message, transaction="t")
    await pass_time(10 * NACK_DELAY_S)
    await client.expect_nothing()
    await client.send("COMMIT", transaction="t")

    assert (await client.next_message()).headers["redelivered"] == "true"


@from_1_1_on
async def test_item_51_abort_undoes_a_nack(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    client = await broker.subscriber(version=version, ack="client-individual")
    await client.publish(b"1")
    message = await client.next_message()
    await client.send("BEGIN", transaction="t")

    await answer(client, "NACK", message, transaction="t")
    await client.send("ABORT", transaction="t")
    await pass_time(10 * NACK_DELAY_S)

    await client.expect_nothing()


@every_version
async def test_item_51_send_and_ack_take_effect_together(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version
) -> None:
    worker = await broker.subscriber("/topic/in", version, ack="client-individual")
    (subscription,) = broker.registry.subscriptions
    listener = await broker.subscriber("/topic/out")
    await worker.publish(b"job", destination="/topic/in")
    job = await worker.next_message()
    await worker.send("BEGIN", transaction="t")
    await worker.publish(b"result", destination="/topic/out", transaction="t")
    await answer(worker, "ACK", job, transaction="t")
    await listener.expect_nothing()
    assert subscription.counters.acked == 0

    await worker.send("COMMIT", transaction="t", receipt="done")

    await worker.expect_receipt("done")
    assert (await listener.next_message()).body == b"result"
    assert subscription.counters.acked == 1


async def test_item_51_a_commit_that_fails_does_nothing_at_all(autojump_clock: MockClock) -> None:
    """The ACK names a subscription that was closed in between, and so long ago that its name is forgotten."""
    async with running_broker(max_subscriptions=1) as broker:
        listener = await broker.subscriber("/topic/out")
        client = await broker.subscriber("/topic/in", V1_1, id="old", ack="client-individual")
        await client.publish(b"job", destination="/topic/in")
        job = await client.next_message()
        await client.send("BEGIN", transaction="t")
        await client.publish(b"half", destination="/topic/out", transaction="t")
        await answer(client, "ACK", job, transaction="t")
        await client.send("UNSUBSCRIBE", id="old")
        await client.subscribe("/topic/in", id="new")
        await client.send("UNSUBSCRIBE", id="new")

        await client.send("COMMIT", transaction="t", receipt="r")
        answered = await client.next_frame()

        # Whether a late ACK lets it fail or not: never one half without the other.
        if answered.command == "ERROR":
            await listener.expect_nothing()
        else:
            assert (await listener.next_message()).body == b"half"


@every_version
@pytest.mark.parametrize("ending", ["DISCONNECT", "vanished", "mistake"])
async def test_item_52_open_transactions_end_with_their_connection(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version, ending: str
) -> None:
    subscriber = await broker.subscriber()
    publisher = await broker.client(version)
    await publisher.send("BEGIN", transaction="t")
    await publisher.publish(b"1", transaction="t", receipt="kept")
    await publisher.expect_receipt("kept")

    if ending == "DISCONNECT":
        await publisher.send("DISCONNECT", receipt="bye")
        await publisher.expect_receipt("bye")
    elif ending == "mistake":
        await publisher.send("NONSENSE")
        assert (await publisher.next_frame()).command == "ERROR"
    await publisher.vanish()

    await subscriber.expect_nothing()
    assert broker.budget.used_bytes == 0


@every_version
@pytest.mark.parametrize("ending", ["DISCONNECT", "NONSENSE"])
async def test_item_52_a_session_is_consistent_when_it_ended_with_a_transaction_open(
    autojump_clock: MockClock, broker: BrokerUnderTest, version: Version, ending: str
) -> None:
    client = await broker.client(version)
    await client.send("BEGIN", transaction="t")

    await client.send(ending, receipt="last")
    await client.next_frame()

    client.session.check_invariants()


async def test_item_52_a_transaction_of_a_lost_client_frees_its_id_for_nobody_else(
    autojump_clock: MockClock, broker: BrokerUnderTest
) -> None:
    first, second = await broker.client(V1_2), await broker.client(V1_2)
    await first.send("BEGIN", transaction="t")
    await second.send("BEGIN", transaction="t")
    subscriber = await broker.subscriber()
    await second.publish(b"kept", transaction="t")

    await first.vanish()
    await second.send("COMMIT", transaction="t")

    assert (await subscriber.next_message()).body == b"kept"
