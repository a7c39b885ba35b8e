"""What is expected of every message for every durable subscription: a naive model of delivery.

Law: one record per message and subscription, changed one by one; no offsets but to name a message, no ranges, no heap,
no batches. It knows nothing of the broker. What the broker may do sooner or later (step over what has expired, forget
what was never stored) it is told, and says whether that was allowed.
"""

from __future__ import annotations

from copy import copy
from enum import Enum
from typing import Final, NamedTuple

from stompbroker.delivery import AckMode, Pattern, Refusal, WhenUsedUp, parse_pattern

#: In nanoseconds.
MS: Final = 1_000_000
#: The back-off of every subscriber, in milliseconds: each is twice as long as the one before.
FIRST_DELAY_MS: Final = 2
MAX_DELAY_MS: Final = 6


class Fate(Enum):
    UNSENT = "unsent"
    IN_FLIGHT = "in flight"
    WAITING = "waits for its time"
    FREE = "may go again"
    #: Of the broker's only: a course that is pending keeps the fate it would have without its unit.
    PENDING = "pending"
    ACKED = "acknowledged"
    DEAD = "with the dead letters"
    DISCARDED = "discarded"
    EXPIRED = "expired"
    #: It was for somebody else, or nobody has it any more, or an operator has taken it away.
    PASSED_OVER = "passed over"

    @property
    def is_settled(self) -> bool:
        return self not in UNSETTLED


UNSETTLED: Final = frozenset({Fate.UNSENT, Fate.IN_FLIGHT, Fate.WAITING, Fate.FREE})


class Subscriber(NamedTuple):
    """How somebody subscribes."""

    name: str
    pattern: str
    #: The usual one; it may come back in another.
    ack_mode: AckMode
    prefetch: int
    max_waiting: int = 8
    max_attempts: int = 0
    when_used_up: WhenUsedUp = WhenUsedUp.DEAD_LETTER
    ack_deadline_ms: int = 0
    is_ordered: bool = False

    def gets(self, topic: str) -> bool:
        return parse_pattern(self.pattern).matches(Pattern.keyed(topic))


class Published(NamedTuple):
    """A message, and where it is."""

    message_id: str
    topic: str
    offset: int
    is_persistent: bool
    expires_at_ns: int | None
    only_for: int | None

    @property
    def is_letter(self) -> bool:
        return self.topic.startswith("DLQ.")

    def has_expired(self, now_ns: int) -> bool:
        return self.expires_at_ns is not None and self.expires_at_ns <= now_ns


class Attempt(NamedTuple):
    """A delivery: to which consumer, under which number."""

    consumer: object
    number: int


class Course:
    """What became of one message for one subscription so far."""

    def __init__(self, fate: Fate) -> None:
        self.fate = fate
        #: Deliveries that have failed, and when it is due after the last of them.
        self.failed = 0
        self.due_ns = 0
        self.reason = ""
        self.is_final = False
        self.is_overdue = False
        self.latest: Attempt | None = None
        self.deadline_ns: int | None = None
        #: The unit that it is pending for: a transaction, or that of its dead letter.
        self.pending_for: object = None
        #: It was never stored, and its subscriber was away or the broker was killed; or it was purged: nobody need have
        #: it any more.
        self.may_be_lost = False

    def __repr__(self) -> str:
        return f"<{self.fate.value}, {self.failed} failed, due {self.due_ns}>"


class Expected:
    """One durable subscription, from its creation on."""

    def __init__(self, number: int, plan: Subscriber) -> None:
        #: In the store.
        self.number = number
        self.plan = plan
        self.courses: dict[Published, Course] = {}
        #: Its policy said evict, and it is being removed.
        self.is_evicted = False
        #: Its removal is on its way.
        self.is_leaving = False
        #: Acknowledged while it was pending or its subscription leaving: by a transaction, or None if at once.
        self.deferred: tuple[tuple[Published, object], ...] = ()
        #: To be discarded when it is known what it was, which may have to be read first.
        self.to_discard: list[Published] = []
        self.forget_counts()

    def forget_counts(self) -> None:
        self.counts = dict.fromkeys(
            ("delivered", "redelivered", "acked", "nacked", "overdue", "dead", "discarded", "expired"), 0
        )
        #: Expired while nobody had them perhaps: they may have been counted.
        self.perhaps_expired = 0

    def copy(self) -> Expected:
        twin = copy(self)
        twin.courses = {published: copy(course) for published, course in self.courses.items()}
        twin.counts = dict(self.counts)
        return twin

    # Looking ---------------------------------------------------------------------------------------------------------

    def with_fate(self, *fates: Fate) -> list[Published]:
        """Without what is pending."""
        return [
            published
            for published, course in self.courses.items()
            if course.fate in fates and course.pending_for is None
        ]

    def find(self, message_id: str) -> Published:
        return next(published for published in self.courses if published.message_id == message_id)

    def is_for_it(self, published: Published) -> bool:
        return published.only_for in (None, self.number)

    def is_used_up(self, course: Course) -> bool:
        return course.is_final or 0 < self.plan.max_attempts <= course.failed

    def must_be_kept(self, published: Published, now_ns: int) -> bool:
        course = self.courses[published]
        is_wanted = not course.fate.is_settled and self.is_for_it(published) and not published.has_expired(now_ns)
        return is_wanted and not course.may_be_lost

    def wanted_before(self, published: Published, now_ns: int, *fates: Fate) -> list[Published]:
        """What it should get, of the same topic and with one of these fates, that stands before a message."""
        return [
            other
            for other, course in self.courses.items()
            if other.topic == published.topic
            and other.offset < published.offset
            and course.fate in fates
            and course.pending_for is None
            and self.must_be_kept(other, now_ns)
        ]

    # Deliveries ------------------------------------------------------------------------------------------------------

    def deliver(self, published: Published, attempt: Attempt, now_ns: int, *, is_answered: bool) -> None:
        """`is_answered`: whether the consumer has to answer it."""
        course = self.courses[published]
        assert course.fate in (Fate.UNSENT, Fate.FREE), f"{published} is sent although it is {course}"
        assert not published.has_expired(now_ns), f"{published} is sent although it has expired"
        assert self.is_for_it(published)
        self.counts["delivered"] += 1
        self.counts["redelivered"] += course.fate is Fate.FREE
        course.fate = Fate.IN_FLIGHT
        course.latest = attempt
        deadline_ms = self.plan.ack_deadline_ms
        course.deadline_ns = now_ns + deadline_ms * MS if deadline_ms and is_answered else None

    # Pending ---------------------------------------------------------------------------------------------------------

    def claim(self, published: Published, unit: object) -> bool:
        """A transaction answers it: it is pending from now on. False if it is so for another."""
        course = self.courses.get(published)
        if course is None or course.fate.is_settled:
            return False
        if course.pending_for is not None or self.is_leaving:
            self.deferred += ((published, unit),)
            return False
        course.pending_for = unit
        return True

    def can_be_refused(self, published: Published, attempt: Attempt, *, is_there: bool) -> bool:
        course = self.courses.get(published)
        if course is None or course.latest != attempt or course.pending_for is not None or self.is_leaving:
            return False
        return course.fate is (Fate.IN_FLIGHT if is_there else Fate.FREE)

    def acknowledge(self, meant: list[Published]) -> None:
        """At once, or when it is decided what becomes of what is pending."""
        for published in meant:
            course = self.courses.get(published)
            if self.is_leaving or (course is not None and course.pending_for is not None):
                self.deferred += ((published, None),)
            else:
                self.settle([published])

    def end_claims(self, unit: object) -> None:
        """A unit is done or refused; what else may have become of its messages is told before."""
        for course in self.courses.values():
            if course.pending_for is unit:
                course.pending_for = None

    def settle(self, meant: list[Published]) -> None:
        for published in meant:
            course = self.courses.get(published)
            if course is not None and not course.fate.is_settled:
                course.fate = Fate.ACKED
                self.counts["acked"] += 1

    def set_aside(self, meant: list[Published], refusal: Refusal) -> None:
        for published in meant:
            course = self.courses.get(published)
            if course is not None and not course.fate.is_settled:
                self._fail(course, refusal)
                course.fate = Fate.WAITING
                self.counts["nacked"] += 1

    def _fail(self, course: Course, refusal: Refusal) -> None:
        course.failed += 1
        course.is_final = refusal.is_final
        course.is_overdue = refusal.is_overdue
        course.reason = refusal.reason
        course.due_ns = refusal.at_ns
        if not self.is_used_up(course):
            back_off_ns = min(MAX_DELAY_MS, FIRST_DELAY_MS * 2 ** (course.failed - 1)) * MS
            course.due_ns += back_off_ns if refusal.delay_ns is None else refusal.delay_ns

    def detach(self, worked_on: Published | None, now_ns: int) -> None:
        """Its consumer is gone, over `worked_on` perhaps."""
        for published, course in self.courses.items():
            if course.fate is Fate.IN_FLIGHT:
                course.fate = Fate.FREE
            course.may_be_lost = course.may_be_lost or not published.is_persistent
        if worked_on is not None:
            course = self.courses[worked_on]
            assert course.fate is Fate.FREE
            self._fail(course, Refusal(now_ns, "the connection was lost", delay_ns=0))
            if self.is_used_up(course):
                course.fate = Fate.WAITING

    # Time ------------------------------------------------------------------------------------------------------------

    def pass_deadlines(self, now_ns: int) -> None:
        reason = f"not acknowledged within {self.plan.ack_deadline_ms / 1000:g} s"
        for course in self.courses.values():
            is_overdue = course.deadline_ns is not None and course.deadline_ns <= now_ns
            if course.fate is Fate.IN_FLIGHT and is_overdue and course.pending_for is None:
                self._fail(course, Refusal(now_ns, reason, is_overdue=True))
                course.fate = Fate.WAITING
                self.counts["overdue"] += 1

    def become_due(self, now_ns: int) -> set[Published]:
        """Whatever is due goes again, or is given up; returns what should lie with the dead letters."""
        to_bury: set[Published] = set()
        self.to_discard = []
        for published, course in self.courses.items():
            if course.fate is not Fate.WAITING or course.due_ns > now_ns or course.pending_for is not None:
                continue
            if not self.is_used_up(course):
                course.fate = Fate.FREE
            elif self.plan.when_used_up is WhenUsedUp.EVICT and not course.is_final:
                self.is_evicted = True
            elif self.plan.when_used_up is WhenUsedUp.DISCARD or published.is_letter:
                self.to_discard.append(published)
            else:
                to_bury.add(published)
        return to_bury

    def discard(self, published: Published) -> None:
        self.courses[published].fate = Fate.DISCARDED
        self.counts["discarded"] += 1

    def expire(self, published: Published) -> None:
        """Nobody is sent it any more; what is in flight can still be acknowledged."""
        course = self.courses.get(published)
        if course is None or course.fate.is_settled or self.is_leaving:
            return
        if course.fate is not Fate.IN_FLIGHT and course.pending_for is None:
            course.fate = Fate.EXPIRED
            self.counts["expired"] += 1

    def purge(self, published: Published) -> None:
        """It is gone; what is in flight can still be acknowledged."""
        course = self.courses.get(published)
        if course is not None and not course.fate.is_settled:
            course.may_be_lost = True
            if course.fate is not Fate.IN_FLIGHT and course.pending_for is None and not self.is_leaving:
                course.fate = Fate.PASSED_OVER

    def pass_over(self, published: Published, now_ns: int) -> None:
        """The broker has settled it by itself, which needs a reason that lies in the message."""
        course = self.courses[published]
        assert course.fate is not Fate.IN_FLIGHT, f"{published} was in flight"
        assert course.pending_for is None, f"{published} is pending"
        if not self.is_for_it(published):
            course.fate = Fate.PASSED_OVER
        elif published.has_expired(now_ns):
            course.fate = Fate.EXPIRED
            self.counts["expired"] += not course.may_be_lost
            self.perhaps_expired += course.may_be_lost
        else:
            assert course.may_be_lost, f"{published} is given up although it is {course}"
            course.fate = Fate.PASSED_OVER


class World:
    """All there is, as a start would find it or as it is now."""

    def __init__(self) -> None:
        self.subscriptions: dict[int, Expected] = {}
        #: By topic and offset: which message died, and for which subscription.
        self.letters: dict[tuple[str, int], tuple[str, int]] = {}
        #: Everything that ever died.
        self.died: set[tuple[str, int]] = set()

    def copy(self) -> World:
        twin = World()
        twin.subscriptions = {number: expected.copy() for number, expected in self.subscriptions.items()}
        twin.letters = dict(self.letters)
        twin.died = set(self.died)
        return twin

    def publish(self, published: Published, attached: set[int]) -> None:
        """`attached`: the subscriptions that somebody is there for."""
        for expected in self.subscriptions.values():
            if expected.plan.gets(published.topic):
                course = expected.courses[published] = Course(Fate.UNSENT)
                course.may_be_lost = not published.is_persistent and expected.number not in attached

    def add_letter(self, place: tuple[str, int], died: tuple[str, int]) -> None:
        assert died not in self.died, f"{died} has died twice"
        self.died.add(died)
        self.letters[place] = died

    def bury(self, number: int, published: Published) -> None:
        expected = self.subscriptions.get(number)
        course = None if expected is None else expected.courses.get(published)
        if expected is not None and course is not None and course.fate is Fate.WAITING:
            course.fate = Fate.DEAD
            expected.counts["dead"] += 1

    def purge(self, topic: str, offset: int) -> None:
        del self.letters[topic, offset]
        for expected in self.subscriptions.values():
            for published in [each for each in expected.courses if (each.topic, each.offset) == (topic, offset)]:
                expected.purge(published)

    def forget_topic(self, topic: str) -> None:
        """It was removed, which needs that nobody wants anything of it."""
        for expected in self.subscriptions.values():
            for published in [published for published in expected.courses if published.topic == topic]:
                course = expected.courses.pop(published)
                assert course.fate.is_settled, f"{published} goes with its topic although it is {course}"
