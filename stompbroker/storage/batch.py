"""What is written in one transaction, and what is read at start.

Law: plain values, the border between those who decide what is kept and those who know SQL. A batch is written as a
whole or not at all. Times are nanoseconds since the epoch; ranges are half-open.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Final, NamedTuple, final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stompbroker.ids import Offset
    from stompbroker.message import Message

__all__ = [
    "Batch",
    "CursorRow",
    "Deletion",
    "ExportRow",
    "ExportedBatches",
    "Gap",
    "Gathered",
    "Kept",
    "LedgerRow",
    "MessageRun",
    "RedeliveryKey",
    "RedeliveryRow",
    "SubscriptionRow",
    "TopicRow",
]


class TopicRow(NamedTuple):
    id: int
    #: topic or queue; with the name it is unlike any other's.
    kind: str
    name: str
    #: The offset its next message gets. Above every offset that is stored, and not below any stored cursor.
    next_offset: Offset
    #: Every offset from it on and below `next_offset` has a message or lies in a gap. None: nothing is known.
    whole_from: Offset | None = None


class Gap(NamedTuple):
    """Offsets start <= o < stop of a topic have no message, and that is right."""

    topic_id: int
    stop: int
    start: int


class MessageRun(NamedTuple):
    """Messages in a row: `messages[i]` has offset `first_offset + i` of the topic."""

    topic_id: int
    first_offset: Offset
    messages: Sequence[Message]


class SubscriptionRow(NamedTuple):
    """A durable subscription. (owner, kind, scope, name) is its identity."""

    id: int
    #: Empty until there is login.
    owner: str
    #: "named": the scope is a client id; "addressed": the scope is the pattern it subscribes to.
    kind: str
    scope: str
    name: str
    #: As the subscriber spelt it, and its canonical form, which says the kind unless it is a topic.
    destination: str
    pattern: str
    #: auto, client or client-individual.
    ack_mode: str
    is_no_local: bool
    created_at_ns: int
    #: When a client was last attached to it.
    last_seen_at_ns: int
    #: Whether a message that failed holds up those behind it.
    is_ordered: bool
    #: What the subscriber wishes for its deliveries, as JSON; empty if nothing.
    delivery: str


class CursorRow(NamedTuple):
    """Where a subscription stands in a topic."""

    subscription_id: int
    topic_id: int
    #: Everything below it is settled.
    ack_floor: Offset
    #: What is settled above the floor: sorted, disjoint ranges.
    settled: tuple[tuple[int, int], ...]
    #: Everything from it on was never sent, as far as we know.
    sent_up_to: Offset
    #: How often it was moved to another place.
    generation: int = 0


class RedeliveryKey(NamedTuple):
    subscription_id: int
    topic_id: int
    offset: Offset


class RedeliveryRow(NamedTuple):
    """A message that has failed at least once for a subscription, and is not settled."""

    subscription_id: int
    topic_id: int
    offset: Offset
    attempts: int
    due_at_ns: int
    reason: str
    #: 0 if not known.
    first_attempt_at_ns: int
    last_attempt_at_ns: int
    #: Not tried again, whatever the policy says.
    is_final: bool
    #: How many of the attempts were refused.
    nacks: int = 0


class Deletion(NamedTuple):
    """The messages of a topic at offsets start <= o < stop go."""

    topic_id: int
    start: int
    stop: int


class LedgerRow(NamedTuple):
    """Records of the ledger of one kind and day."""

    #: Above that of every earlier one.
    id: int
    #: Which table of the lake they belong to.
    kind: str
    #: Days since the epoch.
    day: int
    records: int
    made_at_ns: int
    #: Packs the records when it is first called, and returns the same bytes from then on. Called first where the batch
    #: is encoded for the writing process, or in the thread that writes: a large one takes its time.
    payload: Callable[[], bytes]


class ExportRow(NamedTuple):
    """A file of the lake that is being written, or whose batches are not yet all deleted."""

    id: int
    kind: str
    day: int
    #: Of the file.
    name: str
    #: It holds all batches of its kind and day with after_batch < id <= last_batch.
    after_batch: int
    last_batch: int
    #: Expected count; a mismatch means that batches were deleted meanwhile.
    records: int
    planned_at_ns: int
    #: The file is there, and never written again: its batches may be deleted.
    is_written: bool = False


class ExportedBatches(NamedTuple):
    """The batches of a kind and day with after_batch < id <= last_batch go: a file holds them."""

    kind: str
    day: int
    after_batch: int
    last_batch: int


class Gathered(NamedTuple):
    """Some batches of one kind and day, close to each other, that are all for one export, or for none yet."""

    kind: str
    day: int
    #: 0 for none.
    export: int
    last_batch: int
    records: int
    payload_bytes: int
    oldest_made_at_ns: int


@final
@dataclass(slots=True, kw_only=True)
class Batch:
    """One transaction, in the order in which its parts are written."""

    #: One more than that of the batch before; the fence.
    number: int
    #: These go with all that belongs to them: messages, cursors, redeliveries.
    removed_topics: list[int] = field(default_factory=list)
    removed_subscriptions: list[int] = field(default_factory=list)
    #: New or changed rows.
    topics: list[TopicRow] = field(default_factory=list)
    subscriptions: list[SubscriptionRow] = field(default_factory=list)
    messages: list[MessageRun] = field(default_factory=list)
    cursors: list[CursorRow] = field(default_factory=list)
    settled_redeliveries: list[RedeliveryKey] = field(default_factory=list)
    redeliveries: list[RedeliveryRow] = field(default_factory=list)
    deletions: list[Deletion] = field(default_factory=list)
    #: Where there is no message from now on; neighbours become one row. Those below `whole_from` go with a deletion.
    gaps: list[Gap] = field(default_factory=list)
    ledger: list[LedgerRow] = field(default_factory=list)
    #: New ones, and those that have been written since.
    exports: list[ExportRow] = field(default_factory=list)
    #: Some of what a file holds; all of it need not go at once.
    exported: list[ExportedBatches] = field(default_factory=list)
    #: These go, with all batches that their files hold.
    finished_exports: list[ExportRow] = field(default_factory=list)

    def copy(self) -> Batch:
        """One that can be added to without changing this one."""
        copied = Batch(number=self.number)
        for name in _PARTS:
            if part := getattr(self, name):
                setattr(copied, name, list(part))
        return copied


_PARTS: Final = tuple(part.name for part in fields(Batch) if part.name != "number")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Everything that is kept but messages; with each topic the offset of the first message there is, if any."""

    topics: list[tuple[TopicRow, Offset | None]]
    subscriptions: list[SubscriptionRow]
    cursors: list[CursorRow]
    redeliveries: list[RedeliveryRow]
    exports: list[ExportRow]
    #: All batches of the ledger, in their order.
    gathered: list[Gathered]
