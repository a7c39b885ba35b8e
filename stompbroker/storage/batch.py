"""What is written in one transaction, and what is read at start: plain values.

They are the border between those who decide what is kept and those who know SQL. Times are nanoseconds since the epoch;
ranges are half-open. `schema.py` makes columns of the fields, so their types are there at run time.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Final, NamedTuple, Self, final

from stompbroker.ids import Offset
from stompbroker.message import Message


class TopicRow(NamedTuple):
    id: int
    #: topic or queue. Kind and name together are unique.
    kind: str
    name: str
    #: The offset of its next message. Above every stored offset, and not below any stored cursor.
    next_offset: Offset
    #: Every offset whole_from <= o < next_offset has a message or lies in a gap; otherwise it is lost. None: not known.
    whole_from: Offset | None = None


class Gap(NamedTuple):
    """Offsets start <= o < stop of a topic have no message, for a reason: it was never stored, or deleted although
    something below is kept."""

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
    #: As the subscriber wrote it, and its canonical form, which names the kind unless it is a topic.
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
    #: The subscriber's wishes for its deliveries, as JSON; empty if it has none.
    delivery: str


class CursorRow(NamedTuple):
    """Where a subscription stands in a topic."""

    subscription_id: int
    topic_id: int
    #: Every offset below it is settled.
    ack_floor: Offset
    #: Settled ranges above the floor, sorted and disjoint. Behind them, what was passed over and never sent, if there
    #: is any: ranges as well, but each written as (stop, start).
    settled: tuple[tuple[int, int], ...]
    #: As far as we know, nothing from it on was ever sent.
    sent_up_to: Offset
    #: How often an operator moved it.
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
    #: 0: not known.
    first_attempt_at_ns: int
    last_attempt_at_ns: int
    #: Not tried again, whatever the policy says.
    is_final: bool
    #: How many of the attempts were refused.
    nacks: int = 0


class ProducerRow(NamedTuple):
    """A producer that numbers its messages."""

    #: The user it belongs to; empty without login.
    owner: str
    name: str
    epoch: int
    #: The numbers of its published messages: sorted and disjoint ranges.
    taken: tuple[tuple[int, int], ...]
    used_at_ns: int


class LastValueRow(NamedTuple):
    """The last value of a topic."""

    #: The topic's name.
    name: str
    published_at_ns: int
    publisher: str
    body_bytes: int
    expires_at_ns: int | None
    tail: bytes


class ProducerKey(NamedTuple):
    owner: str
    name: str


class Deletion(NamedTuple):
    """Delete the messages of a topic at offsets start <= o < stop."""

    topic_id: int
    start: int
    stop: int


class LedgerRow(NamedTuple):
    """Records of the ledger of one kind and day."""

    #: Rising.
    id: int
    #: The table of the lake.
    kind: str
    #: Days since the epoch.
    day: int
    records: int
    made_at_ns: int
    #: Packs the records when it is first called, which may take long, so not in the event loop; then returns the same
    #: bytes again.
    payload: Callable[[], bytes]


class ExportRow(NamedTuple):
    """A file of the lake that is being written, or whose batches are not yet all deleted."""

    id: int
    kind: str
    day: int
    #: Of the file, in the directory of its kind and day.
    name: str
    #: The file holds all batches of its kind and day with after_batch < id <= last_batch.
    after_batch: int
    last_batch: int
    #: Expected count; a mismatch means that batches were deleted meanwhile.
    records: int
    planned_at_ns: int
    #: The file is complete and never written again: its batches may be deleted.
    is_written: bool = False


class ExportedBatches(NamedTuple):
    """Delete the batches of a kind and day with after_batch < id <= last_batch: a file holds them."""

    kind: str
    day: int
    after_batch: int
    last_batch: int


class Gathered(NamedTuple):
    """A group of neighbouring batches of one kind and day, all for one export or for none yet."""

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

    #: One more than that of the batch before; the fence compares it.
    number: int
    #: Removed with all their messages, cursors and redeliveries.
    removed_topics: list[int] = field(default_factory=list)
    removed_subscriptions: list[int] = field(default_factory=list)
    #: New or changed rows.
    topics: list[TopicRow] = field(default_factory=list)
    subscriptions: list[SubscriptionRow] = field(default_factory=list)
    messages: list[MessageRun] = field(default_factory=list)
    cursors: list[CursorRow] = field(default_factory=list)
    settled_redeliveries: list[RedeliveryKey] = field(default_factory=list)
    redeliveries: list[RedeliveryRow] = field(default_factory=list)
    #: Names of topics.
    removed_values: list[str] = field(default_factory=list)
    last_values: list[LastValueRow] = field(default_factory=list)
    removed_producers: list[ProducerKey] = field(default_factory=list)
    producers: list[ProducerRow] = field(default_factory=list)
    deletions: list[Deletion] = field(default_factory=list)
    #: Neighbours become one row. A deletion also deletes the gaps below `whole_from`.
    gaps: list[Gap] = field(default_factory=list)
    ledger: list[LedgerRow] = field(default_factory=list)
    #: New or changed rows.
    exports: list[ExportRow] = field(default_factory=list)
    exported: list[ExportedBatches] = field(default_factory=list)
    #: Removed with all batches in their files.
    finished_exports: list[ExportRow] = field(default_factory=list)

    def copy(self) -> Self:
        """One that can be extended without changing this one."""
        copied = type(self)(number=self.number)
        for name in PARTS:
            if part := getattr(self, name):
                setattr(copied, name, list(part))
        return copied


PARTS: Final = tuple(part.name for part in fields(Batch) if part.name != "number")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Everything that is stored except messages."""

    #: With the offset of the first message, if there is one.
    topics: list[tuple[TopicRow, Offset | None]]
    subscriptions: list[SubscriptionRow]
    cursors: list[CursorRow]
    redeliveries: list[RedeliveryRow]
    #: The keys of those that have one, by topic and offset.
    failed_keys: dict[tuple[int, int], str]
    producers: list[ProducerRow]
    last_values: list[LastValueRow]
    exports: list[ExportRow]
    #: All batches of the ledger, in order.
    gathered: list[Gathered]
