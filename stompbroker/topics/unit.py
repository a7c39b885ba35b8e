"""What one chunk of a client, or one transaction, changes.

Law: a unit becomes durable as a whole, then visible as a whole; `complete` is the second step, one synchronous stretch.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, final

from stompbroker.outcome import Outcome
from stompbroker.topics.failure import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from stompbroker.ids import Offset
    from stompbroker.message import Message
    from stompbroker.signals import Signal
    from stompbroker.topics.consumer import Consumer
    from stompbroker.topics.reading import Reading
    from stompbroker.topics.sent_runs import Part
    from stompbroker.topics.subscription import Subscription
    from stompbroker.topics.topic import Topic

__all__ = ["Answer", "Burial", "Decision", "Lane", "Unit", "Verdict"]


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
    parts: list[Part]


class Burial(NamedTuple):
    """A message whose attempts are used up for one subscription: it is settled when the unit is completed."""

    reading: Reading
    offset: Offset


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
    broker's own units bury messages, and take dead letters out of their topic.
    """

    __slots__ = (
        "answered",
        "answers",
        "burials",
        "created",
        "decisions",
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
        "stored_topics",
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
        burials: Sequence[Burial] = (),
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
        self.burials = burials
        #: Messages that go although they are not settled; they may be without their bodies.
        self.purged = purged or {}
        #: Whether it counts only behind everything submitted before, although nothing of it is stored.
        self.needs_order = False
        #: Called instead of `then`, with the reason, if the store cannot take it at all.
        self.refused = refused
        #: Which of its topics are written with the batch being formed; the journal's to set.
        self.stored_topics: Collection[Topic] = ()
        #: What it keeps in memory while it waits; the journal's to set.
        self.size_bytes = 0

    @property
    def only_publishes(self) -> bool:
        """Whether it says nothing of what was delivered or answered."""
        others = self.answered or self.decisions or self.burials or self.purged
        return not (others or self.needs_order or self.created is not None or self.removed is not None)

    def decide(self) -> None:
        """Find out what the answers mean. That is settled when they come: their consumer may have left afterwards."""
        for answer in self.answers:
            consumer = answer.consumer
            if not consumer.is_open and not consumer.is_answerable:
                continue
            if answer.verdict is Verdict.ACK:
                self.decisions.append(Decision(answer, consumer.take_acknowledged(answer.first, answer.last)))
            else:
                self.decisions.append(Decision(answer, consumer.take_refused(answer.first, answer.last)))
        self.answers = []

    def apply_decisions(self, now_ns: int) -> None:
        decisions, self.decisions = self.decisions, []
        for answer, parts in decisions:
            if answer.verdict is Verdict.ACK:
                answer.consumer.settle(parts, now_ns)
            else:
                answer.consumer.set_aside(parts, answer.refusal, answers=answer.last + 1 - answer.first)

    def complete(self, now_ns: int, stored_topics: Collection[Topic] = ()) -> None:
        """Make it visible. Called by the journal, once, when the unit is durable; what was published to `stored_topics`
        has been written."""
        for topic, messages in self.publications.items():
            topic.append(messages, now_ns, is_stored=topic in stored_topics)
        if self.answers:
            self.decide()
        if self.decisions:
            self.apply_decisions(now_ns)
        for burial in self.burials:
            burial.reading.bury(burial.offset, now_ns)
        for topic, messages_at in self.purged.items():
            topic.purge(messages_at, now_ns)
        self.then()
