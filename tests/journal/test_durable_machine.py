"""Publishing to durable subscribers, with kills, against a naive model, over long random runs on a real store.

The model keeps, for every subscriber, what it was sent and what it has a receipt for. Whatever is killed in between:
what a publisher has a receipt for is delivered, for the first time in order; what an acknowledgement has a receipt
for never comes again; and what nobody has acknowledged is not settled. Subscribers come back in other ack modes, and
answer what they were sent before they left.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from stompbroker.changes import Answer, Appended, Created, Effect, Unit, Verdict
from stompbroker.counting import Totals
from stompbroker.delivery import (
    AckMode,
    Consumer,
    Credit,
    DeliveryPolicy,
    Durability,
    Identity,
    IdentityKind,
    Leaving,
    Pattern,
    Refusal,
    Registry,
    Subscription,
    TopicPolicies,
    TopicPolicy,
    Waiting,
    answering,
    appending,
    parse_pattern,
    parse_topic_name,
    sending,
)
from stompbroker.memory_budget import MemoryBudget
from stompbroker.stomp import FrameReader, Limits, Version
from stompbroker.storage import open_store
from tests.journal.journal_under_test import journal_on
from tests.support.answers import acknowledge
from tests.support.forming import form, write_batch
from tests.support.messages import make_message
from tests.support.sinks import frame_sink

if TYPE_CHECKING:
    from stompbroker.clock import Clock
    from stompbroker.sessions import Outbox

TOPICS = ("a.x", "a.y")


class Subscriber(NamedTuple):
    name: str
    pattern: str
    ack_mode: AckMode
    prefetch: int


SUBSCRIBERS = (
    Subscriber("one", "a.x", AckMode.INDIVIDUAL, 7),
    Subscriber("two", "a.*", AckMode.CLIENT, 5),
    Subscriber("three", "a.>", AckMode.INDIVIDUAL, 60),
    Subscriber("four", "a.y", AckMode.AUTO, 10),
)


class HandClock:
    """Time as the machine sets it."""

    def __init__(self) -> None:
        self.ns = 0

    def now_ns(self) -> int:
        return self.ns


class Connection:
    """A subscriber's connection while it lives."""

    def __init__(self, consumer: Consumer, ack_mode: AckMode, outbox: Outbox) -> None:
        self.consumer = consumer
        self.ack_mode = ack_mode
        self.outbox = outbox
        self.reader = FrameReader(Limits())
        self.reader.version = Version.V1_2
        #: body of each delivery, in the order of their numbers.
        self.sent: list[bytes] = []

    def acknowledged(self, first: int, last: int) -> set[bytes]:
        """What an ACK of these numbers can settle."""
        return set(self.sent[0 if self.ack_mode is AckMode.CLIENT else first - 1 : last])


class Model:
    """What one subscriber knows, whatever the broker forgets."""

    def __init__(self) -> None:
        self.connection: Connection | None = None
        #: Connections that have unsubscribed, and may still answer.
        self.departed: list[Connection] = []
        #: Topic and offset of what it was sent, must answer and has not acknowledged.
        self.unanswered: dict[bytes, tuple[str, int]] = {}
        #: What it has acknowledged, whether or not that is stored.
        self.acknowledged: set[bytes] = set()
        #: Every message it was ever sent.
        self.seen: dict[bytes, None] = {}
        #: What must never come again.
        self.settled: set[bytes] = set()

    def note_acknowledged(self, bodies: set[bytes]) -> None:
        self.acknowledged |= bodies
        for body in bodies:
            self.unanswered.pop(body, None)


def number_of(body: bytes) -> int:
    return int(body.split()[1])


class DurableMachine(RuleBasedStateMachine):
    template: Path

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        shutil.copytree(self.template, self.directory, dirs_exist_ok=True)
        self.clock = HandClock()
        self.models = [Model() for _ in SUBSCRIBERS]
        self.published = 0
        #: Messages that are stored, if they are published at all.
        self.persistent: set[bytes] = set()
        #: Messages their publisher has a receipt for.
        self.receipted: set[bytes] = set()
        self.disconnected: list[object] = []
        self.start()

    # The broker's life -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.store = open_store("", self.directory)
        self.budget = MemoryBudget(1 << 30)
        policy = TopicPolicy(window_messages=20, delivery=DeliveryPolicy(max_attempts=0))
        self.registry = Registry(TopicPolicies(policy), self.budget, Totals(), max_topics=10)
        self.journal = journal_on(self.store, self.registry, cast("Clock", self.clock))

    def restart(self) -> None:
        """As if the process had been killed: whatever is not in the store is gone."""
        self.store.close()
        for model in self.models:
            model.connection = None
            model.departed.clear()
        self.start()

    @initialize()
    def subscribe_all(self) -> None:
        for which in range(len(SUBSCRIBERS)):
            self.arrive(which, None)
        self.commit()

    # Rules -----------------------------------------------------------------------------------------------------------

    @rule(topic=st.sampled_from(TOPICS), count=st.integers(1, 12), is_persistent=st.sampled_from([True, True, False]))
    def publish(self, topic: str, count: int, is_persistent: bool) -> None:
        numbers = range(self.published + 1, self.published + 1 + count)
        self.published += count
        messages = [
            make_message(b"%b %d" % (topic.encode(), number), number=number, is_persistent=is_persistent)
            for number in numbers
        ]
        bodies = {message.body for message in messages} if is_persistent else set()
        self.persistent |= bodies
        store = self.registry.topic(parse_topic_name(topic), self.clock.ns)
        if store.gate.is_blocked:
            return
        self.journal.submit(Unit([Appended(store, messages)], then=lambda: self.receipted.update(bodies)))

    @rule()
    def commit(self) -> None:
        """Everything on its way is written and completed."""
        while not self.journal.is_idle or self.registry.unsaved:
            write_batch(self.journal, self.store.commit)

    @rule()
    def die_before_commit(self) -> None:
        self.restart()

    @rule()
    def die_between_commit_and_receipt(self) -> None:
        self.store.commit(form(self.journal).batch)
        self.restart()

    @rule()
    def delete_what_is_settled(self) -> None:
        """As the journal does when nothing else is to be done."""
        self.commit()
        if self.registry.unsaved.collectable:
            write_batch(self.journal, self.store.commit)

    @rule(slices=st.integers(1, 6))
    def distribute(self, slices: int) -> None:
        for _ in range(slices):
            if len(self.registry.ready):
                sending.deliver_slice(self.registry.ready.take(), 0)
        for topic in self.registry.ready.take_moved():
            appending.try_to_unblock(topic, self.clock.ns)

    @rule()
    def read_pages(self) -> None:
        while (request := next(iter(self.registry.pages.requests), None)) is not None:
            topic_id = request.topic.store_id
            assert topic_id is not None
            page = self.store.read_page(topic_id, request.start, request.stop, max_rows=5)
            self.registry.pages.put(request, page)

    @rule(which=st.integers(0, 3))
    def write(self, which: int) -> None:
        """The writer of one connection sends everything; the client reads it."""
        model = self.models[which]
        connection = model.connection
        if connection is None:
            return
        parts, when_sent = connection.outbox.take()
        data = b"".join(parts)
        frames = connection.reader.receive(data)
        while connection.reader.has_more:
            frames += connection.reader.receive(b"")
        connection.outbox.mark_sent(len(data), when_sent)
        for frame in frames:
            body = frame.body
            assert body not in model.settled, "what was settled with a receipt never comes again"
            if body not in model.seen:
                topic = body.split()[0]
                earlier = [number_of(other) for other in model.seen if other.split()[0] == topic]
                assert number_of(body) > max(earlier, default=0), "for the first time, messages come in order"
            else:
                assert connection.ack_mode is not AckMode.AUTO or frame.headers["redelivered"]
            connection.sent.append(body)
            model.seen[body] = None
            self._note_unanswered(model, connection)

    def _note_unanswered(self, model: Model, connection: Connection) -> None:
        """What was just sent has to be acknowledged; in `auto` mode it is by having been sent."""
        number, body = len(connection.sent), connection.sent[-1]
        if connection.ack_mode is AckMode.AUTO:
            model.note_acknowledged({body})
        elif body in self.persistent - model.acknowledged:
            for reading, offset, _, _ in connection.consumer.sent.parts(number, number + 1):
                model.unanswered[body] = reading.topic.name, offset

    @rule(which=st.integers(0, 3), choice=st.integers(0, 1000), width=st.integers(0, 4), wants_receipt=st.booleans())
    def acknowledge(self, which: int, choice: int, width: int, wants_receipt: bool) -> None:
        model = self.models[which]
        connection = model.connection
        if connection is None or not connection.sent or connection.ack_mode is AckMode.AUTO:
            return
        first = choice % len(connection.sent) + 1
        last = min(first + width, len(connection.sent))
        meant = connection.acknowledged(first, last)
        model.note_acknowledged(meant)
        if connection.ack_mode is AckMode.CLIENT:
            # What was refused before is not meant by a cumulative answer.
            meant = {body for body in meant if not self._is_waiting_or_free(connection, body)}
        answer = Answer(connection.consumer, Verdict.ACK, first, last)
        self.journal.submit(
            Unit([], [answer], lambda: model.settled.update(meant if wants_receipt else ()), owes_receipt=wants_receipt)
        )

    @rule(which=st.integers(0, 3), choice=st.integers(0, 1000), topic=st.sampled_from(TOPICS))
    def acknowledge_and_publish_in_a_transaction(self, which: int, choice: int, topic: str) -> None:
        model = self.models[which]
        connection = model.connection
        store = self.registry.topic(parse_topic_name(topic), self.clock.ns)
        if connection is None or not connection.sent or connection.ack_mode is AckMode.AUTO or store.gate.is_blocked:
            return
        number = choice % len(connection.sent) + 1
        self.published += 1
        message = make_message(b"%b %d" % (topic.encode(), self.published), number=self.published)
        self.persistent.add(message.body)
        model.note_acknowledged(connection.acknowledged(number, number))
        meant = {connection.sent[number - 1]} if connection.ack_mode is AckMode.INDIVIDUAL else set()

        def done() -> None:
            self.receipted.add(message.body)
            if connection.consumer.is_open:
                model.settled.update(meant)

        answer = Answer(connection.consumer, Verdict.ACK, number, number)
        self.journal.submit(Unit([Appended(store, [message])], [answer], done, is_transaction=True))

    @rule(which=st.integers(0, 3), choice=st.integers(0, 1000), delay=st.integers(0, 3))
    def refuse(self, which: int, choice: int, delay: int) -> None:
        connection = self.models[which].connection
        if connection is None or not connection.sent or connection.ack_mode is AckMode.AUTO:
            return
        number = choice % len(connection.sent) + 1
        answer = Answer(connection.consumer, Verdict.NACK, number, number, Refusal(self.clock.ns, "no", delay))
        self.journal.submit(Unit([], [answer], owes_receipt=False))

    @rule()
    def let_time_pass(self) -> None:
        self.clock.ns += 10
        for reading, offset in self.registry.redeliveries.take_due(self.clock.ns, 10_000):
            answering.become_due(Waiting(reading, offset))

    @rule(which=st.integers(0, 3), leaving=st.sampled_from([Leaving.TAKEN_AWAY, Leaving.UNSUBSCRIBED]))
    def leave(self, which: int, leaving: Leaving) -> None:
        model = self.models[which]
        connection = model.connection
        if connection is not None:
            self.registry.leave([connection.consumer], self.clock.ns, leaving=leaving)
            connection.outbox.close()
            model.connection = None
            if leaving is Leaving.UNSUBSCRIBED:
                model.departed.append(connection)

    @rule(
        which=st.integers(0, 3),
        ack_mode=st.sampled_from(AckMode),
        answers=st.lists(st.tuples(st.integers(0, 1000), st.sampled_from(Verdict)), min_size=1, max_size=3),
        wants_receipt=st.booleans(),
    )
    def come_back(self, which: int, ack_mode: AckMode, answers: list[tuple[int, Verdict]], wants_receipt: bool) -> None:
        """In that mode; then it answers some of what it was sent before."""
        self.arrive(which, None)
        for topic in TOPICS:
            self.publish(topic, 3, is_persistent=True)
        self._send(which)
        self.leave(which, Leaving.UNSUBSCRIBED)
        self.arrive(which, ack_mode)
        self.commit()
        self.distribute(6)
        if wants_receipt:
            self.write(which)  # what is on its way comes, although it is settled then
        for choice, verdict in answers:
            self._answer_late(self.models[which], choice, verdict, wants_receipt=wants_receipt)

    def _answer_late(self, model: Model, choice: int, verdict: Verdict, *, wants_receipt: bool) -> None:
        answering = [each for each in model.departed if each.sent and each.ack_mode is not AckMode.AUTO]
        if not answering:
            return
        connection = answering[-1 - choice % min(2, len(answering))]
        number = choice % len(connection.sent) + 1
        is_ack = verdict is Verdict.ACK
        if is_ack:
            model.note_acknowledged(connection.acknowledged(number, number))
        named = {connection.sent[number - 1]} if is_ack and wants_receipt else set()
        answer = Answer(connection.consumer, verdict, number, number, Refusal(self.clock.ns, "no", 2))
        self.journal.submit(Unit([], [answer], lambda: model.settled.update(named), owes_receipt=wants_receipt))

    @rule(which=st.integers(0, 3), ack_mode=st.sampled_from([None, *AckMode]))
    def arrive(self, which: int, ack_mode: AckMode | None) -> None:
        if self.models[which].connection is not None:
            return
        wanted = SUBSCRIBERS[which]
        ack_mode = ack_mode or wanted.ack_mode
        identity = Identity("", IdentityKind.NAMED, "client", wanted.name)
        subscription = self.registry.durable.get(identity)
        is_new = subscription is None
        if subscription is None:
            subscription = Subscription(
                name=wanted.name,
                destination=wanted.pattern,
                pattern=parse_pattern(wanted.pattern),
                ack_mode=ack_mode,
                is_no_local=False,
                durability=Durability(
                    identity, self.journal.next_subscription_id(), created_at_ns=0, last_seen_at_ns=0
                ),
            )
            self.registry.add_durable(subscription)
        subscription.ack_mode = ack_mode
        sink, outbox = frame_sink(subscription, self.budget, disconnect=self.disconnected.append)
        consumer = Consumer(
            subscription,
            ordinal=1,
            sink=sink,
            credit=Credit(wanted.prefetch, max_waiting=8),
            queue=self.registry.ready,
        )
        self.registry.claim(consumer, self.clock.ns)
        self.models[which].connection = Connection(consumer, ack_mode, outbox)

        def begin() -> None:
            self.registry.begin(subscription, self.clock.ns)
            self.registry.open(consumer, self.clock.ns)

        effects: list[Effect] = [Created(subscription, self.registry)] if is_new else []
        self.journal.submit(Unit(effects, then=begin))

    @rule(which=st.integers(0, 1))
    def collect(self, which: int) -> None:
        topic = self.registry.topics.get(TOPICS[which])
        if topic is not None:
            self.registry.collect(topic, self.clock.ns, unused_since_ns=-1)

    # What must be so -------------------------------------------------------------------------------------------------

    @invariant()
    def everything_agrees(self) -> None:
        self.registry.check_invariants()
        self.journal.check_invariants()

    @invariant()
    def what_nobody_has_acknowledged_is_unsettled(self) -> None:
        for subscription in self.registry.durable.values():
            (model,) = [self.models[n] for n, plan in enumerate(SUBSCRIBERS) if plan.name == subscription.name]
            for topic, reading in subscription.readings.items():
                for body, (name, offset) in model.unanswered.items():
                    assert name != topic.name or not reading.cursor.is_settled(offset, offset + 1), f"{body!r} is lost"

    def teardown(self) -> None:
        """In the end everything with a receipt has reached everybody, and nothing is left."""
        self.commit()
        for _ in range(2000):
            if all(self._owed(which) <= model.seen.keys() for which, model in enumerate(self.models)):
                break
            self._go_round()
        else:
            raise AssertionError("something is never delivered")
        for _ in range(30):
            self._go_round()
            self.delete_what_is_settled()
        for topic in list(self.registry.topics.values()):
            self.registry.collect(topic, self.clock.ns, unused_since_ns=-1)
        self.registry.pages.forget_unused()
        self.registry.pages.forget_unused()
        assert self.budget.used_bytes == 0
        assert not self.disconnected
        self.store.close()
        with sqlite3.connect(self.directory / "stompbroker.db") as database:
            assert database.execute("SELECT count(*) FROM messages").fetchone() == (0,)
            assert database.execute("SELECT count(*) FROM redeliveries").fetchone() == (0,)
        database.close()
        shutil.rmtree(self.directory)

    def _go_round(self) -> None:
        self.let_time_pass()
        for which, model in enumerate(self.models):
            self.arrive(which, None)
            self._send(which)
            connection = model.connection
            assert connection is not None
            if connection.ack_mode is not AckMode.AUTO and connection.sent:
                acknowledge(connection.consumer, 1, len(connection.sent))
        self.commit()

    def _send(self, which: int) -> None:
        """What can be is stored, sent, and read by this subscriber."""
        self.commit()
        self.read_pages()
        self.distribute(6)
        self.write(which)

    def _owed(self, which: int) -> set[bytes]:
        pattern = parse_pattern(SUBSCRIBERS[which].pattern)
        return {body for body in self.receipted if pattern.matches(Pattern.keyed(body.split()[0].decode()))}

    def _is_waiting_or_free(self, connection: Connection, body: bytes) -> bool:
        for reading in connection.consumer.subscription.readings.values():
            numbers = [number for number, sent in enumerate(connection.sent, 1) if sent == body]
            for found, start, stop, _ in connection.consumer.sent.parts(numbers[-1], numbers[-1] + 1):
                if found is reading and not reading.cursor.is_settled(start, stop):
                    return not reading.cursor.is_in_flight(start)
        return False


def test_what_is_receipted_survives_any_order_of_events(migrated_store: Path) -> None:
    DurableMachine.template = migrated_store
    case = DurableMachine.TestCase
    case.settings = settings(max_examples=20, stateful_step_count=60, deadline=None)
    case().runTest()
