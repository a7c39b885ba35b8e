"""What waits for the store is bounded, charged to the memory budget and given back; and so is the store's own room."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs
from trio.testing import wait_all_tasks_blocked

from stompbroker.changes import StoreState, Unit
from tests.journal.broker_on_store import broker_on
from tests.journal.journal_under_test import acknowledgement, make_lane, running_journal, until
from tests.support.messages import make_messages

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20
#: As written in `journal/backlog.py` and `sessions/session.py`.
MAX_BACKLOG_BYTES = 16 * MIB
MAX_LANE_BYTES = 2 * MIB
#: The largest chunk that is read at once.
CHUNK_BYTES = 256 * 1024


# Backlog -------------------------------------------------------------------------------------------------------------


async def test_the_gate_closes_when_the_backlog_is_full_and_opens_when_it_is_half_empty(data: Path) -> None:
    async with running_journal(data) as under_test:
        await under_test.durable("a")
        journal, topic = under_test.journal, under_test.topic("a")
        under_test.store.hold()
        before_bytes = under_test.budget.used_bytes
        while not journal.gate.is_blocked:
            assert journal.statistics().backlog_bytes < MAX_BACKLOG_BYTES
            under_test.publish("published", topic, make_messages(1, size_bytes=MIB // 2))
        assert MAX_BACKLOG_BYTES <= journal.statistics().backlog_bytes < MAX_BACKLOG_BYTES + MIB
        assert under_test.budget.used_bytes - before_bytes == journal.statistics().backlog_bytes
        assert not journal.gate.waits_for_consumers
        assert journal.statistics().state is StoreState.OK, "it works, and is slow"
        seen: list[tuple[int, bool]] = []

        def look() -> None:
            seen.append((journal.statistics().backlog_bytes, journal.gate.is_blocked))

        under_test.store.before_commit = look
        under_test.store.release()
        await under_test.idle()

        assert [is_blocked for _, is_blocked in seen] == [bytes_ >= MAX_BACKLOG_BYTES // 2 for bytes_, _ in seen]
        assert {is_blocked for _, is_blocked in seen} == {True, False}
        assert journal.statistics().backlog_bytes == 0


async def test_what_waits_is_charged_and_given_back(data: Path) -> None:
    async with running_journal(data) as under_test:
        await under_test.durable("stored")
        lane = make_lane()
        topic = under_test.topic("elsewhere")
        under_test.store.hold()
        before_bytes = under_test.budget.used_bytes
        under_test.publish("stored", under_test.topic("stored"), make_messages(1), lane=lane)

        under_test.publish("in memory, but behind it", topic, make_messages(10, size_bytes=1000), lane=lane)

        assert under_test.budget.used_bytes - before_bytes > 10_000
        assert lane.size_bytes == under_test.journal.statistics().backlog_bytes
        assert topic.pending_units == 1
        under_test.store.release()
        await under_test.idle()
        assert under_test.budget.used_bytes == before_bytes + under_test.topic("stored").log.size_bytes
        assert (lane.size_bytes, topic.pending_units) == (0, 0)


async def test_a_topic_with_something_on_its_way_is_not_removed(data: Path) -> None:
    async with running_journal(data) as under_test:
        await under_test.durable("*")
        under_test.store.hold()
        under_test.publish("published", under_test.topic("a"), make_messages(1))

        assert not under_test.registry.collect(under_test.topic("a"), 0, unused_since_ns=under_test.clock.now_ns() + 1)

        under_test.store.release()
        await under_test.idle()
        assert len(under_test.stored()) == 1


async def test_no_more_is_read_from_a_connection_that_has_much_on_its_way(data: Path) -> None:
    async with broker_on(data) as broker:
        await broker.durable_subscriber()
        publisher, other = await broker.client(), await broker.client()
        broker.store.hold()
        for number in range(100):
            await publisher.publish(b"x" * 100_000, receipt=str(number))
        await until(lambda: not publisher.session.wants_more)
        await wait_all_tasks_blocked()

        assert MAX_LANE_BYTES <= publisher.session.bytes_in < MAX_LANE_BYTES + 2 * CHUNK_BYTES
        assert other.session.wants_more
        assert not broker.journal.gate.is_blocked
        broker.store.release()
        for number in range(100):
            await publisher.expect_receipt(str(number))
        await until(lambda: publisher.session.wants_more)


async def test_publishers_are_held_back_by_a_full_backlog_and_go_on_by_themselves(data: Path) -> None:
    async with broker_on(data) as broker:
        subscriber = await broker.durable_subscriber(prefetch_count="1")
        publishers = [await broker.client() for _ in range(12)]
        broker.store.hold()
        for publisher in publishers:
            for number in range(30):
                await publisher.publish(b"x" * 100_000, receipt=str(number))
        await until(lambda: broker.journal.gate.is_blocked)
        await wait_all_tasks_blocked()
        assert any(publisher.session.is_held_back for publisher in publishers)

        broker.store.release()

        for publisher in publishers:
            for number in range(30):
                await publisher.expect_receipt(str(number))
        assert broker.look("SELECT count(*) FROM messages") == [(12 * 30,)]
        await subscriber.vanish()


# Room ----------------------------------------------------------------------------------------------------------------

MARK = 1_000_000


@pytest.fixture
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle journal looks soon whether there is room again, and deletes soon."""
    monkeypatch.setattr("stompbroker.journal.store_journal.IDLE_S", 0.02)


@pytest.mark.parametrize(("free", "state"), [(MARK, StoreState.OK), (MARK - 1, StoreState.LOW_SPACE)])
async def test_space_is_low_below_the_mark(data: Path, free: int, state: StoreState) -> None:
    async with running_journal(data, min_free_bytes=MARK) as under_test:
        under_test.store.free = free
        await under_test.durable("a")

        assert under_test.journal.health.state is state
        assert under_test.journal.gate.is_blocked == (state is StoreState.LOW_SPACE)


async def test_low_space_closes_the_gate_until_there_is_a_tenth_more(data: Path, quick_looks: None) -> None:
    async with running_journal(data, min_free_bytes=MARK) as under_test:
        await under_test.durable("a")
        gate, journal = under_test.journal.gate, under_test.journal
        assert not gate.is_blocked
        under_test.store.free = 10
        under_test.publish("written all the same", under_test.topic("a"), make_messages(1))
        await under_test.idle()

        assert journal.health.state is StoreState.LOW_SPACE
        assert "10 bytes" in str(journal.statistics().reason)
        assert journal.statistics().since_ns is not None
        assert gate.is_blocked
        assert gate.waits_for_consumers
        assert under_test.completed == ["written all the same"]
        under_test.store.free = MARK * 11 // 10 - 1
        batches = journal.batches
        await until(lambda: journal.batches >= batches + 2)
        assert gate.is_blocked
        under_test.store.free = MARK * 11 // 10 + 1
        await until(lambda: not gate.is_blocked)
        assert journal.health.state is StoreState.OK


async def test_low_space_is_logged_once_and_once_that_there_is_room(data: Path, quick_looks: None) -> None:
    with capture_logs() as logged:
        async with running_journal(data, min_free_bytes=MARK) as under_test:
            under_test.store.free = 10
            await under_test.durable("a")
            batches = under_test.journal.batches
            await until(lambda: under_test.journal.batches >= batches + 3)
            under_test.store.free = 2 * MARK
            await until(lambda: under_test.journal.health.state is StoreState.OK)

    assert [entry["event"] for entry in logged] == [
        "space is low; publishers to stored topics wait until consumers have made room",
        "there is room again; publishers go on",
    ]


async def test_acknowledgements_and_deletions_go_on_while_space_is_low(data: Path, quick_looks: None) -> None:
    async with running_journal(data, min_free_bytes=MARK) as under_test:
        consumer = await under_test.durable("a")
        await under_test.send(under_test.topic("a"), 100)
        under_test.store.free = 10

        under_test.submit("ack", Unit([], [acknowledgement(consumer, 1, 100)]))
        await under_test.idle()

        assert under_test.completed == ["messages", "ack"]
        assert under_test.journal.health.state is StoreState.LOW_SPACE
        await until(lambda: under_test.stored() == [])


async def test_publishers_wait_for_room_and_go_on_when_there_is(data: Path, quick_looks: None) -> None:
    async with broker_on(data, min_free_bytes=MARK) as broker:
        broker.store.free = 10
        subscriber = await broker.durable_subscriber()
        transient = await broker.subscriber("/topic/transient")
        publisher = await broker.client()
        await publisher.publish(b"one", receipt="one")
        await wait_all_tasks_blocked()
        assert publisher.session.is_held_back
        assert broker.journal.statistics().state.value == "low-space"
        other = await broker.client()
        await other.publish(b"elsewhere", destination="/topic/transient", receipt="elsewhere")
        await other.expect_receipt("elsewhere")
        assert (await transient.next_message()).body == b"elsewhere"

        broker.store.free = 2 * MARK

        await publisher.expect_receipt("one")
        assert (await subscriber.next_message()).body == b"one"
        assert broker.journal.statistics().state.value == "ok"


async def test_without_a_mark_space_is_never_low(data: Path) -> None:
    async with running_journal(data, min_free_bytes=0) as under_test:
        under_test.store.free = 0
        await under_test.durable("a")

        assert under_test.journal.health.state is StoreState.OK
