"""What every journal owes to whoever submits units to it.

Law: one suite, run on each implementation by a test module that subclasses `JournalContract` and says how to make one.
What is promised stands in `stompbroker/changes/journal.py`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio

from stompbroker.changes import Answer, Appended, Lane, Unit, Verdict
from stompbroker.counting import Totals
from stompbroker.delivery import (
    AckMode,
    Consumer,
    Credit,
    Registry,
    Subscription,
    TopicPolicies,
    TopicPolicy,
    parse_pattern,
    parse_topic_name,
    sending,
)
from stompbroker.memory_budget import MemoryBudget
from stompbroker.signals import Signal
from tests.support.messages import make_message, make_messages
from tests.support.patience import HARD_TIMEOUT_S
from tests.support.sinks import ListSink

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from stompbroker.changes import Effect, Journal
    from stompbroker.delivery import Topic


def make_registry() -> Registry:
    return Registry(TopicPolicies(TopicPolicy()), MemoryBudget(1 << 30), Totals(), max_topics=10)


def transient_consumer(registry: Registry, topic: str) -> Consumer:
    """Somebody who reads a topic and has to acknowledge what it gets."""
    subscription = Subscription(
        name="0", destination=topic, pattern=parse_pattern(topic), ack_mode=AckMode.INDIVIDUAL, is_no_local=False
    )
    consumer = Consumer(
        subscription,
        ordinal=1,
        sink=ListSink(),
        credit=Credit(1000, max_waiting=10),
        queue=registry.ready,
    )
    registry.claim(consumer, 0)
    registry.open(consumer, 0)
    return consumer


class JournalContract:
    """Subclasses provide `journal`, and `registry` if it has to do with that journal."""

    registry: Registry

    @pytest.fixture(autouse=True)
    def topics_of_its_own(self) -> None:
        self.registry = make_registry()

    def journal(self) -> AbstractAsyncContextManager[Journal]:
        raise NotImplementedError

    def topic(self, name: str) -> Topic:
        return self.registry.topic(parse_topic_name(name), 0)

    async def idle(self, journal: Journal) -> None:
        with trio.fail_after(HARD_TIMEOUT_S):
            await journal.wait_idle()

    async def test_every_unit_is_completed_exactly_once(self) -> None:
        completed: list[int] = []
        async with self.journal() as journal:
            for number in range(100):
                effects: list[Effect] = [Appended(self.topic(f"t{number % 3}"), [make_message()])] if number % 2 else []
                journal.submit(Unit(effects, then=partial(completed.append, number)))
            await self.idle(journal)

        assert sorted(completed) == list(range(100))

    async def test_the_units_of_one_lane_are_completed_in_the_order_they_were_submitted(self) -> None:
        completed: list[int] = []
        lane = Lane(Signal())
        async with self.journal() as journal:
            for number in range(100):
                effects: list[Effect] = [] if number % 3 else [Appended(self.topic("a"), [make_message()])]
                journal.submit(Unit(effects, then=partial(completed.append, number), lane=lane))
            await self.idle(journal)

        assert completed == list(range(100))
        assert (lane.units, lane.size_bytes) == (0, 0)

    async def test_all_units_that_touch_what_is_stored_are_completed_in_the_order_they_were_submitted(self) -> None:
        completed: list[int] = []
        lanes = [Lane(Signal()) for _ in range(7)]
        async with self.journal() as journal:
            for number in range(100):
                appended = Appended(self.topic(f"t{number % 3}"), [make_message()])
                journal.submit(Unit([appended], then=partial(completed.append, number), lane=lanes[number % 7]))
            await self.idle(journal)

        assert completed == list(range(100))

    async def test_a_unit_is_visible_as_a_whole_before_it_is_said_to_be_complete(self) -> None:
        seen: list[tuple[int, int]] = []
        async with self.journal() as journal:
            left, right = self.topic("left"), self.topic("right")
            effects: list[Effect] = [Appended(left, [make_message()]), Appended(right, make_messages(2))]
            journal.submit(Unit(effects, then=lambda: seen.append((left.published, right.published))))
            await self.idle(journal)

        assert seen == [(1, 2)]

    async def test_offsets_are_given_in_the_order_of_submission(self) -> None:
        ends: list[int] = []
        async with self.journal() as journal:
            topic = self.topic("a")
            for _ in range(10):
                appended = Appended(topic, [make_message()] * 3)
                journal.submit(Unit([appended], then=lambda: ends.append(topic.log.end_offset)))
            await self.idle(journal)

        assert ends == list(range(3, 31, 3))

    async def test_a_unit_may_be_submitted_while_another_completes(self) -> None:
        completed: list[str] = []
        async with self.journal() as journal:
            topic = self.topic("a")

            def submit_another() -> None:
                completed.append("first")
                journal.submit(Unit([Appended(topic, [make_message()])], then=lambda: completed.append("second")))

            journal.submit(Unit([Appended(topic, [make_message()])], then=submit_another))
            await self.idle(journal)
            await self.idle(journal)

        assert completed == ["first", "second"]

    async def test_answers_outside_of_transactions_count_at_once(self) -> None:
        async with self.journal() as journal:
            consumer = transient_consumer(self.registry, "a")
            journal.submit(Unit([Appended(self.topic("a"), make_messages(3))]))
            await self.idle(journal)
            sending.deliver_slice(consumer, 0)

            journal.submit(Unit([], [Answer(consumer, Verdict.ACK, 1, 2)]))

            assert consumer.subscription.counters.acked == 2
            assert consumer.in_flight == 1
            await self.idle(journal)

    async def test_the_answers_of_a_transaction_count_when_its_messages_are_visible(self) -> None:
        seen: list[tuple[int, int]] = []
        async with self.journal() as journal:
            consumer = transient_consumer(self.registry, "a")
            topic = self.topic("a")
            journal.submit(Unit([Appended(topic, make_messages(3))]))
            await self.idle(journal)
            sending.deliver_slice(consumer, 0)
            answers = [Answer(consumer, Verdict.ACK, 1, 3)]

            def look() -> None:
                seen.append((topic.log.end_offset, consumer.subscription.counters.acked))

            journal.submit(Unit([Appended(topic, make_messages(2))], answers, look, is_transaction=True))
            await self.idle(journal)

        assert seen == [(5, 3)]
