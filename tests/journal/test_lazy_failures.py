"""What somebody refuses is written a little at a time beside what others wait for, and all of it in the end.

Rows are counted, because no busy machine can change them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stompbroker.changes import Answer, Appended, Unit, Verdict
from stompbroker.delivery import Refusal
from stompbroker.journal.changes import FAILURES_BESIDE, FAILURES_IDLE
from tests.journal.journal_under_test import JournalUnderTest, make_lane, running_journal, until
from tests.support.answers import acknowledge
from tests.support.messages import make_messages

if TYPE_CHECKING:
    from pathlib import Path

    from stompbroker.delivery import Consumer

MANY = 900


async def with_many_in_flight(under_test: JournalUnderTest) -> Consumer:
    consumer = await under_test.durable("a", name="refuser")
    await under_test.durable("b", name="other")
    await under_test.send(under_test.topic("a"), MANY)
    await under_test.idle()
    assert consumer.in_flight == MANY
    return consumer


def refuse(under_test: JournalUnderTest, consumer: Consumer, first: int, last: int, *, with_receipt: bool) -> None:
    refusal = Refusal(under_test.clock.now_ns(), "no", delay_ns=10**15)
    answers = [Answer(consumer, Verdict.NACK, first, last, refusal)]
    under_test.submit("refusal", Unit([], answers, lane=make_lane(), owes_receipt=with_receipt))


async def test_a_batch_that_somebody_waits_for_has_few_rows_of_one_who_refuses_everything(data: Path) -> None:
    async with running_journal(data) as under_test:
        consumer = await with_many_in_flight(under_test)
        under_test.store.hold()
        under_test.publish("begun", under_test.topic("b"), make_messages(1))
        await until(lambda: len(under_test.store.attempts) > len(under_test.store.written))

        refuse(under_test, consumer, 1, MANY, with_receipt=False)
        under_test.publish("waited for", under_test.topic("b"), make_messages(1))
        under_test.store.release()
        await until(lambda: "waited for" in under_test.completed)

        beside = [batch for batch in under_test.store.written if batch.messages][-1]
        assert len(beside.redeliveries) == FAILURES_BESIDE


async def test_what_was_left_is_written_when_there_is_nothing_else_to_do(data: Path) -> None:
    async with running_journal(data) as under_test:
        consumer = await with_many_in_flight(under_test)

        refuse(under_test, consumer, 1, MANY, with_receipt=False)
        await until(lambda: under_test.query("SELECT count(*) FROM redeliveries") == [(MANY,)])
        await under_test.idle()

        sizes = [len(batch.redeliveries) for batch in under_test.store.written if batch.redeliveries]
        assert sizes == [FAILURES_IDLE, MANY - FAILURES_IDLE]


async def test_whoever_waits_for_everything_to_be_written_waits_for_every_refusal(data: Path) -> None:
    async with running_journal(data) as under_test:
        consumer = await with_many_in_flight(under_test)

        refuse(under_test, consumer, 1, MANY, with_receipt=False)
        await under_test.idle()

        assert under_test.query("SELECT count(*) FROM redeliveries") == [(MANY,)]


async def test_a_receipt_for_a_refusal_means_that_all_of_them_are_written(data: Path) -> None:
    async with running_journal(data) as under_test:
        consumer = await with_many_in_flight(under_test)

        refuse(under_test, consumer, 1, MANY - 1, with_receipt=False)
        refuse(under_test, consumer, MANY, MANY, with_receipt=True)
        await until(lambda: under_test.completed.count("refusal") == 2)

        assert under_test.query("SELECT count(*) FROM redeliveries") == [(MANY,)]


async def test_those_that_were_refused_first_are_written_first(data: Path) -> None:
    async with running_journal(data) as under_test:
        consumer = await with_many_in_flight(under_test)
        under_test.store.hold()
        under_test.publish("begun", under_test.topic("b"), make_messages(1))
        await until(lambda: len(under_test.store.attempts) > len(under_test.store.written))

        refuse(under_test, consumer, 501, 900, with_receipt=False)
        refuse(under_test, consumer, 1, 100, with_receipt=False)  # so many that no batch goes without them
        under_test.publish("waited for", under_test.topic("b"), make_messages(1))
        under_test.store.release()
        await until(lambda: "waited for" in under_test.completed)

        offsets = [row.offset for batch in under_test.store.written for row in batch.redeliveries]
        assert offsets[:FAILURES_BESIDE] == list(range(500, 500 + FAILURES_BESIDE))


async def test_what_was_too_much_for_one_batch_goes_with_the_next_whatever_that_is(data: Path) -> None:
    """Otherwise they would pile up beside somebody who publishes one message at a time."""
    async with running_journal(data) as under_test:
        consumer = await with_many_in_flight(under_test)
        topic = under_test.topic("b")
        under_test.store.hold()
        under_test.publish("begun", topic, make_messages(1))
        await until(lambda: len(under_test.store.attempts) > len(under_test.store.written))
        refuse(under_test, consumer, 1, MANY, with_receipt=False)

        def publish_another() -> None:
            under_test.publish("second", topic, make_messages(1))

        under_test.submit("first", Unit([Appended(topic, make_messages(1))], then=publish_another))
        under_test.store.release()
        await until(lambda: "second" in under_test.completed)

        beside = [len(batch.redeliveries) for batch in under_test.store.written if batch.messages]
        assert beside[-2:] == [FAILURES_BESIDE, FAILURES_BESIDE]


async def test_what_was_acknowledged_before_its_refusal_was_written_leaves_no_row(data: Path) -> None:
    async with running_journal(data) as under_test:
        consumer = await with_many_in_flight(under_test)

        refuse(under_test, consumer, 1, MANY, with_receipt=False)
        acknowledge(consumer, 1, MANY)
        await under_test.idle()

        assert under_test.query("SELECT count(*) FROM redeliveries") == [(0,)]
        assert consumer.subscription.waiting == 0
        # Nor was one written or taken away: every row and every deletion is one that other units wait for.
        assert not any(batch.redeliveries or batch.settled_redeliveries for batch in under_test.store.written)
