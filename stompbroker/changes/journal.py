"""What one chunk of a client, or one transaction, changes; the interface of journals that take it; and the journal of a
broker that keeps everything in memory.

Law: a unit becomes durable as a whole; then `complete` makes it visible as a whole, in one synchronous step. Whoever
changes topics submits a `Unit` and lets go of it. Every journal passes `tests/journal_contract.py`:

- every submitted unit is completed once and as a whole, or refused, and then nothing of it is done;
- the units of one lane, and all units that touch what is stored, are completed in the order they were submitted;
- a unit is completed when it is as durable as this journal makes it; but answers outside of transactions count at once,
  since a kill in between only means one more delivery;
- `wait_idle` returns when everything submitted before has been completed, and what has changed is written.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from enum import Enum
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, final

import trio

from stompbroker.changes.effects import Appended, Told, ValueChanged, claim_refused, claim_settled
from stompbroker.commitlog import OffsetRanges
from stompbroker.delivery import Gate, Part, Refusal, answering
from stompbroker.ledger.records import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from stompbroker.changes.effects import Effect
    from stompbroker.clock import Clock
    from stompbroker.delivery import Consumer, Reading, Subscription
    from stompbroker.signals import Signal


@final
class Verdict(Enum):
    ACK = "acknowledged"
    NACK = "refused"


class Answer(NamedTuple):
    """A client's verdict on the deliveries numbered first..last of one consumer."""

    consumer: Consumer
    verdict: Verdict
    first: int
    last: int
    #: Of a NACK.
    refusal: Refusal = Refusal(0)


class Decision(NamedTuple):
    answer: Answer
    #: The messages it means.
    parts: list[Part]


def _gathered(decisions: list[Decision]) -> Iterable[list[Decision]]:
    """Those that can be applied as one. What is refused may wait until everything is acknowledged, unless two mean the
    same message: a client that refuses now and then says ACK, ACK, NACK, ACK."""
    if len(decisions) > 1 and _mean_different_messages(decisions):
        decisions = sorted(decisions, key=_is_refusal)
    return [list(alike) for _, alike in groupby(decisions, _alike)]


def _is_refusal(decision: Decision) -> bool:
    return decision.answer.verdict is Verdict.NACK


def _alike(decision: Decision) -> tuple[object, ...]:
    """Equal for those that can be applied as one. Of cumulative NACKs each is counted by itself."""
    consumer, verdict, first, last, refusal = decision.answer
    is_by_itself = verdict is Verdict.NACK and consumer.is_cumulative
    return consumer, verdict is Verdict.ACK, refusal, (first, last, len(decision.parts)) if is_by_itself else None


def _mean_different_messages(decisions: list[Decision]) -> bool:
    """Whether none of them refuses what another refuses or acknowledges."""
    refused: dict[Reading, set[int]] = {}
    count = 0
    for answer, parts in decisions:
        for reading, start, stop, _ in parts if answer.verdict is Verdict.NACK else ():
            refused.setdefault(reading, set()).update(range(start, stop))
            count += stop - start
    if sum(map(len, refused.values())) < count:
        return False
    return not refused or all(
        refused[reading].isdisjoint(range(start, stop))
        for answer, parts in decisions
        if answer.verdict is Verdict.ACK
        for reading, start, stop, _ in parts
        if reading in refused
    )


@final
@dataclass(slots=True, eq=False)
class Lane:
    """The units of one connection that are on their way. They are completed in the order they were submitted.

    Invariants:
        units, receipts and size_bytes count what was submitted and is not completed
    """

    #: Woken when a unit is completed.
    _moved: Signal
    units: int = 0
    #: Of these, the units that owe one.
    receipts: int = 0
    size_bytes: int = 0

    def enter(self, unit: Unit) -> None:
        self.units += 1
        self.receipts += unit.owes_receipt
        self.size_bytes += unit.size_bytes

    def leave(self, unit: Unit) -> None:
        self.units -= 1
        self.receipts -= unit.owes_receipt
        self.size_bytes -= unit.size_bytes
        self._moved.wake()


@final
@dataclass(slots=True, eq=False)
class Unit:
    """Effects and answers, in the order they were sent; `then` is called once all of it is durable and visible.

    Invariants:
        decisions are those that are not effects yet, and not applied
    """

    effects: list[Effect] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    then: Callable[[], None] = lambda: None
    _: KW_ONLY
    #: Whose unit it is; None for the broker's own.
    lane: Lane | None = None
    #: Whether somebody waits to be told that it is durable.
    owes_receipt: bool = True
    #: Whether its answers count only together with its messages.
    is_transaction: bool = False
    #: Whether it counts only behind everything submitted before, although nothing of it is stored.
    needs_order: bool = False
    #: Called instead of `then`, with the reason, if the store cannot take it at all.
    refused: Callable[[str], None] | None = None
    #: What the answers mean, once that is decided.
    decisions: list[Decision] = field(init=False, default_factory=list)
    #: Whose answers its receipts speak of; the journal's to set.
    answered: Collection[Subscription] = field(init=False, default=())
    is_refused: bool = field(init=False, default=False)
    #: Its ACKs that wait until something pending is decided: only then it is known what they mean.
    deferred: int = field(init=False, default=0)
    #: What it keeps in memory while it waits; the journal's to set.
    size_bytes: int = field(init=False, default=0)

    @property
    def only_publishes(self) -> bool:
        """Whether it says nothing of what was delivered or answered."""
        return not (self.answered or self.needs_order) and all(
            isinstance(each, Appended | ValueChanged) for each in self.effects
        )

    def decide(self) -> None:
        """Find out what the answers mean, when they come: their consumer may leave before they count."""
        for answer in self.answers:
            consumer = answer.consumer
            if not consumer.is_open and not consumer.is_answerable:
                continue
            meaning = answering.acknowledged if answer.verdict is Verdict.ACK else answering.refused
            self.decisions.append(Decision(answer, meaning(consumer, answer.first, answer.last)))
        self.answers = []

    def apply_decisions(self, now_ns: int) -> None:
        """Answers alike are applied as one: most of the work is done once, however many they are."""
        decisions, self.decisions = self.decisions, []
        for alike in _gathered(decisions):
            (consumer, verdict, _, _, refusal), _ = alike[0]
            parts = [part for decision in alike for part in decision.parts]
            if verdict is Verdict.ACK:
                answering.settle(consumer, parts, now_ns)
            else:
                answers = sum(answer.last + 1 - answer.first for answer, _ in alike)
                answering.set_aside(consumer, parts, refusal, answers=answers)

    def claim(self, now_ns: int) -> None:
        """Make pending what its answers mean: they count when it is durable.

        What it both acknowledges and refuses is acknowledged, in whichever order: an ACK settles a message in any
        state, and a NACK means what is in flight.
        """
        decisions, self.decisions = self.decisions, []
        acknowledged: dict[Reading, OffsetRanges] = {}
        for answer, parts in decisions:
            if answer.verdict is Verdict.ACK:
                for reading, start, stop, sent_at_ns in parts:
                    before = acknowledged.setdefault(reading, OffsetRanges())
                    for low, high in before.gaps(start, stop):
                        self._claim_acknowledged(answer.consumer, Part(reading, low, high, sent_at_ns), now_ns)
                    before.add(start, stop)
        for answer, parts in decisions:
            if answer.verdict is Verdict.NACK:
                self._claim_refused(answer, parts)

    def _claim_acknowledged(self, consumer: Consumer, whole: Part, now_ns: int) -> None:
        subscription = consumer.subscription
        if subscription.is_closed or self.is_refused:  # when what it waited for is decided
            return
        unclaimed, pending = answering.split_pending(whole)
        for part in pending:
            self.deferred += 1
            answering.defer(part.reading, partial(self._claim_deferred, consumer, part, now_ns))
        for reading, start, stop, sent_at_ns in unclaimed:
            ranges = reading.cursor.unsettled(start, stop)
            if ranges:
                effect = claim_settled(reading, ranges, Outcome.ACKED, now_ns, sent_at_ns, consumer.member)
                self.effects.append(effect)
                subscription.counters.late -= effect.claimed.in_flight
            subscription.counters.late += stop - start

    def _claim_deferred(self, consumer: Consumer, part: Part, now_ns: int) -> None:
        self.deferred -= 1
        self._claim_acknowledged(consumer, part, now_ns)

    def _claim_refused(self, answer: Answer, parts: list[Part]) -> None:
        """What is pending is not in flight: to refuse that is too late."""
        subscription, refused = answer.consumer.subscription, 0
        for part in parts if not (subscription.is_closed or subscription.is_leaving) else ():
            effect = claim_refused(answer.consumer, part, answer.refusal)
            if effect is not None:
                self.effects.append(effect)
                refused += effect.claimed.total
        subscription.counters.late += max(0, answer.last + 1 - answer.first - refused)

    def refuse(self, now_ns: int, reason: str) -> None:
        """The store cannot take it: nothing of it is done."""
        self.is_refused = True  # first: an undo may repeat an answer that waited for it
        for effect in self.effects:
            effect.undo(now_ns, reason)
        if self.refused is not None:
            self.refused(reason)

    @property
    def told(self) -> list[Told]:
        return [effect for effect in self.effects if isinstance(effect, Told)]

    def lose_outcomes(self, reason: str) -> None:
        """The store takes it only without what it tells publishers."""
        lost = self.told
        self.effects = [effect for effect in self.effects if effect not in lost]
        for effect in lost:
            effect.lose(reason)

    def complete(self, now_ns: int) -> None:
        """Make it visible. Called by the journal, once, when the unit is durable."""
        for effect in self.effects:
            effect.apply(now_ns)
        if self.answers:
            self.decide()
        if self.decisions:
            self.apply_decisions(now_ns)
        self.then()


@final
class StoreState(Enum):
    OK = "ok"
    LOW_SPACE = "low-space"
    FAILING = "failing"
    #: It works, but something that was stored is altered or lost. Stays until a restart.
    DAMAGED = "damaged"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class JournalStatistics:
    engine: str
    state: StoreState = StoreState.OK
    #: Why it is not ok, and since when.
    reason: str | None = None
    since_ns: int | None = None
    #: What waits to be written.
    backlog_units: int = 0
    backlog_bytes: int = 0
    #: Batches written since the start.
    batches: int = 0
    #: The size of the database, as last measured.
    stored_bytes: int | None = None
    damages: int = 0
    #: "running" or "done" if the store is checked, since its last broker did not close it.
    check: str | None = None


class Journal(Protocol):
    @property
    def gate(self) -> Gate: ...

    @property
    def can_store(self) -> bool:
        """Whether anything outlives the process."""

    @property
    def pending_units(self) -> int:
        """How many were submitted and are not completed."""

    @property
    def is_overfull(self) -> bool:
        """Whether so much waits to be written that durable subscriptions can be neither made nor deleted."""

    def next_subscription_id(self) -> int:
        """A number for a durable subscription that no other ever had in this store."""

    def submit(self, unit: Unit) -> None:
        """Take a unit, make it durable, then complete it."""

    async def wait_idle(self) -> None:
        """Until every unit submitted so far is completed, and everything that has changed by now is written."""

    def statistics(self) -> JournalStatistics: ...


@final
class MemoryJournal:
    """Nothing outlives the process, so a unit is as durable as it gets at once."""

    can_store: Final = False
    is_overfull: Final = False
    pending_units: Final = 0

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.gate = Gate()

    def next_subscription_id(self) -> int:
        raise NotImplementedError("durable subscriptions need a store")

    def submit(self, unit: Unit) -> None:
        unit.complete(self._clock.now_ns())

    async def wait_idle(self) -> None:
        await trio.lowlevel.checkpoint()

    def statistics(self) -> JournalStatistics:
        return JournalStatistics(engine="memory")
