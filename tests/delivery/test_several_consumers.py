"""What is in flight belongs to a consumer: one that leaves, or answers late, touches nothing of another's.

No client can attach a second consumer today; the core can have several.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from stompbroker.changes import Answer, Unit, Verdict
from stompbroker.commitlog import Cursor
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
    answering,
    appending,
    parse_pattern,
    parse_topic_name,
    sending,
    withdrawing,
)
from stompbroker.delivery.reading_notes import Owners
from stompbroker.ids import FIRST_OFFSET, Offset
from stompbroker.memory_budget import MemoryBudget
from tests.support.answers import acknowledge, refuse
from tests.support.messages import make_message
from tests.support.sinks import ListSink

if TYPE_CHECKING:
    from stompbroker.delivery import Reading

TOPIC: Final = parse_topic_name("a")


@final
class Scene:
    """A durable subscription with as many consumers as one likes; nothing is stored."""

    def __init__(self, ack_mode: AckMode = AckMode.INDIVIDUAL, *, is_shared: bool = False) -> None:
        policy = TopicPolicy(delivery=DeliveryPolicy(first_delay_ms=1000, max_attempts=0))
        self.registry = Registry(TopicPolicies(policy), MemoryBudget(1 << 30), Totals(), max_topics=10, can_store=False)
        self.subscription = Subscription(
            name="s",
            destination="a",
            pattern=parse_pattern("a"),
            ack_mode=ack_mode,
            is_no_local=False,
            is_shared=is_shared,
            durability=Durability(
                Identity("", IdentityKind.NAMED, "client", "s"), 1, created_at_ns=0, last_seen_at_ns=0
            ),
        )
        self.registry.add_durable(self.subscription)
        self.now_ns = 0

    def attach(self, *, prefetch: int = 3) -> tuple[Consumer, ListSink]:
        sink = ListSink()
        credit = Credit(prefetch, max_waiting=1000)
        consumer = Consumer(self.subscription, ordinal=1, sink=sink, credit=credit, queue=self.registry.ready)
        self.subscription.consumers[consumer] = None
        self.registry.open(consumer, self.now_ns)
        return consumer, sink

    def publish(self, count: int) -> None:
        self.append(count)
        self.deliver()

    def append(self, count: int) -> None:
        topic = self.registry.topic(TOPIC, self.now_ns)
        first = topic.log.end_offset
        appending.append(topic, [make_message(b"%d" % (first + index)) for index in range(count)], self.now_ns)

    def deliver(self) -> None:
        while len(self.registry.ready):
            sending.deliver_slice(self.registry.ready.take(), self.now_ns)
        self.registry.check_invariants()

    def become_due(self) -> None:
        self.now_ns += 3600 * 1_000_000_000
        for entry in self.registry.redeliveries.take_due(self.now_ns, 1000):
            answering.become_due(entry)
        self.deliver()

    def leave(self, consumer: Consumer) -> None:
        self.registry.leave([consumer], self.now_ns)
        self.deliver()

    @property
    def reading(self) -> Reading:
        (reading,) = self.subscription.readings.values()
        return reading


def test_each_gets_what_the_other_did_not() -> None:
    scene = Scene()
    first, first_sink = scene.attach()
    second, second_sink = scene.attach()

    scene.publish(6)

    assert sorted(first_sink.bodies + second_sink.bodies) == [b"%d" % number for number in range(6)]
    assert (first.in_flight, second.in_flight) == (3, 3)


def test_one_that_has_no_room_by_its_turn_leaves_the_message_to_another() -> None:
    """A lone message wakes one, and meanwhile another subscription of its connection has filled the outbox."""
    scene = Scene(is_shared=True)
    (_, full), (_, worker) = scene.attach(), scene.attach()
    scene.append(1)
    full.take_room()

    scene.deliver()

    assert (full.bodies, worker.bodies) == ([], [b"0"])


def test_one_that_has_no_credit_by_its_turn_leaves_the_message_to_another() -> None:
    scene = Scene(is_shared=True)
    (busy, busy_sink), (_, worker_sink) = scene.attach(), scene.attach()
    scene.append(1)
    busy.credit.max_messages = 0

    scene.deliver()

    assert (busy_sink.bodies, worker_sink.bodies) == ([], [b"0"])


def test_what_one_has_failed_with_is_not_left_to_another_without_room() -> None:
    scene = Scene(is_shared=True)
    (_, full), (worker, worker_sink) = scene.attach(), scene.attach()
    full.take_room()
    scene.publish(1)
    refuse(worker, 1, Refusal(0))

    scene.become_due()

    assert (full.bodies, worker_sink.bodies) == ([], [b"0", b"0"])


def test_one_that_leaves_frees_its_own_and_nothing_else() -> None:
    scene = Scene()
    first, first_sink = scene.attach()
    _, second_sink = scene.attach(prefetch=10)
    scene.publish(3)
    taken = first_sink.bodies
    scene.publish(2)

    scene.leave(first)

    assert taken == [b"0", b"1", b"2"]
    assert second_sink.bodies == [b"3", b"4", b"0", b"1", b"2"]
    assert scene.reading.cursor.in_flight == 5


def test_a_stale_refusal_does_not_touch_what_another_has_in_flight() -> None:
    """Numbers belong to a consumer: the other's are lower and mean something else."""
    scene = Scene()
    first, _ = scene.attach()
    scene.publish(3)
    refuse(first, 1, Refusal(0))
    acknowledge(first, 2, 3)
    second, second_sink = scene.attach()
    first.credit.max_messages = 0
    scene.become_due()
    assert second_sink.bodies == [b"0"]

    refuse(first, 1, Refusal(0))

    assert second.in_flight == 1
    assert scene.subscription.waiting == 0
    assert scene.reading.cursor.is_in_flight(0)
    scene.registry.check_invariants()


def test_the_row_of_a_failure_goes_although_its_message_fails_again_after_a_move() -> None:
    """That it goes is still to be written when an operator has moved the subscription back."""
    scene = Scene()
    consumer, _ = scene.attach()
    scene.publish(1)
    refuse(consumer, 1, Refusal(0))
    scene.reading.failures[FIRST_OFFSET].is_stored = True
    scene.reading.changed_failures.clear()
    scene.leave(consumer)

    withdrawing.move_to(scene.reading, FIRST_OFFSET, 0)
    consumer, _ = scene.attach()
    scene.deliver()
    refuse(consumer, 1, Refusal(0))
    acknowledge(consumer, 1, 1)

    assert FIRST_OFFSET in scene.reading.changed_failures


def test_messages_refused_at_once_are_due_in_the_order_of_their_refusals_whatever_the_reasons() -> None:
    scene = Scene()
    consumer, _ = scene.attach(prefetch=4)
    scene.publish(4)

    answers = [Answer(consumer, Verdict.NACK, number, number, Refusal(0, "ab"[number % 2])) for number in (2, 1, 4, 3)]
    Unit([], answers).complete(0)

    due = scene.registry.redeliveries.take_due(10**12, 10)
    assert [entry.offset for entry in due] == [1, 0, 3, 2]


def test_of_two_that_acknowledge_a_message_at_once_the_first_settles_it() -> None:
    """One left it, another got it later, and both are consumers of one connection."""
    scene = Scene()
    first, _ = scene.attach(prefetch=2)
    scene.publish(2)
    scene.registry.leave([first], 0, leaving=Leaving.UNSUBSCRIBED)
    scene.now_ns = 1_000_000_000
    second, _ = scene.attach(prefetch=2)
    scene.deliver()

    answers = [Answer(first, Verdict.ACK, 2, 2), Answer(second, Verdict.ACK, 1, 1), Answer(first, Verdict.ACK, 1, 1)]
    Unit([], answers).complete(scene.now_ns)

    # Since it was sent: a second for what the first one had, nothing for what the second one has.
    assert scene.registry.times.to_acknowledgement.total == 1.0


def test_a_cumulative_answer_covers_what_this_consumer_was_sent() -> None:
    scene = Scene(AckMode.CLIENT)
    first, _ = scene.attach()
    second, second_sink = scene.attach()
    scene.publish(6)

    acknowledge(first, 3, 3)

    assert (first.in_flight, second.in_flight) == (0, 3)
    refuse(second, 2, Refusal(0))
    assert (second.in_flight, scene.subscription.waiting) == (1, 2)
    assert len(second_sink.bodies) == 3
    scene.registry.check_invariants()


def test_an_acknowledgement_by_the_one_before_frees_the_credit_of_the_one_that_has_it_now() -> None:
    scene = Scene()
    first, _ = scene.attach()
    scene.publish(1)
    refuse(first, 1, Refusal(0))
    second, second_sink = scene.attach(prefetch=1)
    first.credit.max_messages = 0
    scene.become_due()
    assert second_sink.bodies == [b"0"]

    acknowledge(first, 1, 1)

    assert second.in_flight == 0
    scene.publish(1)
    assert second_sink.bodies == [b"0", b"1"]


def test_a_refused_transaction_gives_each_what_it_had() -> None:
    scene = Scene()
    first, _ = scene.attach()
    second, _ = scene.attach()
    third, _ = scene.attach(prefetch=1)
    scene.publish(7)
    answers = [Answer(each, Verdict.ACK, 1, each.in_flight) for each in (first, second, third)]
    unit = Unit([], answers, is_transaction=True)
    unit.decide()
    unit.claim(0)
    assert (first.in_flight, second.in_flight, third.in_flight, scene.subscription.pending) == (0, 0, 0, 7)
    scene.registry.check_invariants()
    for each in (first, second, third):
        each.credit.max_messages = 3
    scene.leave(second)

    unit.refuse(0, "the test says so")

    assert (first.in_flight, third.in_flight) == (3, 1)
    assert scene.reading.cursor.free_count == 3
    scene.deliver()
    assert (first.in_flight, third.in_flight, scene.reading.cursor.free_count) == (3, 3, 1)


@final
class Owner:
    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


@final
class OwnersMachine(RuleBasedStateMachine):
    """Owners of what is in flight at a cursor, against a plain mapping."""

    OWNERS: Final = tuple(Owner(name) for name in "abc")

    @initialize()
    def begin(self) -> None:
        self.cursor = Cursor(FIRST_OFFSET)
        self.owners: Owners[Owner] = Owners()
        self.model: dict[int, Owner] = {}

    @rule(owner=st.sampled_from(OWNERS), count=st.integers(1, 5))
    def take_new(self, owner: Owner, count: int) -> None:
        start = self.cursor.next_offset
        self.owners.expect(owner, self.cursor)
        self.cursor.advance(Offset(start + count))
        self.owners.note(owner, start, start + count)
        self.model.update(dict.fromkeys(range(start, start + count), owner))

    @precondition(lambda self: self.cursor.free_count)
    @rule(owner=st.sampled_from(OWNERS), count=st.integers(1, 3))
    def take_again(self, owner: Owner, count: int) -> None:
        offsets = self.cursor.lowest_free(count)
        self.owners.expect(owner, self.cursor)
        self.cursor.take_free(offsets)
        for offset in offsets:
            self.owners.note(owner, offset, offset + 1)
            self.model[offset] = owner

    @rule(start=st.integers(0, 60), count=st.integers(1, 20))
    def settle(self, start: int, count: int) -> None:
        settlement = self.cursor.settle(start, start + count)
        lost = [self.model.pop(offset) for offset in range(start, start + count) if offset in self.model]
        taken = self.owners.take_away([(start, start + count)], settlement.in_flight)
        assert dict(taken) == {owner: lost.count(owner) for owner in set(lost)}

    @rule(owner=st.sampled_from(OWNERS))
    def leave(self, owner: Owner) -> None:
        lost = self.owners.leave(owner, self.cursor)
        offsets = [offset for start, stop in lost for offset in range(start, stop)]
        assert offsets == sorted(offset for offset, each in self.model.items() if each == owner)
        self.cursor.release_ranges(lost)
        for offset in offsets:
            del self.model[offset]

    @rule(start=st.integers(0, 60), count=st.integers(1, 20), remaining=st.sets(st.sampled_from(OWNERS)))
    def claim_and_undo(self, start: int, count: int, remaining: set[Owner]) -> None:
        ranges = self.cursor.unclaimed(start, start + count)
        if not ranges:
            return
        claimed = self.cursor.claim(ranges)
        held = dict(self.owners.split(claimed.in_flight_ranges))
        self.owners.take_away(claimed.in_flight_ranges, claimed.in_flight)
        self.it_agrees_but_for(claimed.in_flight_ranges)
        back = {owner: parts for owner, parts in held.items() if owner in remaining}
        lost = [part for owner, parts in held.items() if owner not in remaining for part in parts]
        self.owners.expect_all(back, self.cursor)
        self.cursor.give_back(claimed, lost)
        for owner, parts in back.items():
            for low, high in parts:
                self.owners.note(owner, low, high)
        for low, high in lost:
            for offset in range(low, high):
                del self.model[offset]

    def it_agrees_but_for(self, ranges: list[tuple[int, int]]) -> None:
        gone = {offset for start, stop in ranges for offset in range(start, stop)}
        for owner in self.OWNERS:
            expected = [offset for offset, each in self.model.items() if each == owner and offset not in gone]
            assert self.owners.count_of(owner, self.cursor) == len(expected)

    @invariant()
    def it_agrees_with_the_model(self) -> None:
        self.owners.check_invariants(self.cursor)
        self.it_agrees_but_for([])
        for offset, owner in self.model.items():
            assert [each for each in self.OWNERS if self.owners.has(each, offset)] == [owner]
            assert self.cursor.is_in_flight(offset)


TestOwners = OwnersMachine.TestCase
TestOwners.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
