"""The journal of a broker with a store passes the contract; and who waits for whom in it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from stompbroker.changes import Answer, Appended, Unit, Verdict
from stompbroker.delivery import Refusal
from tests.journal.journal_under_test import acknowledgement, make_lane, running_journal, until
from tests.journal_contract import JournalContract
from tests.support.messages import make_messages

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from stompbroker.changes import Journal


class TestStoreJournalWithStoredTopics(JournalContract):
    @pytest.fixture(autouse=True)
    def place(self, data: Path) -> None:
        self.data = data

    @asynccontextmanager
    async def journal(self) -> AsyncIterator[Journal]:
        async with running_journal(self.data) as under_test:
            self.registry = under_test.registry
            await under_test.durable(">")
            yield under_test.journal


class TestStoreJournalWithTopicsInMemory(JournalContract):
    @pytest.fixture(autouse=True)
    def place(self, data: Path) -> None:
        self.data = data

    @asynccontextmanager
    async def journal(self) -> AsyncIterator[Journal]:
        async with running_journal(self.data) as under_test:
            self.registry = under_test.registry
            yield under_test.journal


# Lanes ---------------------------------------------------------------------------------------------------------------


async def test_what_nobody_needs_stored_is_complete_when_submit_returns(data: Path) -> None:
    async with running_journal(data) as under_test:
        await under_test.durable("stored")

        under_test.publish("in memory", under_test.topic("a"), make_messages(1), lane=make_lane())

        assert under_test.completed == ["in memory"]
        assert under_test.topic("a").log.end_offset == 1


async def test_a_unit_waits_behind_what_is_pending_in_its_lane_and_no_other_lane_does(data: Path) -> None:
    async with running_journal(data) as under_test:
        await under_test.durable("stored")
        lane = make_lane()
        under_test.store.hold()
        under_test.publish("stored", under_test.topic("stored"), make_messages(1), lane=lane)

        under_test.publish("behind it", under_test.topic("a"), make_messages(1), lane=lane)
        under_test.publish("beside it", under_test.topic("a"), make_messages(1), lane=make_lane())
        under_test.publish("the broker's own", under_test.topic("a"), make_messages(1))

        assert under_test.completed == ["beside it", "the broker's own"]
        assert lane.units == 2
        under_test.store.release()
        await under_test.idle()
        assert under_test.completed[2:] == ["stored", "behind it"]
        assert lane.units == 0


async def test_a_unit_that_waits_in_its_lane_is_not_written(data: Path) -> None:
    async with running_journal(data) as under_test:
        await under_test.durable("stored")
        lane = make_lane()
        under_test.publish("stored", under_test.topic("stored"), make_messages(1), lane=lane)
        under_test.publish("behind it", under_test.topic("a"), make_messages(1), lane=lane)

        await under_test.idle()

        assert len(under_test.stored("stored")) == 1
        assert under_test.stored("a") == []
        assert not under_test.topic("a").is_in_store


async def test_a_plain_answer_counts_before_it_is_written(data: Path) -> None:
    async with running_journal(data) as under_test:
        consumer = await under_test.durable("a")
        await under_test.send(under_test.topic("a"), 3)
        under_test.store.hold()

        under_test.submit("ack", Unit([], [acknowledgement(consumer, 1, 2)]))

        assert consumer.in_flight == 1
        assert under_test.completed == ["messages"], "but its receipt waits"
        under_test.store.release()
        await under_test.idle()
        assert under_test.completed == ["messages", "ack"]
        assert under_test.query("SELECT ack_floor FROM cursors") == [(2,)]


async def test_a_plain_answer_counts_at_once_although_a_transaction_waits_before_it_in_its_lane(data: Path) -> None:
    async with running_journal(data) as under_test:
        consumer, topic = await under_test.durable("a"), under_test.topic("a")
        await under_test.send(topic, 3)
        under_test.store.hold()
        lane = make_lane()

        transaction = Unit(
            [Appended(topic, make_messages(1))], [acknowledgement(consumer, 1, 1)], lane=lane, is_transaction=True
        )
        under_test.submit("transaction", transaction)
        under_test.submit("ack", Unit([], [acknowledgement(consumer, 2, 2)], lane=lane))

        assert (consumer.in_flight, consumer.subscription.pending) == (1, 1)
        under_test.store.release()
        await under_test.idle()
        assert (consumer.in_flight, consumer.subscription.pending) == (1, 0)
        assert under_test.query("SELECT ack_floor FROM cursors") == [(2,)]


async def test_a_refusal_in_a_transaction_is_written_with_it(data: Path) -> None:
    async with running_journal(data) as under_test:
        consumer, topic = await under_test.durable("a"), under_test.topic("a")
        await under_test.send(topic, 2)
        under_test.store.written.clear()

        answers = [acknowledgement(consumer, 1, 1), Answer(consumer, Verdict.NACK, 2, 2, Refusal(1 << 62, "no"))]
        under_test.submit("transaction", Unit([Appended(topic, make_messages(1))], answers, is_transaction=True))
        await until(lambda: under_test.completed == ["messages", "transaction"])

        (batch, *_) = under_test.store.written
        assert [(row.offset, row.attempts, row.reason) for row in batch.redeliveries] == [(1, 1, "no")]
        assert [row.ack_floor for row in batch.cursors] == [1]


async def test_nothing_is_complete_before_it_is_written(data: Path) -> None:
    """What a unit's completion finds in the file, each time it is called."""
    found: list[int] = []
    async with running_journal(data) as under_test:
        await under_test.durable("a")
        topic = under_test.topic("a")
        for number in range(1, 21):

            def look(number: int = number) -> None:
                (count,) = under_test.query("SELECT count(*) FROM messages")[0]
                found.append(count - number)

            under_test.submit(number, Unit([Appended(topic, make_messages(1))], then=look))
            if number % 4 == 0:
                await under_test.idle()
        await under_test.idle()

    assert len(found) == 20
    assert min(found) >= 0, "every message was there when it was said to be"


async def test_waiting_for_what_was_submitted_does_not_wait_for_what_comes_later(data: Path) -> None:
    """A broker that is never quiet can stop all the same: the journal writes batch after batch meanwhile."""
    async with running_journal(data) as under_test:
        await under_test.durable("a")
        topic = under_test.topic("a")
        is_waiting = True

        def submit_another() -> None:
            if is_waiting and len(under_test.store.written) < 200:
                under_test.submit("another", Unit([Appended(topic, make_messages(1))], then=submit_another))

        submit_another()
        under_test.publish("ours", topic, make_messages(1))
        await under_test.idle()
        is_waiting = False

        assert "ours" in under_test.completed
        assert len(under_test.store.written) < 10
