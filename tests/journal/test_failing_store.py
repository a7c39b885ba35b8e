"""A store that fails loses nothing and acknowledges nothing, says so once, and is found working again by itself.

The failures are real: SQLite finds no room, or finds its file locked.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from stompbroker.changes import StoreState, Unit
from stompbroker.errors import OperatorError
from stompbroker.storage import StoreTaken, open_store
from tests.journal.journal_under_test import acknowledgement, query, running_journal, until
from tests.journal.watched_store import writing_connections
from tests.support.messages import make_message, make_messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.journal.journal_under_test import JournalUnderTest

    Step = Callable[[], None]
    Failure = tuple[Step, Step, str]


class NoRoom:
    """Keeps the file of an SQLite store from growing, also for connections it makes later."""

    def __init__(self) -> None:
        self.is_full = False
        self._connections: list[sqlite3.Connection] = []

    def watch(self, connection: sqlite3.Connection) -> None:
        self._connections.append(connection)
        if self.is_full:
            self._limit(connection)

    def fill(self) -> None:
        self.is_full = True
        self._limit(self._connections[-1])

    @staticmethod
    def _limit(connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA max_page_count = 1").fetchall()  # it answers with what there is


@contextmanager
def no_room(data: Path) -> Iterator[tuple[Step, Step]]:
    room = NoRoom()

    def make_room() -> None:
        room.is_full = False

    with writing_connections(room.watch):
        yield room.fill, make_room


@contextmanager
def locked(data: Path) -> Iterator[tuple[Step, Step]]:
    with closing(sqlite3.connect(data / "stompbroker.db", isolation_level=None, check_same_thread=False)) as other:

        def lock() -> None:
            other.execute("BEGIN EXCLUSIVE")

        def unlock() -> None:
            other.execute("ROLLBACK")

        yield lock, unlock


FAILURES = {"full": (no_room, "full"), "locked": (locked, "locked")}

#: More than the free pages of a fresh file.
LARGE = 100_000


@pytest.fixture(params=FAILURES)
def failure(request: pytest.FixtureRequest, data: Path) -> Iterator[Failure]:
    """How to make the store fail, how to mend it, and what it says meanwhile."""
    fails, says = FAILURES[request.param]
    with fails(data) as (break_it, mend_it):
        yield break_it, mend_it, says


def large(number: int) -> list[Any]:
    return [make_message(b"%d" % number + b"x" * LARGE)]


def numbers_stored(under_test: JournalUnderTest) -> list[int]:
    return [int(body.rstrip(b"x")) for _, body in under_test.stored()]


async def failing(under_test: JournalUnderTest) -> None:
    await until(lambda: under_test.journal.health.state is StoreState.FAILING)


# Holding on ----------------------------------------------------------------------------------------------------------


async def test_nothing_is_completed_while_the_store_fails_and_everything_in_order_when_it_is_back(
    data: Path, failure: Failure
) -> None:
    break_it, mend_it, _ = failure
    async with running_journal(data) as under_test:
        await under_test.durable("a")
        topic = under_test.topic("a")
        break_it()

        for number in range(5):
            under_test.publish(number, topic, large(number))
        await until(lambda: under_test.store.tries >= 5)
        for number in range(5, 10):
            under_test.publish(number, topic, large(number))

        assert under_test.completed == []
        assert topic.log.end_offset == 0
        assert numbers_stored(under_test) == []
        mend_it()
        await under_test.idle()
        assert under_test.completed == list(range(10))
        assert numbers_stored(under_test) == list(range(10))
        assert [offset for offset, _ in under_test.stored()] == list(range(10))


async def test_the_gate_is_closed_while_the_store_fails(data: Path, failure: Failure) -> None:
    break_it, mend_it, says = failure
    async with running_journal(data) as under_test:
        await under_test.durable("a")
        break_it()
        under_test.publish(0, under_test.topic("a"), large(0))
        await failing(under_test)

        gate = under_test.journal.gate
        assert gate.is_blocked
        assert says in gate.why
        assert not gate.waits_for_consumers
        mend_it()
        await under_test.idle()
        assert not gate.is_blocked


async def test_it_is_logged_once_that_the_store_fails_and_once_that_it_works_again(
    data: Path, failure: Failure
) -> None:
    break_it, mend_it, says = failure
    with capture_logs() as logged:
        async with running_journal(data) as under_test:
            await under_test.durable("a")
            break_it()
            under_test.publish(0, under_test.topic("a"), large(0))
            await until(lambda: under_test.store.tries >= 6)
            mend_it()
            await under_test.idle()

    events = [(entry["log_level"], entry["event"]) for entry in logged]
    assert events == [
        ("error", "the store fails; publishers to stored topics wait"),
        ("info", "the store works again; publishers go on"),
    ]
    assert says in logged[0]["reason"]


async def test_the_statistics_say_that_it_fails_why_and_since_when(data: Path, failure: Failure) -> None:
    break_it, mend_it, says = failure
    async with running_journal(data) as under_test:
        await under_test.durable("a")
        break_it()
        before_ns = under_test.clock.now_ns()
        under_test.publish(0, under_test.topic("a"), large(0))
        await failing(under_test)
        first = under_test.journal.statistics()
        await until(lambda: under_test.store.tries >= 6)

        statistics = under_test.journal.statistics()
        assert statistics.state is StoreState.FAILING
        assert says in str(statistics.reason)
        assert statistics.since_ns is not None
        assert before_ns <= statistics.since_ns <= under_test.clock.now_ns()
        assert statistics.since_ns == first.since_ns, "since it began, not since the last attempt"
        mend_it()
        await under_test.idle()
        statistics = under_test.journal.statistics()
        assert (statistics.state, statistics.reason, statistics.since_ns) == (StoreState.OK, None, None)


async def test_what_waits_is_counted_in_units_and_bytes_while_it_is_tried_again(data: Path, failure: Failure) -> None:
    break_it, mend_it, _ = failure
    async with running_journal(data) as under_test:
        await under_test.durable("a")
        break_it()
        under_test.publish(0, under_test.topic("a"), large(0))
        await failing(under_test)

        statistics = under_test.journal.statistics()
        assert statistics.backlog_bytes > LARGE
        assert statistics.backlog_units == 1
        mend_it()
        await under_test.idle()


async def test_acknowledgements_are_not_lost_by_a_store_that_fails_when_they_are_written(
    data: Path, failure: Failure
) -> None:
    break_it, mend_it, _ = failure
    async with running_journal(data) as under_test:
        consumer, topic = await under_test.durable("a"), under_test.topic("a")
        await under_test.send(topic, 10)
        break_it()
        under_test.publish(0, topic, large(0))
        under_test.submit("first", Unit([], [acknowledgement(consumer, 1, 4)]))
        await failing(under_test)
        under_test.submit("second", Unit([], [acknowledgement(consumer, 5, 7)]))
        mend_it()
        await under_test.idle()

        assert under_test.completed == ["messages", 0, "first", "second"]
        assert under_test.query("SELECT ack_floor FROM cursors") == [(7,)]


# Unknown outcomes ----------------------------------------------------------------------------------------------------


async def test_a_batch_whose_answer_was_lost_is_not_written_twice_and_completed_once(data: Path) -> None:
    async with running_journal(data) as under_test:
        await under_test.durable("a")
        topic = under_test.topic("a")
        under_test.store.lost_answers = 1

        under_test.publish("one", topic, [make_message(b"one")])
        await under_test.idle()
        under_test.publish("two", topic, [make_message(b"two")])
        await under_test.idle()

        assert under_test.completed == ["one", "two"]
        assert under_test.stored() == [(0, b"one"), (1, b"two")]
        numbers = [batch.number for batch in under_test.store.attempts]
        assert numbers == sorted(set(numbers)), "no batch was tried again"


async def test_a_failing_store_is_logged_once_however_often_the_answer_is_lost(data: Path) -> None:
    with capture_logs() as logged:
        async with running_journal(data) as under_test:
            await under_test.durable("a")
            under_test.store.lost_answers = 3
            for number in range(3):
                under_test.publish(number, under_test.topic("a"), make_messages(1))
                await under_test.idle()

    assert [entry["log_level"] for entry in logged] == ["error", "info"] * 3


# Another owner -------------------------------------------------------------------------------------------------------


def take_from_behind(data: Path) -> None:
    """Another broker writes itself in as the owner, past every lock."""
    intruder = open_store("", data)
    intruder.take_ownership("the intruder")
    intruder.close()


async def test_the_actor_ends_when_somebody_else_owns_the_store(data: Path) -> None:
    with pytest.RaisesGroup(
        pytest.RaisesExc(StoreTaken, match="the intruder"), allow_unwrapped=True, flatten_subgroups=True
    ):
        async with running_journal(data) as under_test:
            await under_test.durable("a")
            take_from_behind(data)
            under_test.publish("one", under_test.topic("a"), make_messages(1))
            await until(lambda: False)

    assert under_test.completed == []
    assert query(data, "SELECT count(*) FROM messages") == [(0,)]
    assert issubclass(StoreTaken, OperatorError)


async def test_the_actor_ends_when_the_store_was_taken_while_it_failed(data: Path) -> None:
    with pytest.RaisesGroup(StoreTaken, allow_unwrapped=True, flatten_subgroups=True):
        with locked(data) as (break_it, mend_it):
            async with running_journal(data) as under_test:
                await under_test.durable("a")
                break_it()
                under_test.publish("one", under_test.topic("a"), make_messages(1))
                await failing(under_test)
                under_test.store.hold()
                mend_it()
                take_from_behind(data)
                under_test.store.release()
                await until(lambda: False)

    assert under_test.completed == []
