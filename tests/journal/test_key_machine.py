"""Order by key in a group, with members that fail and leave, refused units and kills, over long random runs on a store.

What the members know is the model: of a key, one message is with one member at a time, and the first acknowledgements
of its messages come in the order in which they were published.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from stompbroker.changes import Answer, Appended, Created, Unit, Verdict
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
    withdrawing,
)
from stompbroker.ids import Offset
from stompbroker.memory_budget import MemoryBudget
from stompbroker.storage import open_store
from tests.journal.journal_under_test import journal_on
from tests.journal.test_durable_machine import HandClock
from tests.support.forming import write_batch
from tests.support.messages import make_message
from tests.support.sinks import ListSink

if TYPE_CHECKING:
    from stompbroker.clock import Clock
    from stompbroker.delivery import Reading

KEYS = ("a", "b", "c", None)
IDENTITY = Identity("", IdentityKind.GROUP, "jobs", "workers")
which_member = st.integers(0, 10)


class Member:
    """A consumer, and what it was sent and has not answered: body by delivery number."""

    def __init__(self, consumer: Consumer, sink: ListSink) -> None:
        self.consumer = consumer
        self.sink = sink
        self.held: dict[int, bytes] = {}


class KeyMachine(RuleBasedStateMachine):
    template: Path

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        shutil.copytree(self.template, self.directory, dirs_exist_ok=True)
        self.clock = HandClock()
        #: How many messages were published, and how many of those are stored.
        self.published = self.committed = 0
        #: By key, the bodies that are stored, and those of them that are done with, each in that order.
        self.stored: dict[str, list[bytes]] = {}
        self.done: dict[str, list[bytes]] = {}
        self.was_sent: set[bytes] = set()
        self.start()

    # The broker's life -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.store = open_store("", self.directory)
        self.budget = MemoryBudget(1 << 30)
        policy = TopicPolicy(window_messages=12, delivery=DeliveryPolicy(max_attempts=0))
        self.registry = Registry(TopicPolicies(policy), self.budget, Totals(), max_topics=10)
        self.journal = journal_on(self.store, self.registry, cast("Clock", self.clock))
        self.members: list[Member] = []
        #: Transactions on their way, with the bodies that they acknowledge.
        self.pending: list[tuple[Unit, list[bytes]]] = []

    @property
    def group(self) -> Subscription:
        return self.registry.durable[IDENTITY]

    @property
    def reading(self) -> Reading | None:
        return next(iter(self.group.readings.values()), None)

    @initialize()
    def create(self) -> None:
        group = Subscription(
            name="0",
            destination="jobs",
            pattern=parse_pattern("jobs"),
            ack_mode=AckMode.INDIVIDUAL,
            is_no_local=False,
            is_shared=True,
            durability=Durability(IDENTITY, self.journal.next_subscription_id(), created_at_ns=0, last_seen_at_ns=0),
        )
        self.registry.add_durable(group)
        self.journal.submit(Unit([Created(group, self.registry)]))
        self.commit()

    @rule()
    def commit(self) -> None:
        """Everything on its way is written and completed."""
        while not self.journal.is_idle or self.registry.unsaved:
            write_batch(self.journal, self.store.commit)

    @rule(is_written=st.booleans())
    def die(self, is_written: bool) -> None:
        """As if the process had been killed: whatever is not in the store is gone."""
        if is_written:
            self.commit()
        self.store.close()
        self.start()
        for key, bodies in self.stored.items():
            self.stored[key] = [body for body in bodies if int(body[1:]) <= self.committed]

    @rule(keys=st.lists(st.sampled_from(KEYS), max_size=12))
    def publish(self, keys: list[str | None]) -> None:
        topic = self.registry.topic(parse_topic_name("jobs"), self.clock.ns)
        if topic.gate.is_blocked or not keys:
            return
        messages = []
        for key in keys:
            self.published += 1
            body = b"%b%d" % ((key or "-").encode(), self.published)
            messages.append(make_message(body, number=self.published, group_key=key))
            if key is not None:
                self.stored.setdefault(key, []).append(body)
        last = self.published

        def note_committed() -> None:
            self.committed = last

        self.journal.submit(Unit([Appended(topic, messages)], then=note_committed))

    @rule(keys=st.lists(st.sampled_from(KEYS), max_size=12), prefetch=st.integers(2, 6), slices=st.integers(3, 9))
    def work(self, keys: list[str | None], prefetch: int, slices: int) -> None:
        """Something is published, stored and sent to somebody."""
        if not self.members:
            self.join(prefetch)
        self.publish(keys)
        self.commit()
        self.read_pages()
        self.distribute(slices)

    @rule(prefetch=st.integers(1, 6))
    def join(self, prefetch: int) -> None:
        if len(self.members) == 4:
            return
        sink = ListSink()
        consumer = Consumer(
            self.group, ordinal=1, sink=sink, credit=Credit(prefetch, max_waiting=6), queue=self.registry.ready
        )
        self.registry.claim(consumer, self.clock.ns)
        self.registry.open(consumer, self.clock.ns)
        self.members.append(Member(consumer, sink))

    @rule(which=which_member)
    def leave(self, which: int) -> None:
        if self.members:
            member = self.members.pop(which % len(self.members))
            self.registry.leave([member.consumer], self.clock.ns, leaving=Leaving.TAKEN_AWAY)

    # Deliveries ------------------------------------------------------------------------------------------------------

    @rule(slices=st.integers(1, 6))
    def distribute(self, slices: int) -> None:
        for _ in range(slices):
            if len(self.registry.ready):
                sending.deliver_slice(self.registry.ready.take(), self.clock.ns)
        for topic in self.registry.ready.take_moved():
            appending.try_to_unblock(topic, self.clock.ns)
        for member in self.members:
            self._read(member)

    def _read(self, member: Member) -> None:
        for messages, first_number, particulars in member.sink.delivered:
            for number, message in enumerate(messages, first_number):
                key = message.origin.group_key
                if key is not None:
                    others = [body for each in self.members for body in each.held.values()]
                    assert not any(body.startswith(key.encode()) for body in others), "two of a key are in flight"
                if particulars is not None and particulars.is_again:
                    assert message.body in self.was_sent, "what was only held up is not redelivered"
                self.was_sent.add(message.body)
                member.held[number] = message.body
        member.sink.delivered.clear()
        member.sink.send()

    @rule()
    def read_pages(self) -> None:
        while (request := next(iter(self.registry.pages.requests), None)) is not None:
            topic_id = request.topic.store_id
            assert topic_id is not None
            page = self.store.read_page(topic_id, request.start, request.stop, max_rows=3)
            self.registry.pages.put(request, page)

    @rule()
    def drop_the_window(self) -> None:
        for topic in self.registry.topics.values():
            topic.window.leave_to_store(topic.log.end_offset)

    # Answers ---------------------------------------------------------------------------------------------------------

    def _picked(self, which: int, choice: int) -> tuple[Member, int] | None:
        working = [member for member in self.members if member.held]
        if not working:
            return None
        member = working[which % len(working)]
        return member, list(member.held)[choice % len(member.held)]

    def _note_done(self, body: bytes) -> None:
        key = body[:1].decode()
        if key == "-" or body in self.done.get(key, []):
            return
        self.done.setdefault(key, []).append(body)
        assert self.done[key] == self.stored[key][: len(self.done[key])], "out of order"

    @rule(answers=st.lists(st.tuples(which_member, st.integers(0, 10)), min_size=1, max_size=4))
    def acknowledge(self, answers: list[tuple[int, int]]) -> None:
        for which, choice in answers:
            if picked := self._picked(which, choice):
                member, number = picked
                self._note_done(member.held.pop(number))
                self.journal.submit(Unit([], [Answer(member.consumer, Verdict.ACK, number, number)]))

    @rule(which=which_member, choice=st.integers(0, 10), delay=st.integers(0, 30))
    def refuse(self, which: int, choice: int, delay: int) -> None:
        if picked := self._picked(which, choice):
            member, number = picked
            del member.held[number]
            refusal = Refusal(self.clock.ns, "no", delay)
            self.journal.submit(Unit([], [Answer(member.consumer, Verdict.NACK, number, number, refusal)]))

    @rule(which=which_member, choice=st.integers(0, 10), verdict=st.sampled_from(Verdict))
    def begin_to_answer_in_a_transaction(self, which: int, choice: int, verdict: Verdict) -> None:
        if picked := self._picked(which, choice):
            member, number = picked
            body = member.held.pop(number)
            refusal = Refusal(self.clock.ns, "no", 5)
            unit = Unit([], [Answer(member.consumer, verdict, number, number, refusal)], is_transaction=True)
            unit.decide()
            unit.claim(self.clock.ns)
            self.pending.append((unit, [body] if verdict is Verdict.ACK else []))

    @rule(is_refused=st.booleans())
    def end_a_transaction(self, is_refused: bool) -> None:
        """Stored, or refused: then a member that is still there has its message again."""
        if not self.pending:
            return
        unit, bodies = self.pending.pop(0)
        if is_refused:
            unit.refuse(self.clock.ns, "it cannot be stored")
            self._take_back()
        else:
            unit.complete(self.clock.ns)
            for body in bodies:
                self._note_done(body)

    def _take_back(self) -> None:
        for member in self.members:
            for run in member.consumer.sent:
                for index in range(run.count):
                    offset, number = run.first_offset + index, run.first_number + index
                    if run.reading.is_in_flight_to(member.consumer, offset, number) and number not in member.held:
                        member.held[number] = self.body_at(run.reading, offset)

    def body_at(self, reading: Reading, offset: int) -> bytes:
        message = reading.remembered.get(Offset(offset)) or reading.topic.log.get(offset)
        if message is None:
            assert reading.topic.store_id is not None
            message = self.store.read_page(reading.topic.store_id, Offset(offset), Offset(offset + 1)).get(offset)
        assert message is not None
        return message.body

    # Time, and operators ---------------------------------------------------------------------------------------------

    @rule()
    def let_time_pass(self) -> None:
        self.clock.ns += 10
        for reading, offset in self.registry.redeliveries.take_due(self.clock.ns, 10_000):
            answering.become_due(Waiting(reading, offset))

    @rule(choice=st.integers(0, 50))
    def purge(self, choice: int) -> None:
        """Something unsettled, whatever state it is in; what is with a member may still be acknowledged."""
        reading = self.reading
        self.commit()
        if reading is None or self.pending:
            return
        offsets = [offset for start, stop in reading.unsettled_ranges() for offset in range(start, stop)]
        if not offsets:
            return
        offset = Offset(offsets[choice % len(offsets)])
        if reading.cursor.is_in_flight(offset):
            return
        body = self.body_at(reading, offset)
        message = make_message(body, number=1, group_key=None)
        withdrawing.skip(reading.topic, offset, message, self.clock.ns)
        key = body[:1].decode()
        if key != "-" and body not in self.done.get(key, []):
            self.stored[key].remove(body)
        self.commit()

    @rule()
    def collect(self) -> None:
        """Settled messages go, from memory and from the store."""
        for topic in list(self.registry.topics.values()):
            self.registry.collect(topic, self.clock.ns, unused_since_ns=-1)

    # What must be so -------------------------------------------------------------------------------------------------

    @invariant()
    def everything_agrees(self) -> None:
        self.registry.check_invariants()
        self.journal.check_invariants()

    def teardown(self) -> None:
        """In the end everything that is stored is delivered and settled."""
        while self.pending:
            self.end_a_transaction(is_refused=False)
        self.commit()
        for _ in range(1000):
            if all(self.done.get(key, []) == bodies for key, bodies in self.stored.items()) and self._is_empty():
                break
            self.let_time_pass()
            self.join(3)
            self.read_pages()
            self.distribute(6)
            for _ in range(sum(len(member.held) for member in self.members)):
                self.acknowledge([(0, 0)])
            self.commit()
        else:
            raise AssertionError("something is never delivered")
        assert self.reading is None or self.reading.lines is None
        self.store.close()
        shutil.rmtree(self.directory)

    def _is_empty(self) -> bool:
        return self.reading is None or self.reading.unsettled == 0


def test_of_a_key_messages_are_acknowledged_in_order_whatever_happens(migrated_store: Path) -> None:
    KeyMachine.template = migrated_store
    case = KeyMachine.TestCase
    case.settings = settings(max_examples=30, stateful_step_count=60, deadline=None)
    case().runTest()
