"""A journal with its actor, a real SQLite store and topics, without sessions.

Law: tests submit units and look at what is completed, what is in memory and what is in the file. Waiting is for
conditions, on the real clock, with a hard limit.
"""

from __future__ import annotations

import sqlite3
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING, Any

import trio

from stompbroker.actors import journal as journal_actor
from stompbroker.changes import Answer, Appended, Created, Lane, Removed, Unit, Verdict
from stompbroker.clock import Clock
from stompbroker.counting import LoopGauge, Totals
from stompbroker.delivery import (
    AckMode,
    Consumer,
    Credit,
    Durability,
    Identity,
    IdentityKind,
    ReadyQueue,
    Registry,
    Subscription,
    TopicPolicies,
    TopicPolicy,
    parse_pattern,
    parse_topic_name,
    sending,
)
from stompbroker.journal import StoreJournal, restore
from stompbroker.journal.store_writer import StoreWriter
from stompbroker.memory_budget import MemoryBudget
from stompbroker.sessions import Dispatch, FlushQueue
from stompbroker.signals import Signal
from stompbroker.storage import open_store
from tests.journal.watched_store import WatchedStore
from tests.support.forming import write_batch
from tests.support.messages import make_messages
from tests.support.patience import HARD_TIMEOUT_S
from tests.support.sinks import ListSink

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from stompbroker.delivery import Topic
    from stompbroker.storage import Store


async def until(is_so: Callable[[], object]) -> None:
    """Wait for something that another task or thread will bring about."""
    with trio.fail_after(HARD_TIMEOUT_S):
        while not is_so():  # noqa: ASYNC110 - a thread's doings, which no event tells
            await trio.sleep(0.0005)


def query(data: Path, statement: str) -> list[tuple[Any, ...]]:
    """What the database says, to a connection that has nothing to do with the store."""
    with closing(sqlite3.connect(data / "stompbroker.db", isolation_level=None)) as database:
        return database.execute(statement).fetchall()


def make_lane() -> Lane:
    return Lane(Signal())


def journal_on(
    store: Store | WatchedStore, registry: Registry, clock: Clock, *, min_free_bytes: int = 0
) -> StoreJournal:
    """Takes the store over, and gives the registry what is in it."""
    ownership = store.take_ownership("the test")
    restore(store.load(), registry, clock.now_ns())
    return StoreJournal(
        registry,
        clock,
        registry.budget,
        ownership.start_number,
        engine="sqlite",
        last_batch_number=ownership.batch,
        min_free_bytes=min_free_bytes,
    )


def acknowledgement(consumer: Consumer, first: int, last: int) -> Answer:
    return Answer(consumer, Verdict.ACK, first, last)


class JournalUnderTest:
    """The parts of a broker that have to do with storing."""

    def __init__(self, data: Path, *, min_free_bytes: int = 0) -> None:
        self.data = data
        self.store = WatchedStore(open_store("", data))
        self.clock = Clock()
        self.budget = MemoryBudget(1 << 30)
        self.registry = Registry(TopicPolicies(TopicPolicy()), self.budget, Totals(), max_topics=100_000)
        self.journal = journal_on(self.store, self.registry, self.clock, min_free_bytes=min_free_bytes)
        self.stretches = LoopGauge()
        #: Of nobody: tests deliver when they want to.
        self.dispatch = Dispatch(ReadyQueue(), FlushQueue(), self.clock)
        #: What was completed and what was refused, in that order; whatever `submit` was given as a name.
        self.completed: list[object] = []
        self.refused: list[object] = []

    def topic(self, name: str) -> Topic:
        return self.registry.topic(parse_topic_name(name), self.clock.now_ns())

    def submit(self, name: object, unit: Unit) -> None:
        """Submit a unit that will be in `completed` or in `refused` under that name."""
        then, refused = unit.then, unit.refused

        def complete() -> None:
            then()
            self.completed.append(name)

        def refuse(reason: str) -> None:
            self.refused.append(name)
            if refused is not None:
                refused(reason)

        unit.then, unit.refused = complete, refuse
        self.journal.submit(unit)

    def publish(self, name: object, topic: Topic, messages: list[Any], *, lane: Lane | None = None) -> None:
        self.submit(name, Unit([Appended(topic, messages)], lane=lane))

    def creation(self, pattern: str, *, name: str = "durable", prefetch: int = 1_000_000) -> tuple[Consumer, Unit]:
        """A new durable subscription, claimed; and the unit that makes it so."""
        now_ns = self.clock.now_ns()
        subscription = Subscription(
            name=name,
            destination=pattern,
            pattern=parse_pattern(pattern),
            ack_mode=AckMode.INDIVIDUAL,
            is_no_local=False,
            durability=Durability(
                Identity("", IdentityKind.NAMED, "client", name),
                self.journal.next_subscription_id(),
                created_at_ns=now_ns,
                last_seen_at_ns=now_ns,
            ),
        )
        self.registry.add_durable(subscription)
        consumer = self.attach(subscription, prefetch=prefetch)

        def begin() -> None:
            self.registry.begin(subscription, self.clock.now_ns())
            self.registry.open(consumer, self.clock.now_ns())

        return consumer, Unit([Created(subscription, self.registry)], then=begin)

    def attach(self, subscription: Subscription, *, prefetch: int = 1_000_000) -> Consumer:
        consumer = Consumer(
            subscription,
            ordinal=1,
            sink=ListSink(),
            credit=Credit(prefetch, max_waiting=1000),
            queue=self.registry.ready,
        )
        self.registry.claim(consumer, self.clock.now_ns())
        return consumer

    def removal(self, subscription: Subscription) -> Unit:
        """The unit that deletes a durable subscription, which cannot be subscribed to any more."""
        if subscription.consumer is not None:
            self.registry.leave([subscription.consumer], self.clock.now_ns())
        return Unit([Removed(subscription, self.registry)])

    async def durable(self, pattern: str = ">", *, name: str = "durable", prefetch: int = 1_000_000) -> Consumer:
        """The consumer of a new durable subscription, when that is written."""
        consumer, unit = self.creation(pattern, name=name, prefetch=prefetch)
        self.journal.submit(unit)
        await self.idle()
        return consumer

    def deliver(self) -> None:
        """As the distributor does, to clients that read at once."""
        while len(self.registry.ready):
            consumer = self.registry.ready.take()
            sending.deliver_slice(consumer, 0)
            sink = consumer.sink
            assert isinstance(sink, ListSink)
            sink.send()

    async def send(self, topic: Topic, count: int) -> None:
        """Publish so many messages, and deliver them when they are written."""
        self.publish("messages", topic, make_messages(count))
        await self.idle()
        self.deliver()

    def write(self) -> None:
        """One batch, as the actor does, where none runs."""
        write_batch(self.journal, self.store.commit)

    async def idle(self) -> None:
        with trio.fail_after(HARD_TIMEOUT_S):
            await self.journal.wait_idle()

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        return query(self.data, statement)

    def stored(self, topic: str = "a") -> list[tuple[int, bytes]]:
        """Offset and body of every message in the file."""
        rows = self.query(
            "SELECT m.offset, m.tail, m.body_bytes FROM messages m JOIN topics t ON t.id = m.topic_id "
            f"WHERE t.name = '{topic}' ORDER BY m.offset"
        )
        return [(offset, tail[-1 - size : -1]) for offset, tail, size in rows]

    def check_invariants(self) -> None:
        self.registry.check_invariants()
        self.journal.check_invariants()


@asynccontextmanager
async def running_journal(data: Path, *, min_free_bytes: int = 0) -> AsyncIterator[JournalUnderTest]:
    """A journal whose actor runs until the block ends; then its invariants are checked, and the store is closed."""
    under_test = JournalUnderTest(data, min_free_bytes=min_free_bytes)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(
                journal_actor.run,
                under_test.journal,
                StoreWriter(under_test.store.as_store()),
                under_test.dispatch,
                under_test.stretches,
            )
            try:
                yield under_test
            finally:
                under_test.store.release()
                nursery.cancel_scope.cancel()
        under_test.check_invariants()
    finally:
        under_test.store.close()
