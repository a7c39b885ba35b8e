"""What one chunk of a client, or one transaction, changes.

Law: a unit becomes durable as a whole, then visible as a whole; `complete` is the second step, one synchronous stretch.
"""

from __future__ import annotations

from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, final

from stompbroker.changes.effects import claim_refused, claim_settled
from stompbroker.commitlog import OffsetRanges
from stompbroker.delivery import Part, Refusal, answering, withdrawing
from stompbroker.ledger.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from stompbroker.changes.effects import Effect
    from stompbroker.delivery import Consumer, Reading, Subscription, Topic
    from stompbroker.ids import Offset
    from stompbroker.message import Message
    from stompbroker.signals import Signal

__all__ = ["Answer", "Decision", "Lane", "Unit", "Verdict"]


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
    #: For a NACK: what goes with it.
    refusal: Refusal = Refusal(0)


class Decision(NamedTuple):
    """An answer, and which messages it means."""

    answer: Answer
    parts: list[Part[Reading]]


@final
class Lane:
    """The units of one connection that are on their way: they are completed in the order they were submitted.

    Invariants:
        units and size_bytes count what was submitted and is not completed
    """

    __slots__ = ("_moved", "size_bytes", "units")

    def __init__(self, moved: Signal) -> None:
        self.units = 0
        self.size_bytes = 0
        #: Woken when a unit is completed.
        self._moved = moved

    def enter(self, unit: Unit) -> None:
        self.units += 1
        self.size_bytes += unit.size_bytes

    def leave(self, unit: Unit) -> None:
        self.units -= 1
        self.size_bytes -= unit.size_bytes
        self._moved.wake()


@final
class Unit:
    """Messages and answers, in the order they were sent; `then` is called once all of it is durable and visible.

    It may also create or delete durable subscriptions; whoever does has told the registry, and `then` finishes it. The
    broker's own units settle messages by dead letters, and take such letters out of their topic.

    Invariants:
        decisions are those that are not effects yet, and not applied
    """

    __slots__ = (
        "answered",
        "answers",
        "appended",
        "created",
        "decisions",
        "effects",
        "is_transaction",
        "lane",
        "needs_order",
        "owes_receipt",
        "publications",
        "purged",
        "refused",
        "removed",
        "removed_as",
        "size_bytes",
        "then",
    )

    def __init__(
        self,
        publications: dict[Topic, list[Message]],
        answers: list[Answer],
        then: Callable[[], None],
        *,
        lane: Lane | None = None,
        owes_receipt: bool = True,
        is_transaction: bool = False,
        created: Subscription | None = None,
        removed: Subscription | None = None,
        removed_as: Outcome = Outcome.UNSUBSCRIBED,
        effects: Sequence[Effect] = (),
        purged: Mapping[Topic, Mapping[Offset, Message]] | None = None,
        refused: Callable[[str], None] | None = None,
    ) -> None:
        self.publications = publications
        self.answers = answers
        #: Whose answers its receipts speak of; the journal's to set.
        self.answered: Collection[Subscription] = ()
        #: What the answers mean, once that is decided.
        self.decisions: list[Decision] = []
        self.then = then
        #: Whose unit it is; None for the broker's own.
        self.lane = lane
        #: Whether somebody waits to be told that it is durable.
        self.owes_receipt = owes_receipt
        #: Whether its answers count only together with its messages.
        self.is_transaction = is_transaction
        self.created = created
        self.removed = removed
        #: What that means for what the removed subscription has not settled.
        self.removed_as = removed_as
        #: What it will do to deliveries, which are pending until then.
        self.effects = list(effects)
        #: Messages that go although they are not settled; they may be without their bodies.
        self.purged = purged or {}
        #: Whether it counts only behind everything submitted before, although nothing of it is stored.
        self.needs_order = False
        #: Called instead of `then`, with the reason, if the store cannot take it at all.
        self.refused = refused
        #: The first offset of its messages in each topic that they are written to; the journal's to set.
        self.appended: Mapping[Topic, Offset] = {}
        #: What it keeps in memory while it waits; the journal's to set.
        self.size_bytes = 0

    @property
    def only_publishes(self) -> bool:
        """Whether it says nothing of what was delivered or answered."""
        others = self.answered or self.decisions or self.effects or self.purged
        return not (others or self.needs_order or self.created is not None or self.removed is not None)

    def decide(self) -> None:
        """Find out what the answers mean. That is settled when they come: their consumer may have left afterwards."""
        for answer in self.answers:
            consumer = answer.consumer
            if not consumer.is_open and not consumer.is_answerable:
                continue
            if answer.verdict is Verdict.ACK:
                self.decisions.append(Decision(answer, answering.acknowledged(consumer, answer.first, answer.last)))
            else:
                self.decisions.append(Decision(answer, answering.refused(consumer, answer.first, answer.last)))
        self.answers = []

    def apply_decisions(self, now_ns: int) -> None:
        decisions, self.decisions = self.decisions, []
        for answer, parts in decisions:
            if answer.verdict is Verdict.ACK:
                answering.settle(answer.consumer, parts, now_ns)
            else:
                answers = answer.last + 1 - answer.first
                answering.set_aside(answer.consumer, parts, answer.refusal, answers=answers)

    def claim(self, now_ns: int) -> None:
        """Its answers count when it is durable: until then what they mean is pending.

        What it both acknowledges and refuses is acknowledged, in whichever order: an ACK settles a message whatever
        state it is in, and a NACK means what is in flight.
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

    def _claim_acknowledged(self, consumer: Consumer, whole: Part[Reading], now_ns: int) -> None:
        subscription = consumer.subscription
        if subscription.is_closed:
            return
        unclaimed, pending = answering.split_pending(whole)
        for part in pending:
            answering.defer(part.reading, partial(self._claim_acknowledged, consumer, part, now_ns))
        for reading, start, stop, sent_at_ns in unclaimed:
            ranges = reading.cursor.unsettled(start, stop)
            if ranges:
                effect = claim_settled(reading, ranges, Outcome.ACKED, now_ns, sent_at_ns)
                self.effects.append(effect)
                subscription.counters.late -= effect.claimed.in_flight
            subscription.counters.late += stop - start

    def _claim_refused(self, answer: Answer, parts: list[Part[Reading]]) -> None:
        """What is pending is not in flight: to refuse that is too late."""
        subscription, refused = answer.consumer.subscription, 0
        for part in parts if not (subscription.is_closed or subscription.is_leaving) else ():
            effect = claim_refused(part, answer.refusal, holder=answer.consumer if answer.consumer.is_open else None)
            if effect is not None:
                self.effects.append(effect)
                refused += effect.claimed.total
        subscription.counters.late += max(0, answer.last + 1 - answer.first - refused)

    def undo(self, now_ns: int) -> None:
        """The store has refused it: what was pending for it is not any more."""
        effects, self.effects = self.effects, []
        for effect in effects:
            effect.undo(now_ns)

    def reserve(self) -> None:
        """The messages that have to be stored get their offsets, for as long as the store does not refuse the batch."""
        self.appended = {
            topic: topic.log.reserve(len(messages)) for topic, messages in self.publications.items() if topic.is_stored
        }

    def complete(self, now_ns: int) -> None:
        """Make it visible. Called by the journal, once, when the unit is durable."""
        for topic, messages in self.publications.items():
            topic.append(messages, now_ns, reserved=self.appended.get(topic))
        if self.answers:
            self.decide()
        if self.decisions:
            self.apply_decisions(now_ns)
        for effect in self.effects:
            effect.apply(now_ns)
        for topic, messages_at in self.purged.items():
            withdrawing.purge(topic, messages_at, now_ns)
        self.then()
