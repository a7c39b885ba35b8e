"""What the store can never take is told to whoever sent it, and to nobody else; everything beside it is written."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import wait_all_tasks_blocked

from stompbroker.actors.journal import BaseRefused
from stompbroker.changes import Answer, Appended, Unit, Verdict
from stompbroker.delivery import Refusal
from tests.journal.broker_on_store import broker_on
from tests.journal.journal_under_test import acknowledgement, make_lane, running_journal, until
from tests.journal.poison import POISON, refuse_messages, refuse_redeliveries, refuse_subscriptions
from tests.support.messages import make_message, make_messages
from tests.support.patience import HARD_TIMEOUT_S

if TYPE_CHECKING:
    from pathlib import Path

    from tests.journal.journal_under_test import JournalUnderTest
    from tests.support.broker_under_test import Client


async def gathered(under_test: JournalUnderTest) -> None:
    """What is submitted from now on waits for the batch being written, and makes one batch together."""
    under_test.store.hold()
    under_test.publish("first", under_test.topic("first"), make_messages(1))
    await until(lambda: under_test.store.attempts and len(under_test.journal.backlog) == 0)


async def write_all(under_test: JournalUnderTest) -> None:
    under_test.store.release()
    await under_test.idle()


# Messages ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("poisonous", [{0}, {6}, {9}, {2, 3}, {0, 5, 9}, set(range(10))], ids=str)
async def test_only_the_culprits_of_a_batch_are_refused(data: Path, poisonous: set[int]) -> None:
    refuse_messages(data)
    async with running_journal(data) as under_test:
        await under_test.durable("*")
        topic = under_test.topic("a")
        await gathered(under_test)
        bodies = [POISON if number in poisonous else b"%d" % number for number in range(10)]
        for number, body in enumerate(bodies):
            under_test.publish(number, topic, [make_message(body), make_message(b"beside it")])
        with capture_logs() as logged:
            await write_all(under_test)

        innocent = [number for number in range(10) if number not in poisonous]
        assert under_test.completed == ["first", *innocent]
        assert under_test.refused == sorted(poisonous)
        expected = [body for number in innocent for body in (b"%d" % number, b"beside it")]
        assert under_test.stored() == list(enumerate(expected)), "without a hole"
        assert [message.body for _, message in topic.log] == expected, "and the same in memory"
        assert len(under_test.store.written) == 3, "subscription, first, and all the rest in one"
        assert [entry["units"] for entry in logged if "refused" in entry["event"]] == [len(poisonous)]


async def test_what_a_refused_unit_kept_is_given_back(data: Path) -> None:
    refuse_messages(data)
    async with running_journal(data) as under_test:
        await under_test.durable("*")
        lane = make_lane()
        before_bytes = under_test.budget.used_bytes

        under_test.publish("poison", under_test.topic("a"), [make_message(POISON)], lane=lane)
        await under_test.idle()

        assert under_test.refused == ["poison"]
        assert under_test.budget.used_bytes == before_bytes
        assert (lane.units, lane.size_bytes, under_test.topic("a").pending_units) == (0, 0, 0)


async def test_what_comes_behind_a_refused_unit_of_its_lane_is_still_completed(data: Path) -> None:
    refuse_messages(data)
    async with running_journal(data) as under_test:
        await under_test.durable("*")
        lane = make_lane()
        await gathered(under_test)
        under_test.publish("poison", under_test.topic("a"), [make_message(POISON)], lane=lane)
        under_test.submit("behind", Unit(lane=lane))

        await write_all(under_test)

        assert under_test.completed == ["first", "behind"]


async def test_a_store_that_fails_while_the_culprit_is_searched_for_is_tried_again(data: Path) -> None:
    refuse_messages(data)
    async with running_journal(data) as under_test:
        await under_test.durable("*")
        topic = under_test.topic("a")
        await gathered(under_test)
        for name in (b"one", POISON, b"two"):
            under_test.publish(name, topic, [make_message(name)])
        with closing(sqlite3.connect(data / "stompbroker.db", isolation_level=None, check_same_thread=False)) as other:

            def lock_once() -> None:
                if len(under_test.store.asked) == 2:
                    other.execute("BEGIN EXCLUSIVE")

            under_test.store.before_asking = lock_once
            under_test.store.release()
            await until(lambda: len(under_test.store.asked) >= 2)
            await wait_all_tasks_blocked()
            other.execute("ROLLBACK")
            await under_test.idle()

        assert under_test.completed == ["first", b"one", b"two"]
        assert under_test.refused == [POISON]


async def test_a_unit_that_needs_an_earlier_one_of_its_batch_is_not_taken_for_the_culprit(data: Path) -> None:
    """A subscription is deleted and made again under the same name, while somebody else sends poison."""
    refuse_messages(data)
    async with running_journal(data) as under_test:
        old = await under_test.durable("a", name="same")
        await under_test.durable("*", name="other")
        await gathered(under_test)
        under_test.submit("deleted", under_test.removal(old.subscription))
        new, creation = under_test.creation("a", name="same")
        under_test.submit("made again", creation)
        under_test.publish("poison", under_test.topic("a"), [make_message(POISON)])

        await write_all(under_test)

        assert under_test.refused == ["poison"]
        assert under_test.completed == ["first", "deleted", "made again"]
        assert new.is_open


async def test_what_no_client_sent_is_blamed_on_no_client(data: Path) -> None:
    """A refused row that belongs to no unit is a bug of ours: the broker ends, and says so."""
    refuse_redeliveries(data)
    with pytest.RaisesGroup(BaseRefused, allow_unwrapped=True, flatten_subgroups=True):
        async with running_journal(data) as under_test:
            consumer, topic = await under_test.durable("a"), under_test.topic("a")
            await under_test.send(topic, 1)
            await gathered(under_test)
            under_test.publish("two", topic, make_messages(1))
            under_test.publish("three", topic, make_messages(1))
            under_test.journal.submit(Unit([], [Answer(consumer, Verdict.NACK, 1, 1, Refusal(0))], owes_receipt=False))
            under_test.store.release()
            with trio.move_on_after(HARD_TIMEOUT_S):
                await trio.sleep_forever()

    assert under_test.refused == []


# Transactions and subscriptions --------------------------------------------------------------------------------------


async def test_a_refused_transaction_leaves_its_acknowledgements_unapplied(data: Path) -> None:
    refuse_messages(data)
    async with running_journal(data) as under_test:
        consumer, topic = await under_test.durable("a"), under_test.topic("a")
        await under_test.send(topic, 3)
        before = under_test.query("SELECT ack_floor, settled FROM cursors")

        unit = Unit([Appended(topic, [make_message(POISON)])], [acknowledgement(consumer, 1, 2)], is_transaction=True)
        under_test.submit("transaction", unit)
        await under_test.idle()

        assert under_test.refused == ["transaction"]
        assert consumer.in_flight == 3
        assert consumer.subscription.counters.acked == 0
        assert under_test.query("SELECT ack_floor, settled FROM cursors") == before


async def test_a_refused_transaction_claims_nothing_that_it_waited_for(data: Path) -> None:
    """Its ACK met what an earlier transaction refuses, and that is decided only after it was refused itself."""
    refuse_messages(data)
    async with running_journal(data) as under_test:
        consumer, topic = await under_test.durable("a"), under_test.topic("a")
        await under_test.send(topic, 1)
        await gathered(under_test)
        nack = Answer(consumer, Verdict.NACK, 1, 1, Refusal(1 << 62, "no"))
        under_test.submit("nack", Unit([], [nack], is_transaction=True))
        poison = Unit([Appended(topic, [make_message(POISON)])], [acknowledgement(consumer, 1, 1)], is_transaction=True)
        under_test.submit("poison", poison)
        await write_all(under_test)

        assert (under_test.completed[-1], under_test.refused) == ("nack", ["poison"])
        assert (consumer.subscription.waiting, consumer.subscription.pending) == (1, 0)


async def test_an_ack_that_waits_for_an_earlier_nack_is_written_with_its_own_transaction(data: Path) -> None:
    """What it means is known when the NACK has been decided, so the two are not in one batch."""
    async with running_journal(data) as under_test:
        consumer, topic = await under_test.durable("a"), under_test.topic("a")
        await under_test.send(topic, 1)
        await gathered(under_test)
        nack = Answer(consumer, Verdict.NACK, 1, 1, Refusal(1 << 62, "no"))
        under_test.submit("nack", Unit([], [nack], is_transaction=True))
        under_test.submit("ack", Unit([], [acknowledgement(consumer, 1, 1)], is_transaction=True))
        batches = under_test.journal.statistics().batches
        await write_all(under_test)

        assert under_test.completed[-2:] == ["nack", "ack"]
        assert under_test.journal.statistics().batches == batches + 2
        assert under_test.query("SELECT ack_floor FROM cursors") == [(1,)]
        assert under_test.query("SELECT count(*) FROM redeliveries") == [(0,)]


async def test_a_refused_subscription_leaves_no_trace(data: Path) -> None:
    refuse_subscriptions(data)
    async with running_journal(data) as under_test:
        consumer, creation = under_test.creation("a", name="poison")
        under_test.submit("poison", creation)
        await under_test.idle()

        assert under_test.refused == ["poison"]
        assert not under_test.registry.subscriptions
        assert not under_test.registry.durable
        assert not consumer.is_open
        assert not under_test.topic("a").is_stored
        for table in ("subscriptions", "cursors", "topics"):
            assert under_test.query(f"SELECT * FROM {table}") == []


async def test_messages_behind_a_refused_subscription_are_published_all_the_same(data: Path) -> None:
    refuse_subscriptions(data)
    async with running_journal(data) as under_test:
        await under_test.durable("other", name="other")
        under_test.store.hold()
        under_test.publish("first", under_test.topic("other"), make_messages(1))
        await until(lambda: len(under_test.journal.backlog) == 0)
        _, creation = under_test.creation("a", name="poison")
        topic = under_test.topic("a")
        under_test.submit("poison", creation)
        under_test.publish("behind", topic, make_messages(2))

        await write_all(under_test)

        assert under_test.completed == ["first", "behind"]
        assert topic.log.end_offset == 2
        assert under_test.stored() == [], "nobody could need them later"


# Clients -------------------------------------------------------------------------------------------------------------


async def publish_beside(publishers: list[Client], bodies: list[bytes]) -> None:
    for publisher, body in zip(publishers, bodies, strict=True):
        await publisher.publish(body, receipt=body.decode())
    await wait_all_tasks_blocked()


async def test_only_the_client_that_sent_it_gets_the_error(data: Path) -> None:
    refuse_messages(data)
    async with broker_on(data) as broker:
        subscriber = await broker.durable_subscriber()
        publishers = [await broker.client() for _ in range(3)]
        broker.store.hold()
        await publish_beside(publishers, [b"one", POISON, b"two"])

        broker.store.release()

        await publishers[0].expect_receipt("one")
        await publishers[1].expect_error("cannot be stored")
        await publishers[2].expect_receipt("two")
        assert [message.body for message in await subscriber.next_messages(2)] == [b"one", b"two"]


async def test_a_refused_subscribe_is_told_and_can_be_tried_again(data: Path) -> None:
    refuse_subscriptions(data)
    async with broker_on(data) as broker:
        client = await broker.client(client_id="billing")
        durable = {"durable-subscription-name": "poison"}
        await client.send("SUBSCRIBE", id="0", destination="/topic/a", receipt="subscribed", **durable)
        await client.expect_error("cannot be stored")
        broker.look("DROP TRIGGER refuse_subscriptions")

        again = await broker.durable_subscriber(name="poison")
        publisher = await broker.client()
        await publisher.publish(b"one")

        assert (await again.next_message()).body == b"one"


async def test_a_subscription_that_is_refused_when_it_was_to_be_deleted_ends_nobody_else(data: Path) -> None:
    refuse_subscriptions(data)
    async with broker_on(data) as broker:
        broker.store.hold()
        headers = {"id": "0", "destination": "/topic/a", "durable-subscription-name": "poison"}
        client, bystander = await broker.client(client_id="client"), await broker.client()
        await client.send("SUBSCRIBE", **headers)
        await until(lambda: broker.store.attempts)
        await client.send("UNSUBSCRIBE", **headers)
        await wait_all_tasks_blocked()

        broker.store.release()

        await client.expect_error("cannot be stored")
        await bystander.sync()
        assert not broker.registry.durable


async def test_whoever_takes_over_a_subscription_that_is_refused_is_told_so_too(data: Path) -> None:
    refuse_subscriptions(data)
    async with broker_on(data) as broker:
        broker.store.hold()
        headers = {"id": "0", "destination": "/topic/a", "durable-subscription-name": "poison"}
        first = await broker.client(client_id="client")
        await first.send("SUBSCRIBE", receipt="first", **headers)
        await wait_all_tasks_blocked()
        second = await broker.client(client_id="client")
        await second.send("SUBSCRIBE", receipt="second", **headers)
        await wait_all_tasks_blocked()

        broker.store.release()

        frame = await second.next_frame()
        assert frame.command == "ERROR", "there is no subscription that this could be a receipt for"
