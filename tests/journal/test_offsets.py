"""Offsets are given when a batch is formed, written with it, and never twice."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from stompbroker.changes import Appended, Unit
from tests.journal.journal_under_test import JournalUnderTest, acknowledgement, query, running_journal, until
from tests.support.forming import form
from tests.support.messages import make_message, make_messages

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

NEXT_OFFSETS = "SELECT name, next_offset FROM topics ORDER BY name"


@pytest.fixture
async def under_test(data: Path) -> AsyncIterator[JournalUnderTest]:
    """A journal whose batches the test writes itself, step by step."""
    under_test = JournalUnderTest(data)
    yield under_test
    under_test.check_invariants()
    under_test.store.close()


def killed(under_test: JournalUnderTest) -> JournalUnderTest:
    """The broker that starts on the same file after this one."""
    under_test.store.close()
    return JournalUnderTest(under_test.data)


def subscribe(under_test: JournalUnderTest, pattern: str = "a", name: str = "durable") -> None:
    _, creation = under_test.creation(pattern, name=name)
    under_test.journal.submit(creation)
    under_test.write()


def has_completed(under_test: JournalUnderTest, count: int) -> bool:
    return len(under_test.completed) >= count


async def test_what_waits_for_a_batch_has_no_offset_yet(under_test: JournalUnderTest) -> None:
    """The batch being written was given its offsets; what came meanwhile is given them behind it."""
    subscribe(under_test)
    topic = under_test.topic("a")
    under_test.publish("one", topic, make_messages(2))
    formed = form(under_test.journal)
    under_test.publish("two", topic, make_messages(3))

    assert [run.first_offset for run in formed.batch.messages] == [0]
    assert topic.log.end_offset == 0, "what is not written is not in the log"

    under_test.store.commit(formed.batch)
    under_test.journal.note_written(formed)
    under_test.journal.complete_one(formed.units[0])
    under_test.journal.finish()
    formed = form(under_test.journal)
    assert [run.first_offset for run in formed.batch.messages] == [2]
    under_test.store.commit(formed.batch)
    under_test.journal.note_written(formed)
    under_test.journal.complete_one(formed.units[0])
    under_test.journal.finish()


async def test_the_next_offset_is_written_with_the_batch(under_test: JournalUnderTest) -> None:
    subscribe(under_test, ">")
    under_test.publish("one", under_test.topic("a"), make_messages(2))
    under_test.publish("two", under_test.topic("b"), make_messages(5))
    under_test.publish("three", under_test.topic("a"), make_messages(1))
    under_test.write()

    assert under_test.query(NEXT_OFFSETS) == [("a", 3), ("b", 5)]


async def test_no_offset_is_given_twice_after_a_kill_between_commit_and_completion(data: Path) -> None:
    under_test = JournalUnderTest(data)
    subscribe(under_test)
    under_test.publish("one", under_test.topic("a"), [make_message(b"one"), make_message(b"two")])
    under_test.store.commit(form(under_test.journal).batch)

    restarted = killed(under_test)
    restarted.publish("three", restarted.topic("a"), [make_message(b"three")])
    restarted.write()

    assert restarted.stored() == [(0, b"one"), (1, b"two"), (2, b"three")]
    restarted.store.close()


async def test_an_offset_of_a_message_that_was_not_written_is_given_again_after_a_kill(data: Path) -> None:
    under_test = JournalUnderTest(data)
    subscribe(under_test)
    under_test.publish("one", under_test.topic("a"), [make_message(b"lost, and nobody was told otherwise")])
    form(under_test.journal)

    restarted = killed(under_test)
    restarted.publish("two", restarted.topic("a"), [make_message(b"two")])
    restarted.write()

    assert restarted.stored() == [(0, b"two")]
    restarted.store.close()


async def test_carried_messages_leave_a_gap_and_their_offsets_are_not_given_again(data: Path) -> None:
    under_test = JournalUnderTest(data)
    subscribe(under_test)
    topic = under_test.topic("a")
    messages = [make_message(b"%d" % number, is_persistent=number % 2 == 0) for number in range(5)]
    under_test.publish("mixed", topic, messages)
    under_test.publish("carried only", topic, [make_message(b"carried", is_persistent=False)])
    under_test.write()
    assert [message.body for _, message in topic.log] == [b"0", b"1", b"2", b"3", b"4", b"carried"]

    restarted = killed(under_test)
    restarted.publish("next", restarted.topic("a"), [make_message(b"next")])
    restarted.write()

    assert restarted.stored() == [(0, b"0"), (2, b"2"), (4, b"4"), (6, b"next")]
    assert restarted.query(NEXT_OFFSETS) == [("a", 7)]
    restarted.store.close()


async def test_a_stored_cursor_is_never_ahead_of_its_topic(data: Path) -> None:
    """Looked at by somebody else after every single batch, while all goes on."""
    ahead = (
        "SELECT t.next_offset, c.ack_floor, c.sent_up_to FROM cursors c LEFT JOIN topics t ON t.id = c.topic_id "
        "WHERE t.id IS NULL OR c.ack_floor > t.next_offset OR c.sent_up_to > t.next_offset"
    )
    found: list[object] = []
    async with running_journal(data) as under_test:
        consumer = await under_test.durable(">")
        under_test.store.before_commit = lambda: found.extend(query(data, ahead))
        answered = 0
        for number in range(60):
            topic = under_test.topic(f"t{number % 3}")
            is_persistent = number % 4 != 0
            under_test.publish(number, topic, [make_message(is_persistent=is_persistent), make_message()])
            await until(partial(has_completed, under_test, number - 5))
            under_test.deliver()
            given = consumer.sent.next_number - 1
            if given > answered:
                answers = [acknowledgement(consumer, answered + 1, given)]
                answered = given
                unit = Unit([Appended(topic, make_messages(1))], answers, is_transaction=number % 2 == 0)
                under_test.journal.submit(unit)
        await under_test.idle()

        assert len(under_test.store.written) >= 5
        assert answered > 60
        assert found == []
        assert under_test.query(ahead) == []


async def test_a_topic_stops_being_stored_in_the_journals_order(under_test: JournalUnderTest) -> None:
    """While a batch is being completed others publish: what was given an offset must get it all the same."""
    subscribe(under_test)
    (subscription,) = under_test.registry.durable.values()
    topic = under_test.topic("a")
    under_test.submit("deleted", under_test.removal(subscription))
    under_test.publish("stored", topic, [make_message(b"stored")])
    formed = form(under_test.journal)
    under_test.store.commit(formed.batch)
    under_test.journal.note_written(formed)
    deletion, publication = formed.units

    under_test.journal.complete_one(deletion)
    under_test.publish("later", topic, [make_message(b"later")])
    under_test.journal.complete_one(publication)
    under_test.journal.finish()
    while not under_test.journal.is_idle:
        under_test.write()

    assert under_test.completed == ["deleted", "stored", "later"]


async def test_a_topic_becomes_stored_in_the_journals_order(under_test: JournalUnderTest) -> None:
    topic = under_test.topic("a")
    under_test.publish("before", topic, [make_message(b"before")])
    _, creation = under_test.creation("a")
    under_test.submit("created", creation)
    under_test.publish("after", topic, [make_message(b"after")])

    assert under_test.completed == ["before"]
    under_test.write()

    assert under_test.completed == ["before", "created", "after"]
    assert under_test.stored() == [(1, b"after")]
    assert under_test.query("SELECT ack_floor, sent_up_to FROM cursors") == [(1, 1)]


async def test_a_number_in_the_store_is_never_used_again(data: Path) -> None:
    """Not even that of a subscription that was deleted before a restart."""
    under_test = JournalUnderTest(data)
    subscribe(under_test)
    (subscription,) = under_test.registry.durable.values()
    assert subscription.durability is not None
    used = subscription.durability.store_id
    under_test.submit("deleted", under_test.removal(subscription))
    under_test.write()

    restarted = killed(under_test)

    assert restarted.journal.next_subscription_id() != used
    restarted.store.close()
