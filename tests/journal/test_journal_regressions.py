"""Defects of the journal that a reviewer and an attacker found, each shown on a real store.

Law: every defect has a test that fails when what mended it is taken out again.
"""

from __future__ import annotations

import gc
import shutil
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from stompbroker.actors import journal as journal_actor
from stompbroker.changes import Appended, StoreState, Unit
from stompbroker.journal.store_writer import StoreWriter
from tests.journal.broker_on_store import broker_on
from tests.journal.journal_under_test import (
    JournalUnderTest,
    acknowledgement,
    running_journal,
    until,
)
from tests.journal.poison import POISON, refuse_messages, refuse_subscriptions
from tests.support.forming import form
from tests.support.messages import make_message, make_messages
from tests.support.patience import HARD_TIMEOUT_S
from tests.support.work import operations

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def loadable(data: Path) -> JournalUnderTest:
    """What a broker finds when it starts on the store; raises if it would refuse."""
    again = JournalUnderTest(data)
    again.check_invariants()
    again.store.close()
    return again


# Refusals ------------------------------------------------------------------------------------------------------------


async def test_a_refused_subscription_leaves_its_topic_out_of_the_store_which_loads_again(data: Path) -> None:
    """Messages were published behind it, in the same batch: without it there is no reason to store them."""
    refuse_subscriptions(data)
    async with running_journal(data) as under_test:
        under_test.store.hold()
        _, other = under_test.creation("other", name="other")
        under_test.submit("other", other)
        await until(lambda: under_test.store.attempts)
        _, refused = under_test.creation("a", name="poison")
        under_test.submit("poison", refused)
        under_test.publish("behind it", under_test.topic("a"), make_messages(3))
        under_test.store.release()
        await under_test.idle()

        assert (under_test.completed, under_test.refused) == (["other", "behind it"], ["poison"])
        assert under_test.query("SELECT name FROM topics WHERE name = 'a'") == []
        assert under_test.topic("a").store_id is None
        assert not any(topic.log.reserved_end > topic.log.end_offset for topic in under_test.registry.topics.values())

        await under_test.durable(">", name="wildcard")
        under_test.publish("stored", under_test.topic("a"), make_messages(1))
        await under_test.idle()
        assert [offset for offset, _ in under_test.stored()] == [3]

    assert loadable(data).topic("a").log.end_offset == 4


@pytest.mark.parametrize("poisonous", [{0}, {1}, {2}, {0, 2}, {0, 1, 2}], ids=str)
async def test_no_unit_counts_as_formed_after_a_refusal(data: Path, poisonous: set[int]) -> None:
    refuse_messages(data)
    async with running_journal(data) as under_test:
        await under_test.durable(">")
        under_test.store.hold()
        under_test.publish("first", under_test.topic("first"), make_messages(1))
        await until(lambda: len(under_test.journal.backlog) == 0)
        for number in range(3):
            body = POISON if number in poisonous else b"good"
            topics = [under_test.topic(name) for name in ("a", f"b.{number}")]
            under_test.submit(number, Unit([Appended(topic, [make_message(body)]) for topic in topics]))
        under_test.store.release()
        await under_test.idle()

        assert set(under_test.refused) == poisonous
        for topic in under_test.registry.topics.values():
            assert (topic.log.reserved_end, topic.pending_units) == (topic.log.end_offset, 0), topic.name

    loadable(data)


# Deletions -----------------------------------------------------------------------------------------------------------


async def test_all_topics_together_are_deleted_from_within_one_bound(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And none of them is removed while the store has something of it."""
    monkeypatch.setattr("stompbroker.journal.changes.MAX_DELETED", 10)
    under_test = JournalUnderTest(data)
    consumer, creation = under_test.creation(">")
    under_test.journal.submit(creation)
    names = ["a", "b", "c", "d"]
    for name in names:
        under_test.publish(name, under_test.topic(name), make_messages(8))
    under_test.write()
    under_test.deliver()
    under_test.submit("ack", Unit([], [acknowledgement(consumer, 1, 32)]))
    written_before = len(under_test.store.written)
    removed_when_empty = []

    for _ in range(8):
        under_test.write()
        for name in [name for name in names if name in under_test.registry.topics]:
            has_messages = bool(under_test.stored(name))
            is_removed = under_test.registry.collect(
                under_test.topic(name), 0, unused_since_ns=under_test.clock.now_ns() + 1
            )
            assert not (is_removed and has_messages), name
            removed_when_empty += [name] * is_removed

    batches = under_test.store.written[written_before:]
    deleted = [sum(deletion.stop - deletion.start for deletion in batch.deletions) for batch in batches]
    assert max(deleted) == 10
    assert sum(deleted) == 32
    assert sorted(removed_when_empty) == names
    assert under_test.query("SELECT * FROM messages") == under_test.query("SELECT * FROM topics") == []
    under_test.store.close()
    loadable(data)


# The file ------------------------------------------------------------------------------------------------------------


def deleted(data: Path) -> None:
    (data / "stompbroker.db").unlink()


def replaced(data: Path) -> None:
    """By a copy, as from a backup."""
    database = data / "stompbroker.db"
    database.rename(data / "moved.db")
    shutil.copy(data / "moved.db", database)


@pytest.mark.parametrize("lose", [deleted, replaced])
async def test_nothing_is_receipted_that_goes_to_a_file_that_nobody_will_find(
    data: Path, lose: Callable[[Path], None]
) -> None:
    async with broker_on(data) as broker:
        await broker.durable_subscriber()
        publisher = await broker.client()
        await publisher.publish(b"before", receipt="before")
        await publisher.expect_receipt("before")

        lose(data)
        await publisher.publish(b"after", receipt="after")
        await until(lambda: broker.journal.statistics().state.value == "failing")
        tries = broker.store.tries
        await until(lambda: broker.store.tries > tries + 2)
        await wait_all_tasks_blocked()

        assert broker.journal.statistics().state.value == "failing"
        assert publisher.session.outbox.put_bytes == len(publisher.received), "it was told something"


# A store that hangs --------------------------------------------------------------------------------------------------


async def test_a_store_that_hangs_is_failing_until_it_goes_on(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stompbroker.actors.journal.STALL_S", 0.02)
    async with running_journal(data) as under_test:
        await under_test.durable("a")
        journal, topic = under_test.journal, under_test.topic("a")
        under_test.store.hold()
        under_test.publish(1, topic, make_messages(1))
        await until(lambda: len(journal.backlog) == 0)
        under_test.publish(2, topic, make_messages(1))

        await until(lambda: journal.health.state is StoreState.FAILING)

        assert "has not answered" in str(journal.statistics().reason)
        assert journal.gate.is_blocked
        assert under_test.completed == []
        monkeypatch.setattr("stompbroker.actors.journal.STALL_S", HARD_TIMEOUT_S)
        under_test.store.release()
        await under_test.idle()
        assert under_test.completed == [1, 2]
        assert len(under_test.stored()) == 2
        assert journal.health.state is StoreState.OK
        assert not journal.gate.is_blocked
        assert journal.writing.waited_s == 0


async def test_a_store_that_hangs_does_not_keep_the_journal_from_ending(data: Path) -> None:
    under_test = JournalUnderTest(data)
    with trio.fail_after(HARD_TIMEOUT_S):
        async with trio.open_nursery() as nursery:
            writer = StoreWriter(under_test.store.as_store())
            nursery.start_soon(journal_actor.run, under_test.journal, writer, under_test.dispatch, under_test.stretches)
            await under_test.durable("a")
            under_test.store.hold()
            under_test.publish("stuck", under_test.topic("a"), make_messages(1))
            await until(lambda: len(under_test.store.attempts) > len(under_test.store.written))
            nursery.cancel_scope.cancel()

    assert len(under_test.store.attempts) > len(under_test.store.written), "it has ended because the store went on"
    assert under_test.completed == []
    under_test.store.release()
    await until(lambda: len(under_test.store.attempts) == len(under_test.store.written))
    under_test.store.close()


# Work ----------------------------------------------------------------------------------------------------------------


async def test_exact_durable_subscriptions_are_made_without_a_look_at_other_topics(
    migrated_store: Path, tmp_path: Path
) -> None:
    def work_beside(topics: int) -> int:
        under_test = JournalUnderTest(shutil.copytree(migrated_store, tmp_path / str(topics)))
        _, creation = under_test.creation("other.>", name="other")
        under_test.journal.submit(creation)
        for number in range(topics):
            under_test.publish(number, under_test.topic(f"other.{number}"), make_messages(1))
        for _ in range(1 + topics // 500):
            under_test.write()
        under_test.write()
        assert under_test.journal.is_idle
        for number in range(50):
            _, creation = under_test.creation(f"exact.{number}", name=str(number))
            under_test.journal.submit(creation)
        work = operations(lambda: form(under_test.journal))
        under_test.store.close()
        return work

    # A look at each topic would be 1,900 more; whether it is time to delete something makes a small difference.
    assert work_beside(2000) < work_beside(100) + 50


# Memory --------------------------------------------------------------------------------------------------------------


async def test_readings_do_not_keep_a_consumer_that_has_left(data: Path) -> None:
    """Nor what belongs to it: its outbox and its connection."""
    async with running_journal(data) as under_test:
        consumer = await under_test.durable(">", prefetch=1)
        for name in ("a", "b"):
            under_test.publish(name, under_test.topic(name), make_messages(3))
        await under_test.idle()
        under_test.deliver()
        subscription = consumer.subscription
        readings = list(subscription.readings.values())
        assert len(readings) == 2
        assert subscription.to_read.readings, "some of them are listed"

        under_test.registry.leave([consumer], under_test.clock.now_ns())

        assert subscription.consumer is None
        for reading in readings:
            assert consumer not in gc.get_referents(reading)
        assert not any(referrer in readings for referrer in gc.get_referrers(consumer))


async def test_a_store_that_answers_with_errors_does_not_hang(data: Path) -> None:
    """Its time counts anew with every answer; otherwise the health would name silence instead of the error."""
    async with running_journal(data) as under_test:
        await under_test.durable("a")
        longest_s = 0.0

        def counts_anew() -> bool:
            nonlocal longest_s
            now_s = under_test.journal.writing.waited_s
            longest_s = max(longest_s, now_s)
            return 0 < now_s < longest_s

        with closing(sqlite3.connect(data / "stompbroker.db", isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            under_test.publish("stored", under_test.topic("a"), make_messages(1))
            await until(counts_anew)
            assert "locked" in str(under_test.journal.statistics().reason)
            other.execute("ROLLBACK")
        await under_test.idle()

        assert under_test.completed == ["stored"]
