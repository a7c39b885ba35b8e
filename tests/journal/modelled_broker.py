"""A broker on a real store, driven by hand step by step, and beside it the model of what becomes of every message.

Law: every step is taken by both, and what the broker does that the model cannot foresee is looked at afterwards: what
it sends, buries and passes over. Nothing is awaited: what the actors do is done here, by the same calls, in
the order the test wants. `check` compares the two, message by message.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections import deque
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar, cast

from stompbroker.changes import (
    Answer,
    Appended,
    Created,
    DeadLetters,
    Outcomes,
    PendingDeliveries,
    Purged,
    Queues,
    Removed,
    SettledDeliveries,
    Unit,
    Verdict,
    provenance_of,
    redriven,
)
from stompbroker.counting import Totals
from stompbroker.delivery import (
    AckMode,
    Consumer,
    Credit,
    DeliveryPolicy,
    DeliveryWishes,
    Durability,
    Identity,
    IdentityKind,
    Leaving,
    Records,
    Refusal,
    Registry,
    Retention,
    Subscription,
    TopicPolicies,
    TopicPolicy,
    WhenUsedUp,
    answering,
    appending,
    parse_pattern,
    parse_topic_name,
    sending,
    withdrawing,
)
from stompbroker.ids import Offset
from stompbroker.journal import StoreJournal, restore
from stompbroker.ledger.exports import Exports
from stompbroker.ledger.records import Outcome
from stompbroker.memory_budget import MemoryBudget
from stompbroker.message import Message, MessageIds, Origin
from stompbroker.stomp import FrameReader, Limits, Version, message_tail, tail_headers
from stompbroker.storage import open_store
from tests.journal.delivery_model import (
    FIRST_DELAY_MS,
    MAX_DELAY_MS,
    MS,
    UNSETTLED,
    Attempt,
    Course,
    Expected,
    Fate,
    Published,
    Subscriber,
    World,
)
from tests.journal.test_durable_machine import HandClock
from tests.support.forming import form
from tests.support.sinks import frame_sink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from stompbroker.changes import Effect, Journal
    from stompbroker.clock import Clock
    from stompbroker.commitlog import Log
    from stompbroker.delivery import Gate, PageRequest, Reading, Topic, Waiting
    from stompbroker.journal import Formed
    from stompbroker.log_throttle import LogThrottle
    from stompbroker.sessions import Outbox
    from stompbroker.stomp import Frame

E = TypeVar("E", bound="Effect")

#: The last one is nobody's own: it may be removed.
TOPICS = ("a.x", "a.y", "a.z")
#: Where publishers are told what became of their messages, of which every other one asks. It keeps all of that.
TOLD = "told"

SUBSCRIBERS = (
    Subscriber("exact", "a.x", AckMode.INDIVIDUAL, 12, max_attempts=3, max_waiting=6),
    Subscriber("cumulative", "a.*", AckMode.CLIENT, 8, max_attempts=2, when_used_up=WhenUsedUp.DISCARD),
    Subscriber("in time", "a.>", AckMode.INDIVIDUAL, 30, max_waiting=40, max_attempts=2, ack_deadline_ms=6),
    Subscriber("strict", "a.*", AckMode.INDIVIDUAL, 1, max_waiting=1, max_attempts=2, is_ordered=True),
    Subscriber("evicted", "a.x", AckMode.INDIVIDUAL, 6, max_attempts=2, when_used_up=WhenUsedUp.EVICT),
    Subscriber("auto", "a.y", AckMode.AUTO, 10),
    Subscriber("undertaker", "DLQ.>", AckMode.INDIVIDUAL, 3, max_attempts=2),
)


#: What the ledger says of each fate; of what is not settled nothing.
_OUTCOMES: Final[dict[Fate, set[Outcome | None]]] = {
    Fate.ACKED: {Outcome.ACKED, Outcome.SENT},
    Fate.DEAD: {Outcome.DEAD},
    Fate.DISCARDED: {Outcome.DISCARDED},
    Fate.EXPIRED: {Outcome.EXPIRED},
    Fate.PASSED_OVER: {None, Outcome.SKIPPED},
}


#: What publishers are told of.
_TOLD: Final = {
    Outcome.ACKED,
    Outcome.SENT,
    Outcome.DEAD,
    Outcome.DISCARDED,
    Outcome.EXPIRED,
    Outcome.DROPPED,
}


class End(Enum):
    """How a broker ends."""

    IN_ORDER = "in order"
    KILLED = "killed"
    KILLED_AFTER_COMMIT = "killed between a commit and what follows from it"


class Slice(NamedTuple):
    """What was handed to an outbox at once, and settles when it has been sent."""

    size_bytes: int
    when_sent: list[Callable[[], None]]
    deliveries: int


class Attachment:
    """A subscriber's connection, and what its client knows."""

    def __init__(self, which: int, ack_mode: AckMode, consumer: Consumer, outbox: Outbox) -> None:
        self.which = which
        self.ack_mode = ack_mode
        self.consumer = consumer
        self.outbox = outbox
        self.reader = FrameReader(Limits())
        self.reader.version = Version.V1_2
        #: What was sent, in the order of the numbers; and how many of these have left the broker's hands.
        self.sent: list[Published] = []
        self.handed_over = 0
        self.slices: deque[Slice] = deque()
        #: In `client` mode: up to which number everything was answered.
        self.answered_up_to = 0

    @property
    def plan(self) -> Subscriber:
        return SUBSCRIBERS[self.which]

    @property
    def number(self) -> int:
        """Of the subscription, in the store."""
        assert self.consumer.subscription.store_id is not None
        return self.consumer.subscription.store_id


class Intent(NamedTuple):
    """What an answer in a transaction means, from when it was given: all of it is pending."""

    number: int
    meant: list[Published]
    #: None for an ACK.
    refusal: Refusal | None


class WatchedJournal:
    """The journal as dead letters see it: the machine sees what they hand in."""

    def __init__(self, journal: StoreJournal, submitted: list[Unit]) -> None:
        self._journal = journal
        self._submitted = submitted

    @property
    def gate(self) -> Gate:
        return self._journal.gate

    def submit(self, unit: Unit) -> None:
        self._submitted.append(unit)
        self._journal.submit(unit)


class Unthrottled:
    """There is no event loop to end an interval."""

    def log(self, *_: object, **__: object) -> None:
        pass


class ModelledBroker:
    def __init__(self, template: Path) -> None:
        self.directory = Path(tempfile.mkdtemp())
        shutil.copytree(template, self.directory, dirs_exist_ok=True)
        self.clock = HandClock()
        self.clock.ns = 1000 * MS
        self.published = 0
        #: What the ledger says, by subscription and message id.
        self.ledger: dict[tuple[str, str], Outcome] = {}
        #: Whose publishers ask; and of what the store has not taken that they are told.
        self.asking: set[str] = set()
        self.lost: set[tuple[str, str]] = set()
        #: What is so, and what the next start would find.
        self.world = World()
        self.stored = World()
        self.attachments: dict[int, Attachment] = {}
        #: Those that have unsubscribed: what their clients say still counts.
        self.departed: list[Attachment] = []
        self.store = open_store("", self.directory)
        self.database = sqlite3.connect(self.directory / "stompbroker.db")
        ownership = self.store.take_ownership("the test")
        self.store_name, self.starts, self.last_batch = ownership.store_id, ownership.start_number, ownership.batch
        self.start()

    # The broker's life -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """On a store that stays open, for speed: it keeps nothing in memory between two calls."""
        self.budget = MemoryBudget(1 << 30)
        delivery = DeliveryPolicy(first_delay_ms=FIRST_DELAY_MS, max_delay_ms=MAX_DELAY_MS, jitter=0.0, max_attempts=0)
        policies = TopicPolicies(
            TopicPolicy(window_messages=12, delivery=delivery),
            ((parse_topic_name(TOLD), TopicPolicy(retention=Retention(age_s=1_000_000.0))),),
            dead_letters=TopicPolicy(retention=Retention(age_s=1_000_000.0), delivery=delivery),
        )
        self.registry = Registry(policies, self.budget, Totals(), max_topics=10, records=Records(lambda: self.clock.ns))
        kept = self.store.load()
        restore(kept, self.registry, self.clock.ns)
        self.numbered = self._durable()
        self.journal = StoreJournal(
            self.registry,
            cast("Clock", self.clock),
            self.budget,
            self.starts,
            engine="sqlite",
            last_batch_number=self.last_batch,
            exports=Exports(
                kept.exports,
                kept.gathered,
                lambda: None,
                store_id=self.store_name,
                start_number=self.starts,
                export_bytes=1 << 30,
            ),
        )
        self.message_ids = MessageIds(self.store_name, self.starts)
        self.submitted: list[Unit] = []
        watched = cast("Journal", WatchedJournal(self.journal, self.submitted))
        self.dead_letters = DeadLetters(
            self.registry, watched, Queues(self.registry, watched), self.message_ids, cast("Clock", self.clock)
        )
        outcomes = Outcomes(
            self.registry,
            watched,
            Queues(self.registry, watched),
            self.message_ids,
            cast("Clock", self.clock),
            Totals(),
            cast("LogThrottle", Unthrottled()),
        )
        self.registry.telling.render, self.journal.outcomes = outcomes.render, outcomes
        #: What the answers in transactions on their way mean.
        self.intents: dict[Unit, list[Intent]] = {}
        self.redrive: Unit | None = None
        self.pages_in_hand: list[tuple[PageRequest, Log]] = []
        self.disconnected: list[object] = []

    def restart(self) -> None:
        """As if the process had been killed: whatever is not in the store is gone."""
        self.attachments.clear()
        self.departed.clear()
        self.starts += 1
        self.world = self.stored.copy()
        self.start()
        self._take_up_world()

    def _take_up_world(self) -> None:
        """What a start finds must be what was stored; what was in flight may have been noted as sent, or not."""
        assert self._durable().keys() == self.world.subscriptions.keys()
        for expected in self.world.subscriptions.values():
            expected.forget_counts()
            expected.is_evicted = expected.is_leaving = False
            expected.deferred = ()
            for published, course in expected.courses.items():
                course.pending_for = None
                course.latest = None
                course.is_overdue = False  # which is not stored
                course.may_be_lost = course.may_be_lost or not published.is_persistent
                reading = self._reading(expected, published)
                was_sent = reading is not None and published.offset < reading.cursor.next_offset
                is_given_up = course.fate is Fate.PASSED_OVER or (course.fate is Fate.EXPIRED and not was_sent)
                found = self._fate(reading, published.offset)
                if is_given_up and found is not None:
                    # It was given up in memory only, though it may be gone from the store.
                    course.fate = found
                    course.may_be_lost = True
                elif not course.fate.is_settled and course.fate is not Fate.UNSENT:
                    course.fate = Fate.WAITING if course.failed else Fate.FREE if was_sent else Fate.UNSENT
            self._look_at_passed_over(expected)

    # Publishing ------------------------------------------------------------------------------------------------------

    def publish(self, topic: str, count: int, ttl_ms: int | None, is_persistent: bool) -> None:
        store = self.registry.topic(parse_topic_name(topic), self.clock.ns)
        if store.gate.is_blocked:
            return
        messages = [self._message(topic, ttl_ms, is_persistent=is_persistent) for _ in range(count)]
        store.is_choosy = store.is_choosy or ttl_ms is not None
        self.journal.submit(Unit([Appended(store, messages)]))

    def _message(self, topic: str, ttl_ms: int | None = None, *, is_persistent: bool = True) -> Message:
        self.published += 1
        body = b"%b %d" % (topic.encode(), self.published)
        message_id = self.message_ids.make()
        if self.published % 2:
            self.asking.add(message_id.decode())
            self.registry.topic(parse_topic_name(topic), self.clock.ns).is_asking = True
        tail = message_tail(message_id, b"destination:/topic/%b\n" % topic.encode(), body)
        lifetime_ns = None if ttl_ms is None else ttl_ms * MS
        origin = Origin(
            "publisher",
            is_plain=True,
            is_persistent=is_persistent,
            lifetime_ns=lifetime_ns,
            outcome_to=TOLD if self.published % 2 else None,
        )
        return Message(len(body), tail, origin, self.clock.ns)

    # The journal -----------------------------------------------------------------------------------------------------

    def commit(self) -> None:
        """Everything on its way is written and completed."""
        while not self.journal.is_idle or self.registry.unsaved:
            self._complete(*self._write_batch())

    def commit_one_batch(self) -> None:
        """If there is nothing to write, what can be collected may go."""
        self._complete(*self._write_batch())

    def end(self, how: End, returning: Iterable[int]) -> None:
        """These subscribers return at once."""
        if how is End.IN_ORDER:
            for which in list(self.attachments):
                self.leave(which, Leaving.TAKEN_AWAY)
            self.commit()
        elif how is End.KILLED_AFTER_COMMIT:
            self._write_batch()
        self.restart()
        for which in returning:
            self.arrive(which)

    def refuse_units(self, choice: int, meanwhile: Callable[[], None]) -> None:
        """The store refuses some units of the next batch and takes the others. While it is asked which, others act."""
        formed = form(self.journal)
        formed_from = self.world.copy()
        meanwhile()
        chosen = [unit for index, unit in enumerate(formed.units) if choice >> index % 10 & 1]
        #: Of units that only tell publishers, the store is to blame for nothing else.
        formed.mute.update(unit for unit in chosen if unit.effects and unit.effects == unit.told)
        culprits = [unit for unit in chosen if unit not in formed.mute]
        self.lost |= {_told_of(message) for unit in formed.mute for told in unit.told for message in told.messages}
        if chosen:
            self.journal.refuse(formed, set(culprits), "the test says so")
            self._forget_refused(culprits)
        found = (self.stored if self.journal._has_left_out else formed_from).copy()
        self._look_at_moved_since(formed, found)
        self._complete(*self._write_batch(formed, found))

    def _look_at_moved_since(self, formed: Formed, found: World) -> None:
        """Of what was acknowledged while the store was asked, the batch has what its records say."""
        recorded = {
            (party.subscription, message.message_id.decode())
            for party, settled in formed.accounts
            for run in settled
            for message in run.messages
        }
        for expected in found.subscriptions.values():
            now, key = self.world.subscriptions.get(expected.number), self.numbered[expected.number].key
            for published in expected.courses:
                course = None if now is None else now.courses.get(published)
                if course is not None and course.fate is Fate.ACKED and (key, published.message_id) in recorded:
                    expected.settle([published])
                    # Its failure may still be stored: a start takes no notice of one that is settled.
                    expected.courses[published].may_be_lost = True

    def _forget_refused(self, culprits: list[Unit]) -> None:
        """Nothing of what these units would have done has happened."""
        for unit in culprits:
            self.intents.pop(unit, None)
            if unit is self.redrive:
                self.redrive = None
            for expected in self.world.subscriptions.values():
                for course in expected.courses.values():
                    if course.pending_for is unit and course.fate is Fate.IN_FLIGHT:
                        self._take_back(expected, course)
                self._end_claims(expected, unit)
                expected.deferred = tuple(each for each in expected.deferred if each[1] is not unit)
            for removed in _effects(unit, Removed):
                expected = self.world.subscriptions[removed.subscription.store_id or 0]
                expected.is_leaving = expected.is_evicted = False
                self._repeat_deferred(expected)
        self._look_at_submitted()

    def _take_back(self, expected: Expected, course: Course) -> None:
        """In flight as before, with its whole time to be answered."""
        for attachment in self.attachments.values():
            if attachment.number == expected.number:
                attachment.answered_up_to = 0
                if expected.plan.ack_deadline_ms and attachment.ack_mode is not AckMode.AUTO:
                    course.deadline_ns = self.clock.ns + expected.plan.ack_deadline_ms * MS

    def _end_claims(self, expected: Expected, unit: Unit) -> None:
        expected.end_claims(unit)
        self._repeat_deferred(expected)

    def _repeat_deferred(self, expected: Expected) -> None:
        deferred, expected.deferred = expected.deferred, ()
        for published, unit in deferred:
            if unit is None:
                expected.acknowledge([published])
            elif expected.claim(published, unit):
                self.intents[cast("Unit", unit)].append(Intent(expected.number, [published], None))

    def _look_at_submitted(self) -> None:
        """Dead letters that are on their way: their messages are pending."""
        for unit in self.submitted:
            for effect in _effects(unit, PendingDeliveries):
                assert effect.reading.subscription.store_id is not None
                expected = self.world.subscriptions[effect.reading.subscription.store_id]
                ((start, _),) = effect.claimed.ranges
                expected.courses[self._at(expected, effect.reading.topic.name, start)].pending_for = unit
            for removed in _effects(unit, Removed):
                self.world.subscriptions[removed.subscription.store_id or 0].is_leaving = True
        self.submitted.clear()

    def _write_batch(
        self, formed: Formed | None = None, found: World | None = None
    ) -> tuple[Formed, list[tuple[Unit, dict[Topic, int]]]]:
        """A batch is in the store: the next start would find the world as it was when the batch was formed (`found`),
        or as it was stored before if the batch has left out what has changed since, and what its units do."""
        if formed is None:
            formed = form(self.journal)
        self.store.commit(formed.batch)
        self.last_batch = formed.batch.number
        ends: dict[Topic, int] = {}
        effects = []
        for unit in formed.units:
            firsts = {}
            for appended in _effects(unit, Appended):
                topic = appended.topic
                firsts[topic] = ends.setdefault(topic, topic.log.end_offset)
                ends[topic] += len(appended.messages)
            effects.append((unit, firsts))
        self.stored = found or (self.stored if self.journal._has_left_out else self.world).copy()
        for unit, firsts in effects:
            self._take_effect(self.stored, unit, firsts)
        assert self._stored_letters() == self.stored.letters
        self._check_stored_failures()
        self._check_ledger(formed)
        return formed, effects

    def _complete(self, formed: Formed, effects: list[tuple[Unit, dict[Topic, int]]]) -> None:
        self.journal.note_written(formed)
        for unit, firsts in effects:
            assert all(topic.log.end_offset == first for topic, first in firsts.items())
            self.journal.complete_one(unit)
            self._take_effect(self.world, unit, firsts)
            for expected in self.world.subscriptions.values():
                self._end_claims(expected, unit)
            self.intents.pop(unit, None)
            if unit is self.redrive:
                self.redrive = None
        self.journal.finish()

    def _take_effect(self, world: World, unit: Unit, firsts: dict[Topic, int]) -> None:
        attached = {attachment.number for attachment in self.attachments.values()}
        for appended in _effects(unit, Appended):
            topic = appended.topic
            for offset, message in enumerate(appended.messages, firsts[topic]):
                if topic.is_of_dead_letters:
                    provenance = provenance_of(message)
                    assert provenance is not None
                    assert provenance.subscription_number is not None
                    world.add_letter((topic.name, offset), (provenance.message_id, provenance.subscription_number))
                world.publish(_published(topic, offset, message), attached)
        for number, meant, refusal in self.intents.get(unit, []):
            expected = world.subscriptions.get(number)
            if expected is None:
                continue
            if refusal is None:
                expected.settle(meant)
            else:
                expected.set_aside(meant, refusal)
        for settled in _effects(unit, SettledDeliveries):
            number = settled.reading.subscription.store_id or 0
            if number in world.subscriptions and settled.outcome is Outcome.DEAD:
                ((start, _),) = settled.claimed.ranges
                world.bury(number, self._at(world.subscriptions[number], settled.reading.topic.name, start))
        for purged in _effects(unit, Purged):
            for offset in purged.messages:
                if purged.topic.is_of_dead_letters:
                    world.purge(purged.topic.name, offset)
        for removed in _effects(unit, Removed):
            assert removed.subscription.store_id is not None
            world.subscriptions.pop(removed.subscription.store_id, None)
        for created in _effects(unit, Created):
            subscription = created.subscription
            assert subscription.store_id is not None
            (plan,) = [plan for plan in SUBSCRIBERS if plan.name == subscription.name]
            world.subscriptions[subscription.store_id] = Expected(subscription.store_id, plan)

    # Sending ---------------------------------------------------------------------------------------------------------

    def send(self, *, is_written: bool = True) -> None:
        """Whatever can be is stored, sent, and handed to the kernel."""
        self.commit()
        while self.registry.pages.requests:
            self.read_page()
            self.put_page()
        self.distribute(12)
        for which in range(len(SUBSCRIBERS) if is_written else 0):
            self.write(which, 12)

    def distribute(self, slices: int) -> None:
        for _ in range(slices):
            if len(self.registry.ready):
                consumer = self.registry.ready.take()
                sending.deliver_slice(consumer, self.clock.ns)
                self._look_at_deliveries(consumer)
        for topic in self.registry.ready.take_moved():
            appending.try_to_unblock(topic, self.clock.ns)

    def _look_at_deliveries(self, consumer: Consumer) -> None:
        found = [each for each in self.attachments.values() if each.consumer is consumer]
        if not found:
            return
        (attachment,) = found
        expected = self.world.subscriptions[attachment.number]
        parts, when_sent = attachment.outbox.take()
        data = b"".join(parts)
        frames = attachment.reader.receive(data)
        while attachment.reader.has_more:
            frames += attachment.reader.receive(b"")
        for frame in frames:
            self._look_at_delivery(attachment, expected, frame)
        self._look_at_passed_over(expected)
        if frames:
            attachment.slices.append(Slice(len(data), when_sent, len(frames)))
        if attachment.ack_mode is not AckMode.AUTO:
            assert len(expected.with_fate(Fate.IN_FLIGHT)) <= attachment.plan.prefetch

    def _look_at_delivery(self, attachment: Attachment, expected: Expected, frame: Frame) -> None:
        now_ns, plan = self.clock.ns, attachment.plan
        published = expected.find(frame.headers["message-id"])
        course = expected.courses[published]
        is_again = course.fate is Fate.FREE
        assert not expected.wanted_before(published, now_ns, Fate.FREE), "what may go again goes in order, and first"
        if not is_again:
            assert not expected.wanted_before(published, now_ns, Fate.UNSENT), "the first time, messages come in order"
            may_wait = len(expected.with_fate(Fate.WAITING, Fate.IN_FLIGHT))
            assert attachment.ack_mode is AckMode.AUTO or may_wait < plan.max_waiting, (
                "if all is refused, too much waits"
            )
        if plan.is_ordered:
            assert not expected.with_fate(Fate.IN_FLIGHT), "one after the other"
            assert not expected.with_fate(Fate.WAITING), "what comes later waits behind it"
            freed = [other for other in expected.with_fate(Fate.FREE) if expected.must_be_kept(other, now_ns)]
            assert is_again or not freed, "what may go again goes first"
        headers = frame.headers
        assert headers["redelivered"] == ("true" if is_again else "false")
        assert int(headers["delivery-count"]) == course.failed + 1
        assert headers.get("redelivery-reason", "") == (course.reason if is_again else "")
        attachment.sent.append(published)
        if attachment.ack_mode is not AckMode.AUTO:
            assert headers["ack"] == f"{attachment.consumer.ordinal}-{len(attachment.sent)}"
        attempt = Attempt(attachment.consumer, len(attachment.sent))
        expected.deliver(published, attempt, now_ns, is_answered=attachment.ack_mode is not AckMode.AUTO)

    def _look_at_passed_over(self, expected: Expected) -> None:
        """The broker may have settled what it need not deliver."""
        for published, course in expected.courses.items():
            if not course.fate.is_settled and self._is_settled(expected, published):
                expected.pass_over(published, self.clock.ns)

    def write(self, which: int, slices: int) -> None:
        """The writer of one connection hands some of it to the kernel; the client reads it."""
        attachment = self.attachments.get(which)
        if attachment is None:
            return
        expected = self.world.subscriptions[attachment.number]
        for _ in range(min(slices, len(attachment.slices))):
            size_bytes, delivered, deliveries = attachment.slices.popleft()
            first = attachment.handed_over
            attachment.handed_over += deliveries
            attachment.outbox.mark_sent(size_bytes, delivered)
            if attachment.ack_mode is AckMode.AUTO:
                expected.acknowledge(attachment.sent[first : attachment.handed_over])

    def read_page(self) -> None:
        """In the reader's thread: what comes of it may have changed by then."""
        request = next(iter(self.registry.pages.requests), None)
        if request is None or self.pages_in_hand:
            return
        if request.topic.is_removed:
            self.registry.pages.give_up(request)
            return
        assert request.topic.store_id is not None
        page = self.store.read_page(request.topic.store_id, request.start, request.stop, max_rows=5)
        self.pages_in_hand.append((request, page))

    def put_page(self) -> None:
        while self.pages_in_hand:
            self.registry.pages.put(*self.pages_in_hand.pop())

    # Answering -------------------------------------------------------------------------------------------------------

    @property
    def answering(self) -> list[Attachment]:
        """Those that have something to answer."""
        return [
            attachment
            for attachment in self.attachments.values()
            if attachment.handed_over and attachment.ack_mode is not AckMode.AUTO and attachment.consumer.is_open
        ]

    def in_flight(self, attachment: Attachment) -> list[int]:
        """The numbers under which something is in flight to it, of what has left the broker's hands."""
        courses = self.world.subscriptions[attachment.number].courses
        return [
            number
            for number, published in enumerate(attachment.sent[: attachment.handed_over], 1)
            if published in courses
            and courses[published].fate is Fate.IN_FLIGHT
            and courses[published].pending_for is None
            and courses[published].latest == Attempt(attachment.consumer, number)
        ]

    def poison(self, attachment: Attachment) -> int | None:
        """The number of what has failed most often, of what is in flight to it and has failed at all."""
        courses = self.world.subscriptions[attachment.number].courses
        numbers = {courses[attachment.sent[number - 1]].failed: number for number in self.in_flight(attachment)}
        return numbers[max(numbers)] if numbers and max(numbers) else None

    def is_stale(self, attachment: Attachment, number: int) -> bool:
        """Whether a refusal by one that has unsubscribed would mean something that another was sent since."""
        expected = self.world.subscriptions.get(attachment.number)
        if expected is None:
            return False
        first = 1 if attachment.ack_mode is AckMode.CLIENT else number
        for earlier, published in enumerate(attachment.sent[first - 1 : number], first):
            course = expected.courses.get(published)
            if course is not None and course.latest != Attempt(attachment.consumer, earlier):
                return True
        return False

    def acknowledge(self, attachment: Attachment, first: int, last: int, *, wants_receipt: bool = False) -> None:
        meant = self._acknowledged(attachment, first, last)
        answer = Answer(attachment.consumer, Verdict.ACK, first, last)
        self.journal.submit(Unit([], [answer], owes_receipt=wants_receipt))
        if attachment.number in self.world.subscriptions:
            self.world.subscriptions[attachment.number].acknowledge(meant)

    def _acknowledged(self, attachment: Attachment, first: int, last: int) -> list[Published]:
        if attachment.ack_mode is not AckMode.CLIENT:
            return attachment.sent[first - 1 : last]
        expected = self.world.subscriptions.get(attachment.number)
        courses = {} if expected is None else expected.courses
        # Those that are named are meant whatever state they are in, and those before them also if only overdue.
        overdue = [
            published
            for published in attachment.sent[: first - 1]
            if published in courses and courses[published].is_overdue
            if courses[published].fate in (Fate.WAITING, Fate.FREE)
        ]
        cumulated = [published for published, _ in self._cumulated(attachment, last)]
        return list(dict.fromkeys([*cumulated, *overdue, *attachment.sent[first - 1 : last]]))

    def _cumulated(self, attachment: Attachment, number: int) -> list[tuple[Published, Attempt]]:
        """What was sent under a number up to that one, was not answered, and is in flight; or, if the consumer has
        left, is not refused since."""
        expected = self.world.subscriptions.get(attachment.number)
        first, attachment.answered_up_to = attachment.answered_up_to + 1, max(attachment.answered_up_to, number)
        found = []
        for earlier in range(first, number + 1):
            published, attempt = attachment.sent[earlier - 1], Attempt(attachment.consumer, earlier)
            course = None if expected is None else expected.courses.get(published)
            if course is None:
                continue
            if attachment.consumer.is_open:
                is_meant = course.fate is Fate.IN_FLIGHT and course.latest == attempt and course.pending_for is None
            else:
                is_meant = course.fate in (Fate.IN_FLIGHT, Fate.FREE)
            if is_meant:
                found.append((published, attempt))
        return found

    def refusal(self, delay_ms: int | None = None, *, is_final: bool = False) -> Refusal:
        delay_ns = None if delay_ms is None else delay_ms * MS
        return Refusal(self.clock.ns, f"at {self.clock.ns}", delay_ns, is_final=is_final)

    def refuse(self, attachment: Attachment, number: int, refusal: Refusal, *, wants_receipt: bool = False) -> None:
        meant = self._refused(attachment, number)
        is_there = attachment.consumer.is_open
        answer = Answer(attachment.consumer, Verdict.NACK, number, number, refusal)
        self.journal.submit(Unit([], [answer], owes_receipt=wants_receipt))
        if attachment.number in self.world.subscriptions:
            expected = self.world.subscriptions[attachment.number]
            expected.set_aside(
                [each for each, attempt in meant if expected.can_be_refused(each, attempt, is_there=is_there)], refusal
            )

    def _refused(self, attachment: Attachment, number: int) -> list[tuple[Published, Attempt]]:
        if attachment.ack_mode is AckMode.CLIENT:
            return self._cumulated(attachment, number)
        return [(attachment.sent[number - 1], Attempt(attachment.consumer, number))]

    def transact(
        self, attachment: Attachment, answers: Sequence[tuple[int, Refusal | None]], topic: str | None
    ) -> None:
        """Answers, None meaning ACK, and a message to that topic, in one transaction."""
        submitted = [
            Answer(attachment.consumer, Verdict.ACK, number, number)
            if refusal is None
            else Answer(attachment.consumer, Verdict.NACK, number, number, refusal)
            for number, refusal in answers
        ]
        unit = Unit([], submitted, is_transaction=True)
        if topic is not None:
            published_to = self.registry.topic(parse_topic_name(topic), self.clock.ns)
            unit.effects.append(Appended(published_to, [self._message(topic)]))
        # All are read before any counts; and what is acknowledged is, whatever else is said of it.
        meant: list[tuple[Refusal | None, list[tuple[Published, Attempt]]]] = []
        for number, refusal in answers:
            if refusal is None:
                attempt = Attempt(attachment.consumer, number)
                meant.append((None, [(each, attempt) for each in self._acknowledged(attachment, number, number)]))
            else:
                meant.append((refusal, self._refused(attachment, number)))
        meant.sort(key=lambda each: each[0] is not None)
        self.intents[unit] = [self._claimed(attachment, unit, *each) for each in meant]
        self.journal.submit(unit)

    def _claimed(
        self, attachment: Attachment, unit: Unit, refusal: Refusal | None, meant: list[tuple[Published, Attempt]]
    ) -> Intent:
        expected, is_there = self.world.subscriptions.get(attachment.number), attachment.consumer.is_open
        claimed = []
        for published, attempt in meant if expected is not None else ():
            assert expected is not None
            course = expected.courses.get(published)
            if course is not None and course.pending_for is unit:
                continue
            is_meant = refusal is None or expected.can_be_refused(published, attempt, is_there=is_there)
            if is_meant and expected.claim(published, unit):
                claimed.append(published)
        return Intent(attachment.number, claimed, refusal)

    # Time ------------------------------------------------------------------------------------------------------------

    def let_time_pass(self, passed_ms: int) -> None:
        """What the distributor does when the time for something has come."""
        self.clock.ns += passed_ms * MS
        now_ns = self.clock.ns
        to_bury = {}
        for expected in self.world.subscriptions.values():
            expected.pass_deadlines(now_ns)
            to_bury[expected.number] = expected.become_due(now_ns)
        for consumer, first, last in self.registry.deadlines.take_due(now_ns, 10_000):
            answering.pass_deadline(consumer, first, last, now_ns)
        used_up: list[Waiting] = []
        for entry in self.registry.redeliveries.take_due(now_ns, 10_000):
            if entry.reading.is_used_up(entry.offset):
                used_up.append(entry)
            else:
                answering.become_due(entry)
        self.dead_letters.give_up(used_up)
        self._look_at_given_up(to_bury)

    def _look_at_given_up(self, to_bury: dict[int, set[Published]]) -> None:
        for unit in self.submitted:
            for effect in _effects(unit, PendingDeliveries):
                assert effect.reading.subscription.store_id is not None
                expected = self.world.subscriptions[effect.reading.subscription.store_id]
                ((start, _),) = effect.claimed.ranges
                published = self._at(expected, effect.reading.topic.name, start)
                assert published in to_bury[expected.number], f"{published} is buried alive"
                to_bury[expected.number].remove(published)
        self._look_at_submitted()
        for number, left in to_bury.items():
            expected = self.world.subscriptions[number]
            for published in left:
                # What has to be read first is tried again. What was never stored may be gone, and then it is discarded.
                if expected.courses[published].may_be_lost and self._is_settled(expected, published):
                    expected.discard(published)
            for published in expected.to_discard:
                if self._is_settled(expected, published):
                    expected.discard(published)
        for expected in self.world.subscriptions.values():
            found = [each for each in self.attachments.values() if each.number == expected.number]
            if expected.is_evicted and found:
                expected.detach(None, self.clock.ns)
                found[0].outbox.close()
                del self.attachments[found[0].which]

    # Coming and going ------------------------------------------------------------------------------------------------

    def leave(self, which: int, leaving: Leaving) -> None:
        attachment = self.attachments.pop(which, None)
        if attachment is None:
            return
        worked_on = self._worked_on(attachment) if leaving is Leaving.LOST else None
        self.registry.leave([attachment.consumer], self.clock.ns, leaving=leaving)
        attachment.outbox.close()
        if attachment.number in self.world.subscriptions:
            self.world.subscriptions[attachment.number].detach(worked_on, self.clock.ns)
            if leaving is Leaving.UNSUBSCRIBED:
                self.departed.append(attachment)

    def _worked_on(self, attachment: Attachment) -> Published | None:
        """The oldest that has left the broker's hands and is in flight."""
        if attachment.number not in self.world.subscriptions or attachment.ack_mode is AckMode.AUTO:
            return None
        numbers = self.in_flight(attachment)
        return attachment.sent[numbers[0] - 1] if numbers else None

    def arrive(self, which: int, ack_mode: AckMode | None = None) -> None:
        """In that ack mode, or else in its usual one. Whoever is there for it gives way."""
        self.leave(which, Leaving.TAKEN_AWAY)
        plan = SUBSCRIBERS[which]
        ack_mode = ack_mode or plan.ack_mode
        if plan.is_ordered and ack_mode is AckMode.AUTO:
            ack_mode = plan.ack_mode  # which SUBSCRIBE refuses
        identity = Identity("", IdentityKind.NAMED, "client", plan.name)
        subscription = self.registry.durable.get(identity)
        is_new = subscription is None
        if subscription is None:
            subscription = Subscription(
                name=plan.name,
                destination=plan.pattern,
                pattern=parse_pattern(plan.pattern),
                ack_mode=ack_mode,
                is_no_local=False,
                is_ordered=plan.is_ordered,
                wishes=DeliveryWishes(
                    {
                        "max_attempts": plan.max_attempts,
                        "when_used_up": plan.when_used_up,
                        "ack_deadline_ms": plan.ack_deadline_ms,
                    }
                ),
                durability=Durability(
                    identity, self.journal.next_subscription_id(), created_at_ns=0, last_seen_at_ns=0
                ),
            )
            self.registry.add_durable(subscription)
            self.numbered[subscription.store_id or 0] = subscription
        subscription.ack_mode = ack_mode
        sink, outbox = frame_sink(subscription, self.budget, disconnect=self.disconnected.append)
        consumer = Consumer(
            subscription,
            ordinal=1,
            sink=sink,
            credit=Credit(plan.prefetch, max_waiting=plan.max_waiting),
            queue=self.registry.ready,
        )
        self.registry.claim(consumer, self.clock.ns)
        self.attachments[which] = Attachment(which, ack_mode, consumer, outbox)

        def begin() -> None:
            self.registry.begin(subscription, self.clock.ns)
            self.registry.open(consumer, self.clock.ns)

        def undo(_: str) -> None:
            """As a session does it: the client is told, and its connection ends."""
            self.attachments.pop(which, None)
            self.registry.leave([consumer], self.clock.ns)
            outbox.close()

        unit = Unit(then=begin, refused=undo)
        if is_new:
            unit.effects.append(Created(subscription, self.registry))
        self.journal.submit(unit)

    # Making room -----------------------------------------------------------------------------------------------------

    def expire(self) -> None:
        """What the store knows to have expired, as upkeep does it."""
        by_number = {topic.store_id: topic for topic in self.registry.topics.values()}
        purged: dict[Topic, dict[Offset, Message]] = {}
        for _, topic_number, offset, message in self.store.surveys.expired(self.clock.ns, None, 500):
            topic = by_number.get(topic_number)
            if topic is None:
                continue
            assert message is not None
            is_in_flight = False
            for expected in self.world.subscriptions.values():
                for published, course in expected.courses.items():
                    if published.topic == topic.name and published.offset == offset:
                        expected.expire(published)
                        is_held = course.fate is Fate.IN_FLIGHT or course.pending_for is not None
                        is_in_flight = is_in_flight or is_held
            assert withdrawing.expire(topic, offset, message, self.clock.ns) == (not is_in_flight)
            if not is_in_flight:
                purged.setdefault(topic, {})[offset] = message
        if purged:
            self.journal.submit(Unit([Purged(*each) for each in purged.items()], owes_receipt=False))

    def collect(self, *, removes_unused: bool) -> None:
        """A round of the collector."""
        for topic in list(self.registry.topics.values()):
            unused_since_ns = self.clock.ns if removes_unused else -1
            is_removed = self.registry.collect(topic, self.clock.ns, unused_since_ns=unused_since_ns)
            for expected in self.world.subscriptions.values():
                self._look_at_passed_over(expected)
            if is_removed:
                assert topic.is_of_dead_letters <= (not any(place[0] == topic.name for place in self.world.letters))
                self.world.forget_topic(topic.name)
        self.registry.pages.forget_unused()

    def tidy_up(self) -> None:
        """A round of everybody, and then the journal when it is idle: nothing stays that everybody has settled."""
        self.commit()
        self.expire()
        self.commit()
        self.collect(removes_unused=False)
        self.commit()
        for _ in range(10):
            if not self.registry.unsaved.collectable:
                break
            self._complete(*self._write_batch())
        needed = {
            (published.topic, published.offset)
            for expected in self.world.subscriptions.values()
            for published, course in expected.courses.items()
            if not course.fate.is_settled
        }
        kept = self._stored_places()
        kept |= {(topic.name, offset) for topic in self.registry.topics.values() for offset, _ in topic.log}
        assert {place for place in kept if place[0] != TOLD and not place[0].startswith("DLQ")} <= needed

    def redrive_letter(self, choice: int, *, to_subscriber: bool) -> None:
        """One at a time, as operators do it."""
        places = sorted(self.world.letters)
        if not places or self.redrive is not None:
            return
        name, offset = places[choice % len(places)]
        letters_topic = self.registry.topics[name]
        assert letters_topic.store_id is not None
        letter = self.store.read_page(letters_topic.store_id, offset, offset + 1).get(offset)
        assert letter is not None
        _, number = self.world.letters[name, offset]
        is_there = any(each.store_id == number for each in self.registry.durable.values())
        only_for = number if to_subscriber and is_there else None
        topic = self.registry.topic(parse_topic_name(name.removeprefix("DLQ.")), self.clock.ns)
        topic.is_choosy = topic.is_choosy or only_for is not None
        message = redriven(letter, message_id=self.message_ids.make(), only_for=only_for, now_ns=self.clock.ns)
        self.redrive = Unit([Appended(topic, [message]), Purged(letters_topic, {Offset(offset): letter})])
        self.journal.submit(self.redrive)

    # What must be so -------------------------------------------------------------------------------------------------

    def check(self) -> None:
        self.registry.check_invariants()
        self.journal.check_invariants()
        durable = self._durable()
        places = self._stored_places()
        for expected in self.world.subscriptions.values():
            self._check_counts(expected, durable[expected.number])
            for published, course in expected.courses.items():
                reading = self._reading(expected, published)
                fate = course.fate if course.pending_for is None else Fate.PENDING
                assert self._fate(reading, published.offset) == (None if course.fate.is_settled else fate), (
                    f"{expected.plan.name}: {published} should be {course}"
                )
                if reading is None or course.fate.is_settled:
                    continue
                failure = reading.failures.get(Offset(published.offset))
                assert (failure.count if failure else 0) == course.failed
                if failure is not None and course.fate is Fate.WAITING:
                    assert failure.due_ns == course.due_ns
                if expected.must_be_kept(published, self.clock.ns):
                    is_at_hand = reading.get(Offset(published.offset)).message is not None
                    assert is_at_hand or (published.topic, published.offset) in places, f"{published} is lost"
        evicted = [each for each in self.disconnected if "evicted" in str(each)]
        assert len(evicted) <= sum(plan.when_used_up is WhenUsedUp.EVICT for plan in SUBSCRIBERS) * 60

    def _check_counts(self, expected: Expected, subscription: Subscription) -> None:
        counts = {name: getattr(subscription.counters, name) for name in expected.counts}
        perhaps = range(expected.counts["expired"], expected.counts["expired"] + expected.perhaps_expired + 1)
        assert counts["expired"] in perhaps, f"{expected.plan.name}: {counts['expired']} expired, not {perhaps}"
        counts["expired"] = expected.counts["expired"]
        assert counts == expected.counts, f"{expected.plan.name}: {counts}, not {expected.counts}"
        assert subscription.waiting == len(expected.with_fate(Fate.WAITING))

    def close(self) -> None:
        self.database.close()
        self.store.close()
        shutil.rmtree(self.directory)

    def heal(self) -> None:
        """In the end everything has reached everybody or lies with the dead letters, and nothing else is left."""
        for _ in range(300):
            self._go_round()
            self.check()
            if not any(expected.with_fate(*UNSETTLED) for expected in self.world.subscriptions.values()):
                break
        else:
            raise AssertionError("something is never delivered")
        self.tidy_up()
        self.check()
        assert not {place for place in self._stored_places() if place[0] != TOLD} - self.world.letters.keys()
        assert self.database.execute("SELECT count(*) FROM redeliveries").fetchone() == (0,)
        letters_bytes = sum(topic.log.size_bytes for topic in self.registry.topics.values() if topic.is_of_dead_letters)
        self.registry.pages.forget_unused()
        self.registry.pages.forget_unused()
        assert self.budget.used_bytes == letters_bytes

    def _go_round(self) -> None:
        self.let_time_pass(10)
        self.expire()
        for which in range(len(SUBSCRIBERS)):
            if which not in self.attachments:
                self.arrive(which)
        for _ in range(4):
            self.send()
            for attachment in self.answering:
                self.acknowledge(attachment, 1, attachment.handed_over)
        self.commit()

    # The broker, seen from outside -----------------------------------------------------------------------------------

    def _durable(self) -> dict[int, Subscription]:
        return {
            each.store_id: each for each in self.registry.subscriptions if each.store_id is not None and each.has_begun
        }

    def _reading(self, expected: Expected, published: Published) -> Reading | None:
        topic = self.registry.topics.get(published.topic)
        return None if topic is None else topic.readings.get(self.numbered[expected.number])

    @staticmethod
    def _fate(reading: Reading | None, offset: int) -> Fate | None:
        """None if it is settled."""
        if reading is None:
            return None
        cursor = reading.cursor
        if offset >= cursor.next_offset:
            if reading.unsent == reading.topic.log.end_offset - cursor.next_offset:
                return Fate.UNSENT
            is_unsent = any(start <= offset < stop for start, stop in reading.unsettled_ranges())
            return Fate.UNSENT if is_unsent else None
        if cursor.is_settled(offset, offset + 1):
            return None
        if cursor.pending(offset, offset + 1):
            return Fate.PENDING
        if cursor.is_in_flight(offset):
            return Fate.IN_FLIGHT
        return Fate.WAITING if cursor.is_waiting(offset) else Fate.FREE

    def _is_settled(self, expected: Expected, published: Published) -> bool:
        return self._fate(self._reading(expected, published), published.offset) is None

    @staticmethod
    def _at(expected: Expected, topic: str, offset: int) -> Published:
        (found,) = [each for each in expected.courses if (each.topic, each.offset) == (topic, offset)]
        return found

    def _stored_places(self) -> set[tuple[str, int]]:
        query = 'SELECT topics.name, messages."offset" FROM messages JOIN topics ON topics.id = messages.topic_id'
        return set(self.database.execute(query))

    def _check_stored_failures(self) -> None:
        """The store knows of every failure of what is unsettled, and of nothing else."""
        query = (
            'SELECT subscription_id, topics.name, "offset", attempts, due_at_ns '
            "FROM redeliveries JOIN topics ON topics.id = redeliveries.topic_id"
        )
        found = {row[:3]: row[3:] for row in self.database.execute(query)}
        for expected in self.stored.subscriptions.values():
            for published, course in expected.courses.items():
                stored = found.pop((expected.number, published.topic, published.offset), None)
                if course.may_be_lost:
                    continue
                is_noted = course.failed and not course.fate.is_settled
                assert stored == ((course.failed, course.due_ns) if is_noted else None), f"{published} is {course}"
        assert not found

    def _check_ledger(self, formed: Formed) -> None:
        """The ledger knows of every delivery that is settled in the store, once, and of no other."""
        for party, settled in formed.accounts:
            for run in settled:
                for message in run.messages:
                    key = party.subscription, message.message_id.decode()
                    assert key not in self.ledger, f"{key} is {run.outcome} although it was {self.ledger[key]}"
                    self.ledger[key] = run.outcome
        self._check_told()
        for expected in self.stored.subscriptions.values():
            name = self.numbered[expected.number].key if expected.number in self.numbered else None
            for published, course in expected.courses.items():
                if name is None or course.may_be_lost:
                    continue
                found = self.ledger.get((name, published.message_id))
                assert found in _OUTCOMES.get(course.fate, {None}), f"{name}: {published} is {course}, not {found}"

    def _check_told(self) -> None:
        """Publishers that ask were told of what the ledger says, once."""
        query = (
            "SELECT messages.tail FROM messages JOIN topics ON topics.id = messages.topic_id WHERE topics.name = 'told'"
        )
        told: dict[tuple[str, str], str] = {}
        for (tail,) in self.database.execute(query):
            message = Message(0, tail, Origin("", is_plain=True), 0)
            assert _told_of(message) not in told, f"told twice: {_told_of(message)}"
            told[_told_of(message)] = dict(tail_headers(tail))["outcome"]
        expected = {
            key: outcome.value
            for key, outcome in self.ledger.items()
            if key[1] in self.asking and outcome in _TOLD and key not in self.lost
        }
        missing, invented = expected.items() - told.items(), told.items() - expected.items()
        assert not missing | invented, f"not told: {missing}; not so: {invented}"

    def _stored_letters(self) -> dict[tuple[str, int], tuple[str, int]]:
        query = (
            'SELECT topics.name, messages."offset", messages.tail, messages.body_bytes '
            "FROM messages JOIN topics ON topics.id = messages.topic_id WHERE topics.name LIKE 'DLQ.%'"
        )
        letters = {}
        for name, offset, tail, body_bytes in self.database.execute(query):
            provenance = provenance_of(Message(body_bytes, tail, Origin("", is_plain=True), 0))
            assert provenance is not None
            assert provenance.subscription_number is not None
            letters[name, offset] = (provenance.message_id, provenance.subscription_number)
        return letters


def _effects(unit: Unit, kind: type[E]) -> list[E]:
    return [effect for effect in unit.effects if isinstance(effect, kind)]


def _told_of(message: Message) -> tuple[str, str]:
    """Which subscription ended which message."""
    headers = dict(tail_headers(message.tail))
    return headers["outcome-subscription"], headers["outcome-of"]


def _published(topic: Topic, offset: int, message: Message) -> Published:
    return Published(
        message.message_id.decode(),
        topic.name,
        offset,
        message.origin.is_persistent,
        message.expires_at_ns,
        message.origin.only_for,
    )
