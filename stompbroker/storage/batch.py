"""What is written in one transaction, and what is read at start.

Law: plain values, the border between those who decide what is kept and those who know SQL. A batch is written as a
whole or not at all. Times are nanoseconds since the epoch; ranges are half-open.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, NamedTuple, final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stompbroker.ids import Offset
    from stompbroker.message import Message

__all__ = [
    "Batch",
    "CursorRow",
    "Deletion",
    "Kept",
    "MessageRun",
    "RedeliveryKey",
    "RedeliveryRow",
    "SubscriptionRow",
    "TopicRow",
]


class TopicRow(NamedTuple):
    id: int
    name: str
    #: The offset its next message gets. Above every offset that is stored, and not below any stored cursor.
    next_offset: Offset


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
    #: As the subscriber spelt it, and its canonical form.
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


class Deletion(NamedTuple):
    """The messages of a topic at offsets start <= o < stop go."""

    topic_id: int
    start: int
    stop: int


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

    def copy(self) -> Batch:
        """One that can be added to without changing this one."""
        return Batch(
            number=self.number,
            **{part.name: list(getattr(self, part.name)) for part in fields(self) if part.name != "number"},
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Everything that is kept but messages; with each topic the offset of the first message there is, if any."""

    topics: list[tuple[TopicRow, Offset | None]]
    subscriptions: list[SubscriptionRow]
    cursors: list[CursorRow]
    redeliveries: list[RedeliveryRow]
