"""The journal keeps the event loop no longer than others do, however much there is to write or to complete.

Calls and loop turns are counted instead of time, because a busy machine cannot change them.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
import trio

from stompbroker.journal.backlog import MAX_BATCH_UNITS
from tests.journal.journal_under_test import JournalUnderTest, running_journal, until
from tests.support.answers import acknowledge
from tests.support.messages import make_message, make_messages
from tests.support.work import operations

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from stompbroker.delivery import Consumer


class JournalSteps(trio.abc.Instrument):
    """Counts how often the journal actor was given its turn."""

    def __init__(self) -> None:
        self.count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += task.name == "stompbroker.actors.journal.run"


async def test_the_completion_of_many_units_is_cut_into_slices(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the time finds it 0.4 ms later: after three of them a slice of 1 ms is over."""
    now_s = 0.0

    def later() -> float:
        nonlocal now_s
        now_s += 0.0004
        return now_s

    async with running_journal(data) as under_test:
        await under_test.durable("a")
        topic = under_test.topic("a")
        under_test.store.hold()
        under_test.publish("first", topic, make_messages(1))
        await until(lambda: len(under_test.store.attempts) > len(under_test.store.written))
        steps = JournalSteps()
        completed_in_step: dict[int, int] = {}

        for number in range(300):
            under_test.publish(number, topic, make_messages(1))
        complete_one = type(under_test.journal).complete_one

        def complete_and_count(journal: object, unit: object) -> None:
            complete_one(journal, unit)  # type: ignore[arg-type]
            completed_in_step[steps.count] = completed_in_step.get(steps.count, 0) + 1

        monkeypatch.setattr(type(under_test.journal), "complete_one", complete_and_count)
        monkeypatch.setattr("stompbroker.actors.journal.perf_counter", later)
        trio.lowlevel.add_instrument(steps)
        under_test.store.release()
        await until(lambda: len(under_test.completed) == 301)
        trio.lowlevel.remove_instrument(steps)

        assert max(completed_in_step.values()) <= 4
        assert under_test.completed == ["first", *range(300)]


async def test_others_have_their_turn_while_a_batch_is_completed(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a slice of no time at all somebody else comes between any two units."""
    monkeypatch.setattr("stompbroker.actors.journal.SLICE_S", 0.0)
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with running_journal(data) as under_test:
        await under_test.durable("a")
        topic = under_test.topic("a")
        under_test.store.hold()
        seen: list[int] = []
        for number in range(50):
            under_test.publish(number, topic, make_messages(1))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(take_turns)
            under_test.store.release()
            while len(under_test.completed) < 50:
                if len(seen) < len(under_test.completed):
                    seen.append(turns)
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()

        assert len(seen) > 25


# Forming -------------------------------------------------------------------------------------------------------------


@pytest.fixture
async def under_test(data: Path) -> JournalUnderTest:
    """A journal whose batches the test writes itself."""
    return JournalUnderTest(data)


def subscribe(under_test: JournalUnderTest, name: str = "durable") -> Consumer:
    consumer, creation = under_test.creation(">", name=name)
    under_test.journal.submit(creation)
    under_test.write()
    return consumer


def write_all(under_test: JournalUnderTest) -> None:
    while not under_test.journal.is_idle:
        under_test.write()


def work_of_forming(under_test: JournalUnderTest) -> int:
    """Operations of the longest step; other tasks may run between two steps."""
    steps = under_test.journal.form_in_steps()
    work, is_formed = [], False

    def step() -> None:
        nonlocal is_formed
        is_formed = next(steps, "formed") == "formed"

    while not is_formed:
        work.append(operations(step))
    return max(work)


async def test_forming_the_largest_batch_of_small_units(under_test: JournalUnderTest) -> None:
    subscribe(under_test)
    for number in range(MAX_BATCH_UNITS):
        under_test.publish(number, under_test.topic(f"t{number % 100}"), make_messages(1))

    assert work_of_forming(under_test) / MAX_BATCH_UNITS < 33.5


async def test_forming_the_largest_batch_of_messages_that_opted_out(under_test: JournalUnderTest) -> None:
    subscribe(under_test)
    messages = [make_message(is_persistent=number % 2 == 0) for number in range(512)]
    for number in range(40):
        under_test.publish(number, under_test.topic("a"), messages)

    assert work_of_forming(under_test) / (40 * 512) < 2


def with_topics(under_test: JournalUnderTest, count: int) -> None:
    """A durable wildcard subscriber that was sent a message of each of so many topics."""
    subscribe(under_test)
    for number in range(count):
        under_test.publish(number, under_test.topic(f"many.{number}"), make_messages(1))
    write_all(under_test)
    under_test.deliver()


def create_another(under_test: JournalUnderTest) -> None:
    _, creation = under_test.creation(">", name="another")
    under_test.journal.submit(creation)


def move_all_cursors(under_test: JournalUnderTest) -> None:
    (subscription,) = under_test.registry.durable.values()
    assert subscription.consumer is not None
    acknowledge(subscription.consumer, 1, len(under_test.registry.topics))


def settle_everything(under_test: JournalUnderTest) -> None:
    move_all_cursors(under_test)
    under_test.write()
    for topic in under_test.registry.topics.values():
        under_test.registry.unsaved.collectable[topic] = None
        topic.collected_up_to = topic.log.start_offset


@pytest.mark.parametrize("prepare", [create_another, move_all_cursors, settle_everything])
async def test_forming_a_batch_takes_no_longer_the_more_topics_there_are(
    migrated_store: Path, tmp_path: Path, prepare: Callable[[JournalUnderTest], None]
) -> None:
    """A durable wildcard is created, moves, or lets go of many topics: not in one go."""

    def work_with(count: int) -> int:
        under_test = JournalUnderTest(shutil.copytree(migrated_store, tmp_path / str(count)))
        with_topics(under_test, count)
        prepare(under_test)
        work = work_of_forming(under_test)
        under_test.store.close()
        return work

    assert work_with(800) < 2 * work_with(200)
