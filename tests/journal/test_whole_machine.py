"""The whole of delivery against a naive model, over long random runs on a real store.

Everything that can happen to a message: it is published (for a time, or unstored), sent, acknowledged, refused, not
answered in time, sent again, given up, put with the dead letters, redriven, expired, collected; consumers come (in any
ack mode), leave and are lost; the broker is killed before and after a commit. After every step the broker and the model
agree about every message for every subscription, about attempts and counts, and nothing that somebody still needs is
gone. In the end everything is settled, and nothing is left but dead letters.

Few rules that do much: mostly what can be sent is sent after each, so that there is something to answer.
"""

from __future__ import annotations

from enum import Enum
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar, cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from stompbroker.delivery import AckMode, Leaving
from tests.journal.delivery_model import MS
from tests.journal.modelled_broker import SUBSCRIBERS, TOPICS, Attachment, End, ModelledBroker

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

P = ParamSpec("P")
T = TypeVar("T")

EVERYBODY = range(len(SUBSCRIBERS))

choices = st.integers(0, 1000)
mostly = st.sampled_from([True, True, True, False])
delays_ms = st.sampled_from([None, None, 0, 1, 9])


class Then(Enum):
    """What comes after a step."""

    SENT = "everything is stored and sent"
    UNWRITTEN = "the same, but it is still in the broker's hands"
    NOTHING = "it is on its way"
    KILLED = "the broker is killed"
    KILLED_AFTER_COMMIT = "the broker is killed when it is stored, but before that shows"


thens = st.sampled_from([Then.SENT] * 11 + [Then.NOTHING, *Then])


class Saying(Enum):
    """What a subscriber says about a delivery."""

    ACK = "done"
    NACK = "again"
    NACK_POISON = "again, what has failed most often"
    NACK_FOR_GOOD = "requeue:false"


class SmallStep(Enum):
    COMMIT = "one batch"
    DISTRIBUTE = "one slice to one consumer"
    WRITE = "one slice to the kernel"
    READ_PAGE = "a page out of the store"
    PUT_PAGE = "to whoever waits for it"


class Upkeep(Enum):
    EXPIRE = "what the store knows to have expired"
    COLLECT = "a round of the collector"
    REMOVE_UNUSED = "the same, and topics that are unused go"
    TIDY_UP = "all of it, until there is nothing to do"


def step(method: Callable[P, T]) -> Callable[P, T]:
    """While it has not returned the machine is not sound: whatever it raised is to be told, and not what follows."""

    @wraps(method)
    def stepping(*args: P.args, **kwargs: P.kwargs) -> T:
        machine = cast("WholeMachine", args[0])
        machine.is_sound = False
        result = method(*args, **kwargs)
        machine.is_sound = True
        return result

    return stepping


class WholeMachine(RuleBasedStateMachine):
    template: Path

    def __init__(self) -> None:
        super().__init__()
        self.broker = ModelledBroker(self.template)
        self.is_sound = True

    @initialize(counts=st.lists(st.integers(1, 4), min_size=len(TOPICS), max_size=len(TOPICS)))
    @step
    def begin(self, counts: list[int]) -> None:
        for which in EVERYBODY:
            self.broker.arrive(which)
        self.broker.commit()
        for topic, count in zip(TOPICS, counts, strict=True):
            self.broker.publish(topic, count, ttl_ms=None, is_persistent=True)
        self.broker.send()

    @rule(
        topic=st.sampled_from(["a.x", *TOPICS]),
        count=st.integers(1, 6),
        ttl_ms=st.sampled_from([None, None, 4, 12]),
        is_persistent=mostly,
        then=thens,
    )
    @step
    def publish(self, topic: str, count: int, ttl_ms: int | None, is_persistent: bool, then: Then) -> None:
        self.broker.publish(topic, count, ttl_ms=ttl_ms, is_persistent=is_persistent)
        self._go_on(then)

    def _go_on(self, then: Then) -> None:
        self.broker.check()
        match then:
            case Then.SENT | Then.UNWRITTEN:
                self.broker.send(is_written=then is Then.SENT)
            case Then.KILLED:
                self.end(End.KILLED, EVERYBODY)
            case Then.KILLED_AFTER_COMMIT:
                self.end(End.KILLED_AFTER_COMMIT, EVERYBODY)
            case Then.NOTHING:
                pass

    # Answers ---------------------------------------------------------------------------------------------------------

    def _some_number(self, attachment: Attachment, choice: int) -> int:
        """Of a delivery that is in flight, or sometimes of any."""
        numbers = self.broker.in_flight(attachment)
        if not numbers or choice % 4 == 0:
            return choice % attachment.handed_over + 1
        return numbers[choice % len(numbers)]

    @precondition(lambda self: self.broker.answering)
    @rule(
        who=choices,
        picks=st.lists(st.tuples(choices, st.sampled_from(Saying)), min_size=1, max_size=5),
        width=st.sampled_from([0, 1, 3, 100]),
        delay_ms=delays_ms,
        wants_receipt=st.booleans(),
        then=thens,
    )
    @step
    def answer(
        self,
        who: int,
        picks: list[tuple[int, Saying]],
        width: int,
        delay_ms: int | None,
        wants_receipt: bool,
        then: Then,
    ) -> None:
        """One subscriber acknowledges and refuses; often what has failed most."""
        broker, attachment = self.broker, self.broker.answering[who % len(self.broker.answering)]
        for choice, saying in picks:
            number = self._some_number(attachment, choice)
            if saying is Saying.ACK:
                last = min(number + width, attachment.handed_over)
                broker.acknowledge(attachment, number, last, wants_receipt=wants_receipt)
            else:
                number = (broker.poison(attachment) if saying is Saying.NACK_POISON else None) or number
                refusal = broker.refusal(delay_ms, is_final=saying is Saying.NACK_FOR_GOOD)
                broker.refuse(attachment, number, refusal, wants_receipt=wants_receipt)
        self._go_on(then)

    @precondition(lambda self: self.broker.answering)
    @rule(
        who=choices,
        answers=st.lists(st.tuples(choices, st.booleans(), delays_ms), min_size=1, max_size=4),
        topic=st.sampled_from([None, *TOPICS]),
        then=thens,
    )
    @step
    def transact(self, who: int, answers: list[tuple[int, bool, int | None]], topic: str | None, then: Then) -> None:
        broker = self.broker
        attachment = broker.answering[who % len(broker.answering)]
        if topic is not None and topic in broker.registry.topics and broker.registry.topics[topic].gate.is_blocked:
            return
        meant = [
            (self._some_number(attachment, choice), None if is_ack else broker.refusal(delay_ms))
            for choice, is_ack, delay_ms in answers
        ]
        broker.transact(attachment, meant, topic)
        self._go_on(then)

    @precondition(lambda self: self.broker.departed)
    @rule(who=choices, choice=choices, is_ack=st.booleans())
    @step
    def answer_after_unsubscribing(self, who: int, choice: int, is_ack: bool) -> None:
        self._answer_late(self.broker.departed, who, choice, is_ack=is_ack)

    def _answer_late(self, departed: list[Attachment], who: int, choice: int, *, is_ack: bool) -> None:
        departed = [each for each in departed if each.handed_over and each.ack_mode is not AckMode.AUTO]
        if not departed:
            return
        attachment = departed[-1 - who % len(departed)]
        number = choice % attachment.handed_over + 1
        if is_ack:
            self.broker.acknowledge(attachment, number, number)
        elif not self.broker.is_stale(attachment, number):
            self.broker.refuse(attachment, number, self.broker.refusal())

    # Whatever else happens -------------------------------------------------------------------------------------------

    @rule(passed_ms=st.sampled_from([1, 1, 3, 10]), then=thens)
    @step
    def let_time_pass(self, passed_ms: int, then: Then) -> None:
        self.broker.let_time_pass(passed_ms)
        self._go_on(then)

    @rule(
        who=choices,
        leaving=st.sampled_from([*Leaving, Leaving.UNSUBSCRIBED]),
        returns=mostly,
        ack_mode=st.sampled_from([None, *AckMode]),
        late=st.lists(st.tuples(choices, st.booleans()), max_size=2),
        then=thens,
    )
    @step
    def come_and_go(
        self,
        who: int,
        leaving: Leaving,
        returns: bool,
        ack_mode: AckMode | None,
        late: list[tuple[int, bool]],
        then: Then,
    ) -> None:
        """Perhaps in another ack mode; and what it was sent before is answered then."""
        which = who % len(SUBSCRIBERS)
        if leaving is Leaving.LOST and self.broker.answering and who % 2:
            which = self.broker.answering[who % len(self.broker.answering)].which
        is_there = which in self.broker.attachments
        self.broker.leave(which, leaving)
        if returns or not is_there:
            self.broker.arrive(which, ack_mode)
        for choice, is_ack in late:
            self._answer_late([each for each in self.broker.departed if each.which == which], 0, choice, is_ack=is_ack)
        self._go_on(then)

    @rule(how=st.sampled_from(End), returning=st.sampled_from([EVERYBODY, EVERYBODY[::2], EVERYBODY[1::2]]))
    @step
    def end(self, how: End, returning: range) -> None:
        self.broker.end(how, returning)
        self.broker.check()
        self.broker.send()

    @precondition(lambda self: self.broker.answering)
    @rule(
        who=choices,
        answers=st.lists(st.tuples(choices, st.booleans()), max_size=3),
        passed_ms=st.sampled_from([0, 10]),
        culprits=st.sampled_from([1, 2, 3, 1023]),
        is_acknowledged=mostly,
        then=thens,
    )
    @step
    def refuse_units(
        self,
        who: int,
        answers: list[tuple[int, bool]],
        passed_ms: int,
        culprits: int,
        is_acknowledged: bool,
        then: Then,
    ) -> None:
        """The store refuses part of a batch, mostly with a transaction or dead letters in it. Until it is known which
        part, the subscriber whose transaction it is may acknowledge all it has."""
        broker = self.broker
        attachment = broker.answering[who % len(broker.answering)]
        if passed_ms:
            broker.let_time_pass(passed_ms)
        if answers and attachment.consumer.is_open:
            picked = [(self._some_number(attachment, choice), is_ack) for choice, is_ack in answers]
            meant = [(number, None if is_ack else broker.refusal()) for number, is_ack in picked]
            broker.transact(attachment, meant, None)

        def acknowledge() -> None:
            if is_acknowledged and attachment.consumer.is_open:
                broker.acknowledge(attachment, 1, attachment.handed_over)

        broker.refuse_units(culprits, acknowledge)
        self._go_on(then)

    @rule(small_step=st.sampled_from(SmallStep), choice=choices)
    @step
    def take_small_step(self, small_step: SmallStep, choice: int) -> None:
        match small_step:
            case SmallStep.COMMIT:
                self.broker.commit_one_batch()
            case SmallStep.DISTRIBUTE:
                self.broker.distribute(1)
            case SmallStep.WRITE:
                self.broker.write(choice % len(SUBSCRIBERS), 1)
            case SmallStep.READ_PAGE:
                self.broker.read_page()
            case SmallStep.PUT_PAGE:
                self.broker.put_page()

    @rule(upkeep=st.sampled_from(Upkeep))
    @step
    def look_after(self, upkeep: Upkeep) -> None:
        match upkeep:
            case Upkeep.EXPIRE:
                self.broker.let_time_pass(3)
                self.broker.expire()
            case Upkeep.TIDY_UP:
                self.broker.tidy_up()
            case _:
                self.broker.collect(removes_unused=upkeep is Upkeep.REMOVE_UNUSED)

    @precondition(lambda self: self.broker.world.letters and self.broker.redrive is None)
    @rule(choice=choices, to_subscriber=st.booleans(), then=thens)
    @step
    def redrive(self, choice: int, to_subscriber: bool, then: Then) -> None:
        self.broker.redrive_letter(choice, to_subscriber=to_subscriber)
        self._go_on(then)

    @invariant()
    @step
    def everything_agrees(self) -> None:
        self.broker.check()

    def teardown(self) -> None:
        try:
            if self.is_sound:
                self.broker.heal()
        finally:
            self.broker.close()


def test_every_message_takes_its_course(migrated_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stompbroker.changes.dead_letters.REFUSED_RETRY_NS", 5 * MS)
    # What is worth it only for many is done for few.
    monkeypatch.setattr("stompbroker.delivery.collecting.MIN_BETWEEN_HOLES", 1)
    monkeypatch.setattr("stompbroker.journal.changes.MIN_DELETED", 4)
    monkeypatch.setattr("stompbroker.journal.changes.MIN_BETWEEN_HOLES", 2)
    WholeMachine.template = migrated_store
    case = WholeMachine.TestCase
    case.settings = settings(max_examples=20, stateful_step_count=60, deadline=None)
    case().runTest()
