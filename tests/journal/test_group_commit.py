"""What makes durable messages cheap, in counts that no busy machine can change.

Speed itself is measured by `make bench`; these guard what makes it: one batch at a time takes all there is, one
statement takes many rows, and an acknowledgement without a receipt makes no commit of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import memory_stream_pair, wait_all_tasks_blocked

from stompbroker.changes import Appended, Unit
from stompbroker.transport import StreamTransport
from tests.journal.broker_on_store import broker_on
from tests.journal.journal_under_test import acknowledgement, make_lane, running_journal, until
from tests.journal.watched_store import statements_written
from tests.sessions.test_hot_path import CountingStream
from tests.support.broker_under_test import Client
from tests.support.messages import make_messages

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from trio.testing import MockClock

    from stompbroker.storage import Batch
    from tests.journal.journal_under_test import JournalUnderTest


async def being_written(under_test: JournalUnderTest) -> None:
    """One batch is on its way into the store and stays there."""
    under_test.store.hold()
    under_test.publish("first", under_test.topic("a"), make_messages(1))
    await until(lambda: len(under_test.store.attempts) > len(under_test.store.written))


# Batches -------------------------------------------------------------------------------------------------------------


async def test_all_that_comes_while_a_batch_is_written_is_one_batch(data: Path) -> None:
    async with running_journal(data) as under_test:
        await under_test.durable(">")
        await being_written(under_test)
        before = len(under_test.store.written)

        for number in range(500):
            under_test.publish(number, under_test.topic(f"t{number % 5}"), make_messages(1), lane=make_lane())
        under_test.store.release()
        await until(lambda: len(under_test.completed) == 501)

        assert len(under_test.store.written) - before == 2
        assert under_test.completed == ["first", *range(500)]


async def test_a_batch_takes_no_more_than_its_share_of_a_long_backlog(data: Path) -> None:
    """4 MiB: more would make the first of it wait without making the last any quicker."""
    async with running_journal(data) as under_test:
        await under_test.durable(">")
        await being_written(under_test)
        before = len(under_test.store.written)

        for number in range(10):
            under_test.publish(number, under_test.topic("a"), make_messages(1, size_bytes=1 << 20))
        under_test.store.release()
        await until(lambda: len(under_test.completed) == 11)

        sizes = [sum(len(run.messages) for run in batch.messages) for batch in under_test.store.written[before:]]
        assert sizes == [1, 4, 4, 2]


async def test_messages_wait_for_no_timer(data: Path, mock_clock: MockClock) -> None:
    """Time stands still, and they are written all the same."""
    async with running_journal(data) as under_test:
        await under_test.durable("a")
        for number in range(10):
            done = trio.Event()

            under_test.submit(number, Unit([Appended(under_test.topic("a"), make_messages(1))], then=done.set))
            await done.wait()

        assert len(under_test.stored()) == 10


# Statements ----------------------------------------------------------------------------------------------------------


async def statements_for(data: Path, units: int, messages: int) -> list[str]:
    """What SQLite is told for units of so many messages each, in one batch."""
    with statements_written() as statements:
        async with running_journal(data) as under_test:
            await under_test.durable("a")
            await being_written(under_test)
            for number in range(units):
                under_test.publish(number, under_test.topic("a"), make_messages(messages, size_bytes=256))
            under_test.store.before_commit = statements.clear
            under_test.store.release()
            await until(lambda: len(under_test.completed) == units + 1)
            return list(statements)


async def test_a_thousand_messages_of_one_unit_are_a_dozen_statements(data: Path) -> None:
    statements = await statements_for(data, 1, 1000)

    inserted = [text for text in statements if text.startswith("INSERT INTO messages")]
    assert len(inserted) == 6, "512, 256, 128, 64, 32 and 8 rows"
    assert len(statements) <= 12, statements


async def test_a_thousand_units_are_no_more_statements_than_one(data: Path) -> None:
    statements = await statements_for(data, 1000, 1)

    assert len([text for text in statements if text.startswith("INSERT INTO messages")]) == 6
    assert len([text for text in statements if text.startswith("INSERT INTO topics")]) == 1
    assert len(statements) <= 12, statements


# Acknowledgements ----------------------------------------------------------------------------------------------------


async def with_deliveries(under_test: JournalUnderTest, count: int) -> None:
    """A durable consumer that was sent so many messages, all of which are written, like everything else."""
    await under_test.durable("a")
    await under_test.send(under_test.topic("a"), count)
    await under_test.journal.wait_idle()
    under_test.store.attempts.clear()


def acknowledge(under_test: JournalUnderTest, first: int, last: int) -> None:
    (subscription,) = under_test.registry.durable.values()
    assert subscription.consumer is not None
    under_test.journal.submit(Unit([], [acknowledgement(subscription.consumer, first, last)], owes_receipt=False))


async def test_an_ack_without_a_receipt_waits_for_company(data: Path, mock_clock: MockClock) -> None:
    """50 ms, counted from the first."""
    async with running_journal(data) as under_test:
        await with_deliveries(under_test, 100)

        acknowledge(under_test, 1, 10)
        await wait_all_tasks_blocked()
        mock_clock.jump(0.03)
        await wait_all_tasks_blocked()
        acknowledge(under_test, 11, 30)
        await wait_all_tasks_blocked()
        mock_clock.jump(0.019)
        await wait_all_tasks_blocked()
        assert under_test.journal.is_idle

        mock_clock.jump(0.002)
        while len(under_test.store.written) < 3:
            await trio.lowlevel.checkpoint()
        await wait_all_tasks_blocked()

        (batch,) = under_test.store.attempts
        assert [row.ack_floor for row in batch.cursors] == [30]


@pytest.mark.parametrize(("count", "is_written"), [(499, False), (500, True)])
async def test_five_hundred_acks_without_a_receipt_wait_for_nobody(
    data: Path, mock_clock: MockClock, count: int, is_written: bool
) -> None:
    async with running_journal(data) as under_test:
        await with_deliveries(under_test, 1000)
        written_before = len(under_test.store.written)

        for number in range(1, count + 1):
            acknowledge(under_test, number, number)
        await wait_all_tasks_blocked()

        assert under_test.journal.is_idle != is_written
        while is_written and len(under_test.store.written) == written_before:
            await trio.lowlevel.checkpoint()


async def just_written(under_test: JournalUnderTest, count: int) -> None:
    """A durable consumer with deliveries, and a journal that has just written a unit: it looks again by itself."""
    await with_deliveries(under_test, count)
    done = trio.Event()
    under_test.submit("unit", Unit([Appended(under_test.topic("a"), make_messages(1))], then=done.set))
    await done.wait()
    await wait_all_tasks_blocked()
    assert under_test.registry.unsaved.is_looked_at
    under_test.store.attempts.clear()


async def attempted(under_test: JournalUnderTest) -> None:
    await attempted_of(under_test, 1)
    await under_test.journal.wait_idle()


async def attempted_of(under_test: JournalUnderTest, count: int) -> None:
    """Time stands still, so that nobody can sleep until a thread is done."""
    while len(under_test.store.attempts) < count:
        await trio.lowlevel.checkpoint()


async def steps_of_the_journal(doing: Callable[[], None]) -> int:
    """How often the journal runs because of it."""
    steps = 0

    class Steps(trio.abc.Instrument):
        def before_task_step(self, task: trio.lowlevel.Task) -> None:
            nonlocal steps
            steps += "actors.journal.run" in task.name

    instrument = Steps()
    trio.lowlevel.add_instrument(instrument)
    doing()
    await wait_all_tasks_blocked()
    trio.lowlevel.remove_instrument(instrument)
    return steps


async def test_an_ack_just_behind_a_unit_wakes_nobody_and_waits_no_longer_than_any_other(
    data: Path, mock_clock: MockClock
) -> None:
    async with running_journal(data) as under_test:
        await just_written(under_test, 100)
        mock_clock.jump(0.03)

        assert await steps_of_the_journal(lambda: acknowledge(under_test, 1, 10)) == 0

        mock_clock.jump(0.021)
        await attempted(under_test)
        (batch,) = under_test.store.attempts
        assert [row.ack_floor for row in batch.cursors] == [10]


async def test_five_hundred_acks_just_behind_a_unit_wait_for_nobody(data: Path, mock_clock: MockClock) -> None:
    async with running_journal(data) as under_test:
        await just_written(under_test, 1000)

        acknowledge(under_test, 1, 499)
        await wait_all_tasks_blocked()
        assert not under_test.store.attempts

        acknowledge(under_test, 500, 500)
        await attempted(under_test)


async def test_who_flushes_just_behind_a_unit_does_not_wait_for_company(data: Path, mock_clock: MockClock) -> None:
    async with running_journal(data) as under_test:
        await just_written(under_test, 10)
        acknowledge(under_test, 1, 5)

        await under_test.idle()

        (batch,) = under_test.store.attempts
        assert [row.ack_floor for row in batch.cursors] == [5]


async def test_an_ack_long_after_the_last_unit_wakes_the_journal(data: Path, mock_clock: MockClock) -> None:
    """Otherwise nobody would look."""
    async with running_journal(data) as under_test:
        await just_written(under_test, 10)
        mock_clock.jump(0.06)
        await wait_all_tasks_blocked()
        assert not under_test.registry.unsaved.is_looked_at

        assert await steps_of_the_journal(lambda: acknowledge(under_test, 1, 5)) > 0

        mock_clock.jump(0.051)
        await attempted(under_test)


async def published_alone(under_test: JournalUnderTest) -> Batch:
    """The batch in which a message is written."""
    done = trio.Event()
    under_test.store.attempts.clear()
    under_test.submit("alone", Unit([Appended(under_test.topic("a"), make_messages(1))], then=done.set))
    await done.wait()
    (batch,) = under_test.store.attempts
    return batch


async def test_a_message_does_not_wait_for_acks_that_can_wait_for_company(data: Path, mock_clock: MockClock) -> None:
    async with running_journal(data) as under_test:
        await with_deliveries(under_test, 10)
        acknowledge(under_test, 1, 5)

        batch = await published_alone(under_test)

        assert [run.first_offset for run in batch.messages] == [10]
        assert not batch.cursors
        assert not batch.deletions


async def test_acks_that_messages_went_without_are_written_after_a_moment_all_the_same(
    data: Path, mock_clock: MockClock
) -> None:
    """Not a moment after the last of these messages."""
    async with running_journal(data) as under_test:
        await with_deliveries(under_test, 10)
        acknowledge(under_test, 1, 5)
        for _ in range(4):
            assert not (await published_alone(under_test)).cursors
            await wait_all_tasks_blocked()
            mock_clock.jump(0.01)
        under_test.store.attempts.clear()

        await wait_all_tasks_blocked()
        assert not under_test.store.attempts
        mock_clock.jump(0.011)
        await attempted(under_test)

        (batch,) = under_test.store.attempts
        assert [row.ack_floor for row in batch.cursors] == [5]


async def test_acks_that_have_waited_ride_with_the_next_message(data: Path, mock_clock: MockClock) -> None:
    async with running_journal(data) as under_test:
        await with_deliveries(under_test, 10)
        acknowledge(under_test, 1, 5)
        await published_alone(under_test)
        under_test.store.hold()
        under_test.publish("held", under_test.topic("a"), make_messages(1))
        await attempted_of(under_test, 2)
        mock_clock.jump(0.05)

        under_test.publish("behind", under_test.topic("a"), make_messages(1))
        under_test.store.release()
        await attempted_of(under_test, 3)

        assert [[row.ack_floor for row in batch.cursors] for batch in under_test.store.attempts] == [[], [], [5]]


async def test_five_hundred_acks_ride_with_the_next_message(data: Path, mock_clock: MockClock) -> None:
    async with running_journal(data) as under_test:
        await with_deliveries(under_test, 1000)

        acknowledge(under_test, 1, 500)
        batch = await published_alone(under_test)

        assert [row.ack_floor for row in batch.cursors] == [500]


async def test_an_ack_with_a_receipt_takes_those_without_along(data: Path, mock_clock: MockClock) -> None:
    async with running_journal(data) as under_test:
        await with_deliveries(under_test, 10)
        (subscription,) = under_test.registry.durable.values()
        assert subscription.consumer is not None
        acknowledge(under_test, 1, 5)
        done = trio.Event()

        under_test.submit("owed", Unit([], [acknowledgement(subscription.consumer, 6, 6)], done.set))
        await done.wait()

        (batch,) = under_test.store.attempts
        assert [row.ack_floor for row in batch.cursors] == [6]


async def test_ten_thousand_acks_without_a_receipt_make_few_commits_of_one_cursor_each(data: Path) -> None:
    """From frames on: at most one commit for every 500, and while one is written the next ones gather."""
    async with broker_on(data, max_prefetch=20_000) as broker:
        subscriber = await broker.durable_subscriber(prefetch_count="20000")
        publisher = await broker.client()
        for _ in range(10):
            await publisher.publish(*[b"x" * 16] * 1000)
        acks = [subscriber.frame("ACK", id=each.headers["ack"]) for each in await subscriber.next_messages(10_000)]
        await broker.journal.wait_idle()
        broker.store.written.clear()

        for first in range(0, 10_000, 100):
            await subscriber.send_raw(b"".join(acks[first : first + 100]))
        (subscription,) = broker.registry.durable.values()
        await until(lambda: subscription.counters.acked == 10_000)
        await broker.journal.wait_idle()

        with_cursor = [batch for batch in broker.store.written if batch.cursors]
        assert all(len(batch.cursors) == 1 for batch in with_cursor)
        assert len(with_cursor) <= 10_000 // 500 + 1
        assert broker.look("SELECT ack_floor FROM cursors") == [(10_000,)]


async def test_ten_thousand_acks_without_a_receipt_in_one_write_are_hardly_more_commits(data: Path) -> None:
    async with broker_on(data, max_prefetch=20_000) as broker:
        subscriber = await broker.durable_subscriber(prefetch_count="20000")
        publisher = await broker.client()
        for _ in range(10):
            await publisher.publish(*[b"x" * 16] * 1000)
        acks = [subscriber.frame("ACK", id=each.headers["ack"]) for each in await subscriber.next_messages(10_000)]
        await broker.journal.wait_idle()
        broker.store.hold()
        broker.store.written.clear()

        await subscriber.send_raw(b"".join(acks))
        (subscription,) = broker.registry.durable.values()
        await until(lambda: subscription.counters.acked == 10_000)
        broker.store.release()
        await broker.journal.wait_idle()

        with_cursor = [batch for batch in broker.store.written if batch.cursors]
        assert len(with_cursor) <= 2, "the one that was under way, and all the rest"


# Wake-ups and writes -------------------------------------------------------------------------------------------------


async def test_ten_thousand_durable_messages_cost_few_wake_ups_writes_and_commits(data: Path) -> None:
    """Over real tasks: reader, journal, distributor, writer. Trio varies their order, so the bound has room."""
    ours, theirs = memory_stream_pair()
    counting = CountingStream(theirs)
    async with broker_on(data, max_prefetch=20_000) as broker, trio.open_nursery() as nursery:
        nursery.start_soon(broker.parts.serve_connection, StreamTransport(counting, "counted"))
        await wait_all_tasks_blocked()
        subscriber = Client(ours, next(reversed(broker.parts.sessions.values())))
        await subscriber.connect(client_id="client")
        durable = {"durable-subscription-name": "durable", "prefetch-count": "20000", "ack": "client-individual"}
        await subscriber.subscribe(**durable)
        publisher = await broker.client()
        frame = publisher.frame("SEND", b"x" * 256, destination="/topic/a")
        wake_ups, writes, batches = broker.registry.ready.wake_ups, counting.writes, broker.journal.batches

        async def publish() -> None:
            for number in range(20):
                await publisher.send_raw(frame * 499)
                await publisher.send("SEND", b"x" * 256, destination="/topic/a", receipt=str(number))

        async def read_receipts() -> None:
            for number in range(20):
                await publisher.expect_receipt(str(number))

        nursery.start_soon(publish)
        nursery.start_soon(read_receipts)
        await subscriber.next_messages(10_000)

        assert (broker.registry.ready.wake_ups - wake_ups) / 10 < 6
        assert (counting.writes - writes) / 10 < 6
        assert (broker.journal.batches - batches) / 10 < 6
        nursery.cancel_scope.cancel()
