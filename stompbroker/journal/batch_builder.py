"""Writes the effects of units down as the rows of a batch.

Law: a proposal that changes nothing. If the store refuses some units, the rest is written down again, with what was
settled meanwhile. A cursor's row holds what the cursor has settled and what the effects of this batch settle, never
those of a later one. Only `adopt`, after the commit, changes topics. No other batch is formed until this one is
completed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

from stompbroker.changes import (
    Appended,
    Created,
    Forgotten,
    Introduced,
    Numbered,
    PendingDeliveries,
    Purged,
    Removed,
    SetAside,
    SettledDeliveries,
    Told,
    ValueChanged,
)
from stompbroker.commitlog import Cursor, OffsetRanges
from stompbroker.delivery import key_of
from stompbroker.ids import Offset
from stompbroker.journal.changes import Base, add_moved_since
from stompbroker.journal.rows import (
    accounts_of_removed,
    add_topic,
    cursor_row,
    last_value_row,
    ledger_rows,
    producer_row,
    redelivery_key,
    redelivery_row,
    subscription_row,
)
from stompbroker.ledger.records import Account
from stompbroker.message import is_persistent
from stompbroker.storage import CursorRow, Deletion, Gap, MessageRun, ProducerKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from stompbroker.changes import Effect, Producer, Unit
    from stompbroker.delivery import Pattern, Reading, Registry, Subscription, Topic, Untold
    from stompbroker.message import Message
    from stompbroker.storage import Batch, RedeliveryKey, RedeliveryRow


@final
@dataclass(slots=True, eq=False, kw_only=True)
class Formed:
    """A batch and the units that are completed when it is written."""

    base: Base
    units: list[Unit]
    #: Where new wildcard subscriptions stand: their cursors, and where the topics of these end.
    positions: Mapping[Subscription, Batch]
    registry: Registry
    numbers: Iterator[int]
    now_ns: int
    next_ledger_id: Callable[[], int]
    #: Makes a unit of what publishers are told, or none.
    tell: Callable[[list[Untold]], list[Unit]]
    batch: Batch = field(init=False)
    #: All that the batch tells the ledger.
    accounts: list[Account] = field(init=False)
    #: While it is found out what the store refuses: units that it takes if they tell publishers nothing.
    mute: set[Unit] = field(init=False, default_factory=set)
    #: Numbers of topics that are not in the store yet.
    _new_ids: dict[Topic, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.batch, self.accounts = self._propose(self.units)

    def with_only(self, units: list[Unit]) -> Batch:
        """What would be written with these of its units alone, of which the mute ones tell publishers nothing."""
        return self._propose(units)[0]

    def _propose(self, units: list[Unit]) -> tuple[Batch, list[Account]]:
        proposal = _Proposal(self, self.base.batch.copy(), self.base.accounts.copy())
        for unit in units:
            for effect in unit.effects:
                if not (isinstance(effect, Told) and unit in self.mute):
                    proposal.add(effect)
        proposal.finish()
        proposal.batch.ledger += ledger_rows(proposal.accounts, self.now_ns, self.next_ledger_id)
        return proposal.batch, proposal.accounts

    def leave_out(self, culprits: set[Unit]) -> None:
        """Go on without these units, which the store has refused. The others get new offsets, without gaps."""
        self.units = [unit for unit in self.units if unit not in culprits]
        # The others' cursors are looked at anew, and have moved while the store was asked.
        add_moved_since(self.base, self.units)
        self.units += self.tell(self.base.take_untold())
        for unit in self.units:
            for effect in unit.effects:
                effect.reserve()
        self.batch, self.accounts = self._propose(self.units)

    def id_of(self, topic: Topic) -> int:
        if topic.store_id is not None:
            return topic.store_id
        if topic not in self._new_ids:
            self._new_ids[topic] = next(self.numbers)
        return self._new_ids[topic]

    def adopt(self) -> None:
        """The batch is in the store: so are the topics it has a row for."""
        written = {row.id for row in self.batch.topics}
        for topic, topic_id in self._new_ids.items():
            if topic_id in written:
                topic.enter_store(topic_id)
        for row in self.batch.topics:
            stored = self.registry.topics.get(key_of(row.kind, row.name))
            if stored is not None and stored.store_id == row.id:
                stored.stored_end = max(stored.stored_end, row.next_offset)


@final
class _Proposal:
    """The effects of one batch, while they are being written down."""

    __slots__ = (
        "_done_with",
        "_formed",
        "_next_offsets",
        "_refused",
        "_settled",
        "_taking",
        "_values",
        "accounts",
        "batch",
    )

    def __init__(self, formed: Formed, batch: Batch, accounts: list[Account]) -> None:
        self._formed = formed
        self.batch = batch
        self.accounts = accounts
        self._next_offsets: dict[Topic, Offset] = {}
        #: What effects of this batch settle, beside what their cursors have settled.
        self._settled: dict[Reading, list[tuple[int, int]]] = {}
        #: Failures whose messages are settled with this batch, which may have them too.
        self._done_with: set[RedeliveryKey] = set()
        self._refused: list[RedeliveryRow] = []
        #: The last values that it sets, or takes away (None); the last change of each counts.
        self._values: dict[Pattern, Message | None] = {}
        #: The numbers that this batch takes.
        self._taking: dict[Producer, OffsetRanges] = {}

    def add(self, effect: Effect) -> None:
        match effect:
            case Appended():
                self._append(effect)
                if isinstance(effect, Numbered) and effect.first is not None and effect.taking is not None:
                    taking = self._taking.setdefault(effect.producer, OffsetRanges())
                    for start, stop in effect.taking:
                        taking.add(start, stop)
            case ValueChanged(destination=destination) if not effect.is_void:
                if effect.expired is None or destination not in self._values:
                    self._values[destination] = effect.message
            case Introduced(producer=producer):
                self._taking.setdefault(producer, OffsetRanges())
            case Forgotten(idle=idle):
                self.batch.removed_producers += [ProducerKey(each.owner, each.name) for each, _ in idle]
            case PendingDeliveries():
                self._decide(effect)
            case Purged(topic=topic) if topic.store_id is not None and not topic.is_removed:
                self.batch.deletions += [Deletion(topic.store_id, offset, offset + 1) for offset in effect.messages]
                self.batch.gaps += [Gap(topic.store_id, offset + 1, offset) for offset in effect.messages]
            case Created(subscription=subscription):
                self._create(subscription)
            case Removed(subscription=subscription):
                assert subscription.store_id is not None
                self.batch.removed_subscriptions.append(subscription.store_id)
                self.accounts += accounts_of_removed(subscription, effect.outcome, self._formed.now_ns)

    def finish(self) -> None:
        """Add the rows of topics and cursors as they are after all effects. Of several rows for one thing the last
        counts."""
        batch = self.batch
        for topic, next_offset in self._next_offsets.items():
            add_topic(batch, topic, self._formed.id_of(topic), next_offset)
        batch.cursors += [cursor_row(each[0], _with_settled(*each)) for each in self._settled.items()]
        if self._done_with:
            batch.redeliveries = [row for row in batch.redeliveries if row[:3] not in self._done_with]
            batch.settled_redeliveries += self._done_with
        batch.redeliveries += self._refused
        for destination, message in self._values.items():
            # persistent:false: after a restart there is none, rather than the one before.
            if message is None or not message.origin.is_persistent:
                batch.removed_values.append(destination.name)
            else:
                batch.last_values.append(last_value_row(destination, message))
        batch.producers += [producer_row(producer, taking) for producer, taking in self._taking.items()]
        if batch.removed_subscriptions:
            # They may have moved just before, or have been created by an earlier unit of this very batch.
            removed = set(batch.removed_subscriptions)
            batch.subscriptions = [row for row in batch.subscriptions if row.id not in removed]
            batch.cursors = [row for row in batch.cursors if row.subscription_id not in removed]
            batch.redeliveries = [row for row in batch.redeliveries if row.subscription_id not in removed]

    def _append(self, effect: Appended) -> None:
        first, messages = effect.first, effect.messages
        if first is None:
            return  # its topic is not stored
        topic_id = self._formed.id_of(effect.topic)
        self._next_offsets[effect.topic] = Offset(first + len(messages))
        if all(map(is_persistent, messages)):
            self.batch.messages.append(MessageRun(topic_id, first, messages))
            return
        for offset, message in enumerate(messages, first):
            if message.origin.is_persistent:
                self.batch.messages.append(MessageRun(topic_id, Offset(offset), [message]))
            else:
                self.batch.gaps.append(Gap(topic_id, offset + 1, offset))

    def _create(self, subscription: Subscription) -> None:
        """It needs a cursor in topics where earlier batches, or earlier units of this one, have stored something:
        without a cursor all of that is unsettled."""
        row = subscription_row(subscription)
        self.batch.subscriptions.append(row)
        positions = self._formed.positions.get(subscription)
        if positions is not None:
            self.batch.topics += positions.topics
            self.batch.gaps += positions.gaps
            self.batch.cursors += positions.cursors
        for topic in self._topics_named_by(subscription.pattern):
            offset = self._next_offsets.setdefault(topic, topic.log.end_offset)
            if subscription.starts_at is not None:
                offset = min(offset, subscription.starts_at.start)
            self.batch.cursors.append(CursorRow(row.id, self._formed.id_of(topic), offset, (), offset))

    def _topics_named_by(self, pattern: Pattern) -> list[Topic]:
        """The topic of an exact pattern; of a wildcard, the topics that this batch publishes to."""
        if pattern.is_exact:
            topic = self._formed.registry.topics.get(pattern.key)
            return [] if topic is None else [topic]
        return [topic for topic in self._next_offsets if pattern.matches(topic.destination)]

    def _decide(self, effect: PendingDeliveries) -> None:
        reading = effect.reading
        if not effect.is_stored or reading.topic.store_id is None:
            return
        if isinstance(effect, SettledDeliveries) and effect.records:
            self.accounts.append(Account(reading.party, effect.records))
        if reading.subscription.is_closed:
            return  # it was removed by a batch before
        # Also for what is set aside: at start, failures of messages that were never sent are ignored.
        settled = self._settled.setdefault(reading, [])
        if isinstance(effect, SettledDeliveries):
            settled += effect.claimed.ranges
            for start, stop in effect.claimed.ranges:
                failed = [offset for offset in reading.failures if start <= offset < stop]
                self._done_with.update(redelivery_key(reading, offset) for offset in failed)
        elif isinstance(effect, SetAside):
            self._refused += [
                redelivery_row(redelivery_key(reading, offset), failure) for offset, failure in effect.failures.items()
            ]


def _with_settled(reading: Reading, ranges: list[tuple[int, int]]) -> Cursor:
    """The cursor when these are settled too."""
    now = reading.cursor
    cursor = Cursor.restored(now.ack_floor, now.settled_ranges, now.next_offset, now.held_up_ranges)
    for start, stop in ranges:
        cursor.settle(start, stop)
    return cursor
