"""What every journal owes to whoever submits units to it.

Law: one suite, run on each implementation by a test module that subclasses `JournalContract` and says how to make one.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from stompbroker.memory_budget import MemoryBudget
from stompbroker.topics import Registry, TopicPolicies, TopicPolicy, Unit, parse_topic_name
from stompbroker.totals import Totals
from tests.support.messages import make_message

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from stompbroker.topics import Journal, Topic

__all__ = ["JournalContract"]


def make_topic(name: str) -> Topic:
    registry = Registry(TopicPolicies(TopicPolicy()), MemoryBudget(1 << 20), Totals(), max_topics=10)
    return registry.topic(parse_topic_name(name), 0)


class JournalContract:
    """Subclasses provide `journal`."""

    def journal(self) -> AbstractAsyncContextManager[Journal]:
        raise NotImplementedError

    async def test_every_unit_is_completed_exactly_once(self) -> None:
        completed: list[int] = []
        async with self.journal() as journal:
            for number in range(100):
                journal.submit(Unit({}, [], partial(completed.append, number)))
            await journal.wait_idle()

        assert sorted(completed) == list(range(100))

    async def test_units_are_completed_in_the_order_they_were_submitted(self) -> None:
        completed: list[int] = []
        async with self.journal() as journal:
            for number in range(100):
                journal.submit(Unit({}, [], partial(completed.append, number)))
            await journal.wait_idle()

        assert completed == list(range(100))

    async def test_a_unit_is_visible_as_a_whole_before_it_is_said_to_be_complete(self) -> None:
        left, right = make_topic("left"), make_topic("right")
        seen: list[tuple[int, int]] = []
        async with self.journal() as journal:
            publications = {left: [make_message()], right: [make_message(), make_message()]}
            journal.submit(Unit(publications, [], lambda: seen.append((left.published, right.published))))
            await journal.wait_idle()

        assert seen == [(1, 2)]

    async def test_offsets_are_given_in_the_order_of_submission(self) -> None:
        topic = make_topic("a")
        ends: list[int] = []
        async with self.journal() as journal:
            for _ in range(10):
                journal.submit(Unit({topic: [make_message()] * 3}, [], lambda: ends.append(topic.log.end_offset)))
            await journal.wait_idle()

        assert ends == list(range(3, 31, 3))

    async def test_a_unit_may_be_submitted_while_another_completes(self) -> None:
        completed: list[str] = []
        async with self.journal() as journal:

            def submit_another() -> None:
                completed.append("first")
                journal.submit(Unit({}, [], lambda: completed.append("second")))

            journal.submit(Unit({}, [], submit_another))
            await journal.wait_idle()
            await journal.wait_idle()

        assert completed == ["first", "second"]
