"""Publishing, delivering and answering against a naive model, over long random runs.

The model keeps, for every subscription, what became of every single message. After every step the two must agree, and
every invariant must hold.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from stompbroker.counting import Totals
from stompbroker.delivery import (
    AckMode,
    Consumer,
    Credit,
    DeliveryPolicy,
    Refusal,
    Registry,
    SlowSubscriber,
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
from tests.support.answers import acknowledge, refuse
from tests.support.messages import make_message
from tests.support.sinks import frame_sink

if TYPE_CHECKING:
    from stompbroker.errors import PeerViolation
    from stompbroker.sessions import Outbox

TOPICS = ("a.x", "a.y")


class Fate(Enum):
    UNSENT = auto()
    IN_FLIGHT = auto()
    WAITING = auto()
    FREE = auto()
    SETTLED = auto()


class Model:
    """One subscription, message by message."""

    def __init__(self, consumer: Consumer, outbox: Outbox) -> None:
        self.consumer = consumer
        self.outbox = outbox
        self.reader = FrameReader(Limits())
        self.reader.version = Version.V1_2
        self.fates: dict[bytes, Fate] = {}
        #: body of each delivery, in the order of their numbers.
        self.sent: list[bytes] = []
        self.failures: dict[bytes, int] = {}
        self.acked = 0

    @property
    def mode(self) -> AckMode:
        return self.consumer.subscription.ack_mode

    def with_fate(self, fate: Fate) -> list[bytes]:
        return [body for body, found in self.fates.items() if found is fate]

    def current_numbers(self) -> dict[int, bytes]:
        """Number → body of what is in flight under that number now."""
        latest = {body: number for number, body in enumerate(self.sent, 1)}
        return {number: body for body, number in latest.items() if self.fates[body] is Fate.IN_FLIGHT}


class DeliveryMachine(RuleBasedStateMachine):
    """Two topics, three subscriptions of every mode, one of them a wildcard; small windows and credits."""

    def __init__(self) -> None:
        super().__init__()
        self.budget = MemoryBudget(1 << 30)
        delivery = DeliveryPolicy(max_attempts=0)
        policy = TopicPolicy(slow_subscriber=SlowSubscriber.BLOCK, window_messages=40, delivery=delivery)
        self.registry = Registry(TopicPolicies(policy), self.budget, Totals(), max_topics=10)
        self.models: list[Model] = []
        self.published = 0
        self.now_ns = 0
        self.disconnected: list[PeerViolation] = []

    def subscribe(self, destination: str, mode: AckMode, prefetch: int) -> None:
        number = len(self.models) + 1
        subscription = Subscription(
            name=str(number),
            destination=destination,
            pattern=parse_pattern(destination),
            ack_mode=mode,
            is_no_local=False,
        )
        sink, outbox = frame_sink(subscription, self.budget, ordinal=number, disconnect=self.disconnected.append)
        consumer = Consumer(
            subscription,
            ordinal=number,
            sink=sink,
            credit=Credit(prefetch, max_waiting=8),
            queue=self.registry.ready,
        )
        self.registry.claim(consumer, self.now_ns)
        self.registry.open(consumer, self.now_ns)
        self.models.append(Model(consumer, outbox))

    @initialize()
    def subscribe_all(self) -> None:
        self.subscribe("a.x", AckMode.INDIVIDUAL, 7)
        self.subscribe("a.*", AckMode.CLIENT, 5)
        self.subscribe("a.>", AckMode.INDIVIDUAL, 60)
        self.subscribe("a.x", AckMode.AUTO, 4)

    @rule(topic=st.sampled_from(TOPICS), count=st.integers(1, 15))
    def publish(self, topic: str, count: int) -> None:
        store = self.registry.topic(parse_topic_name(topic), self.now_ns)
        if store.gate.is_blocked:
            return
        numbers = range(self.published + 1, self.published + 1 + count)
        self.published += count
        messages = [make_message(b"%b %d" % (topic.encode(), number), number=number) for number in numbers]
        appending.append(store, messages, self.now_ns)
        for model in self.models:
            if model.consumer.subscription.pattern.matches(store.destination):
                model.fates.update({message.body: Fate.UNSENT for message in messages})

    @rule(slices=st.integers(1, 6))
    def distribute(self, slices: int) -> None:
        for _ in range(slices):
            if len(self.registry.ready):
                sending.deliver_slice(self.registry.ready.take(), 0)
        for topic in self.registry.ready.take_moved():
            appending.try_to_unblock(topic, self.now_ns)

    @rule(which=st.integers(0, 3))
    def write(self, which: int) -> None:
        """The writer of one connection sends everything; the client reads it."""
        model = self.models[which]
        parts, when_sent = model.outbox.take()
        data = b"".join(parts)
        frames = model.reader.receive(data)
        model.outbox.mark_sent(len(data), when_sent)
        for frame in frames:
            fate, body = model.fates[frame.body], frame.body
            assert (frame.headers["redelivered"] == "true") == (body in model.sent)
            if fate is Fate.SETTLED:
                # A late ACK settled it while the redelivery was already on its way.
                assert body in model.sent
                model.sent.append(body)
                continue
            assert fate in (Fate.UNSENT, Fate.FREE), "nothing is sent twice without a reason"
            assert int(frame.headers["delivery-count"]) == model.failures.get(body, 0) + 1
            if fate is Fate.UNSENT:
                topic = body.split()[0]
                earlier = [other for other in model.with_fate(Fate.UNSENT) if other.split()[0] == topic]
                assert earlier[0] == body, "the first time, a topic's messages come in order"
            model.sent.append(body)
            if model.mode is AckMode.AUTO:
                model.fates[body] = Fate.SETTLED
                model.acked += 1
            else:
                assert frame.headers["ack"] == f"{model.consumer.ordinal}-{len(model.sent)}"
                model.fates[body] = Fate.IN_FLIGHT

    @rule(which=st.integers(0, 2), choice=st.integers(0, 1000), width=st.integers(0, 4))
    def acknowledge(self, which: int, choice: int, width: int) -> None:
        """Any numbers ever given, late ones too."""
        model = self.models[which]
        if not model.sent:
            return
        first = choice % len(model.sent) + 1
        last = min(first + width, len(model.sent))
        if model.mode is AckMode.CLIENT:
            bodies = [body for number, body in model.current_numbers().items() if number < first]
            bodies += model.sent[first - 1 : last]  # what is named is meant, whatever state it is in
        else:
            bodies = [model.sent[number - 1] for number in range(first, last + 1)]
        for body in bodies:
            if model.fates[body] is not Fate.SETTLED:
                model.fates[body] = Fate.SETTLED
                model.acked += 1
        acknowledge(model.consumer, first, last)

    @rule(which=st.integers(0, 2), choice=st.integers(0, 1000), delay=st.integers(0, 3))
    def refuse(self, which: int, choice: int, delay: int) -> None:
        model = self.models[which]
        if not model.sent:
            return
        number = choice % len(model.sent) + 1
        current = model.current_numbers()
        if model.mode is AckMode.CLIENT:
            refused = [body for other, body in current.items() if other <= number]
        else:
            refused = [current[number]] if number in current else []
        for body in refused:
            model.fates[body] = Fate.WAITING
            model.failures[body] = model.failures.get(body, 0) + 1
        refuse(model.consumer, number, Refusal(self.now_ns, "no", delay_ns=delay))

    @rule()
    def let_time_pass(self) -> None:
        """Everything set aside becomes due."""
        self.now_ns += 10
        for reading, offset in self.registry.redeliveries.take_due(self.now_ns, 10_000):
            answering.become_due(Waiting(reading, offset))
        for model in self.models:
            model.fates.update(dict.fromkeys(model.with_fate(Fate.WAITING), Fate.FREE))

    @rule(which=st.integers(0, 1))
    def collect(self, which: int) -> None:
        topic = self.registry.topics.get(TOPICS[which])
        if topic is not None:
            self.registry.collect(topic, self.now_ns, unused_since_ns=-1)

    @invariant()
    def everything_agrees(self) -> None:
        self.registry.check_invariants()
        for model in self.models:
            consumer, counters = model.consumer, model.consumer.subscription.counters
            in_outbox = model.outbox.size_bytes > 0
            if model.mode is AckMode.AUTO:  # settled when they are handed over
                assert counters.acked == counters.delivered
            if model.mode is not AckMode.AUTO or not in_outbox:
                assert counters.acked == model.acked
            assert consumer.subscription.waiting == len(model.with_fate(Fate.WAITING))
            assert consumer.in_flight <= consumer.credit.max_messages or model.mode is AckMode.AUTO
            if not in_outbox:
                assert consumer.in_flight == len(model.with_fate(Fate.IN_FLIGHT))
                readings = consumer.subscription.readings.values()
                assert sum(reading.unsent for reading in readings) == len(model.with_fate(Fate.UNSENT))
                assert counters.delivered == len(model.sent)

    def teardown(self) -> None:
        """In the end everything can be delivered: nothing that was published to somebody has been lost."""
        for _ in range(2000):
            if all(fate is Fate.SETTLED for model in self.models for fate in model.fates.values()):
                break
            self.let_time_pass()
            self.distribute(6)
            for which, model in enumerate(self.models):
                self.write(which)
                if model.mode is not AckMode.AUTO:
                    for number in sorted(model.current_numbers()):
                        acknowledge(model.consumer, number, number)
                    for body in model.with_fate(Fate.IN_FLIGHT):
                        model.fates[body] = Fate.SETTLED
                        model.acked += 1
        else:
            raise AssertionError("something is never delivered")
        for topic in list(self.registry.topics.values()):
            assert not topic.gate.is_blocked
            self.registry.collect(topic, self.now_ns, unused_since_ns=-1)
            assert topic.log.message_count == 0, "what everybody has settled is collected"
        assert self.budget.used_bytes == 0
        assert not self.disconnected


DeliveryMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=80, deadline=None)
TestDelivery = DeliveryMachine.TestCase
