"""What the units of a batch write.

Law: a proposal. It writes the units' effects down as rows, and changes nothing: the store may refuse some of the units,
and then the rest is written down again, with what was settled meanwhile. Messages have the offsets that their logs have
reserved for them. A cursor's row
is what the cursor has settled and what the effects of this batch settle, never those of a later one. Only when the
batch is in the store, `adopt` tells the topics that are there for the first time.

Between forming a batch and its completion no other is formed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from stompbroker.changes import SetAside, SettledDeliveries
from stompbroker.commitlog import Cursor
from stompbroker.delivery import key_of
from stompbroker.ids import Offset
from stompbroker.journal.changes import add_moved_since
from stompbroker.journal.ledger_rows import accounts_of_removed, ledger_rows
from stompbroker.journal.rows import add_topic, cursor_row, redelivery_key, redelivery_row, subscription_row
from stompbroker.ledger.settled import Account
from stompbroker.storage import CursorRow, Deletion, Gap, MessageRun

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from stompbroker.changes import Effect, Unit
    from stompbroker.delivery import Pattern, Reading, Registry, Subscription, Topic
    from stompbroker.journal.rows import Numbers
    from stompbroker.message import Message
    from stompbroker.storage import Batch, RedeliveryKey, RedeliveryRow

__all__ = ["Formed"]


@final
class Formed:
    """A batch and the units that are completed when it is written."""

    __slots__ = (
        "_accounts",
        "_base",
        "_new_ids",
        "_next_ledger_id",
        "_now_ns",
        "_numbers",
        "_positions",
        "_registry",
        "accounts",
        "batch",
        "has_changes",
        "units",
    )

    def __init__(
        self,
        base: Batch,
        units: list[Unit],
        positions: Mapping[Subscription, Batch],
        registry: Registry,
        numbers: Numbers,
        accounts: list[Account],
        *,
        now_ns: int,
        next_ledger_id: Callable[[], int],
        has_changes: bool = True,
    ) -> None:
        #: What is written whatever becomes of the units, and what the ledger is told with it.
        self._base = base
        self._accounts = accounts
        #: Whether that is everything that has changed beside them.
        self.has_changes = has_changes
        #: Where new wildcard subscriptions stand, found before: their cursors, and where the topics of these end.
        self._positions = positions
        self._registry = registry
        self._numbers = numbers
        self._now_ns = now_ns
        self._next_ledger_id = next_ledger_id
        #: Numbers of topics that are not in the store yet.
        self._new_ids: dict[Topic, int] = {}
        self.units = units
        self.batch, self.accounts = self._propose(units)

    def with_only(self, units: list[Unit]) -> Batch:
        """What would be written with these of its units alone."""
        batch, _ = self._propose(units)
        return batch

    def _propose(self, units: list[Unit]) -> tuple[Batch, list[Account]]:
        """A batch, and all that it tells the ledger."""
        batch, accounts = self._base.copy(), self._accounts.copy()
        proposal = _Proposal(batch, self._positions, self._registry, self.id_of, accounts, self._now_ns)
        for unit in units:
            proposal.add(unit)
        proposal.finish()
        batch.ledger += ledger_rows(accounts, self._now_ns, self._next_ledger_id)
        return batch, accounts

    def leave_out(self, culprits: set[Unit]) -> None:
        """The store does not take these units: go on without them."""
        self.units = [unit for unit in self.units if unit not in culprits]
        # The others' cursors are looked at anew, and have moved while the store was asked.
        add_moved_since(self._base, self._accounts, self.units)
        self.batch, self.accounts = self._propose(self.units)

    def id_of(self, topic: Topic) -> int:
        if topic.store_id is not None:
            return topic.store_id
        if topic not in self._new_ids:
            self._new_ids[topic] = self._numbers.take()
        return self._new_ids[topic]

    def adopt(self) -> None:
        """The batch is in the store: so are the topics it has a row for."""
        written = {row.id for row in self.batch.topics}
        for topic, topic_id in self._new_ids.items():
            if topic_id in written:
                topic.enter_store(topic_id)
        for row in self.batch.topics:
            stored = self._registry.topics.get(key_of(row.kind, row.name))
            if stored is not None and stored.store_id == row.id:
                stored.stored_end = max(stored.stored_end, row.next_offset)


@final
class _Proposal:
    """The units of one batch, while they are being written down."""

    __slots__ = (
        "_accounts",
        "_batch",
        "_done_with",
        "_id_of",
        "_next_offsets",
        "_now_ns",
        "_positions",
        "_refused",
        "_registry",
        "_settled",
    )

    def __init__(
        self,
        batch: Batch,
        positions: Mapping[Subscription, Batch],
        registry: Registry,
        id_of: Callable[[Topic], int],
        accounts: list[Account],
        now_ns: int,
    ) -> None:
        self._batch = batch
        self._accounts = accounts
        self._now_ns = now_ns
        self._positions = positions
        self._registry = registry
        self._id_of = id_of
        self._next_offsets: dict[Topic, Offset] = {}
        #: What effects of this batch settle, beside what their cursors have settled.
        self._settled: dict[Reading, list[tuple[int, int]]] = {}
        #: Failures that may be in this batch too, and whose messages are settled with it.
        self._done_with: set[RedeliveryKey] = set()
        self._refused: list[RedeliveryRow] = []

    def add(self, unit: Unit) -> None:
        if unit.created is not None:
            self._create(unit.created)
        if unit.removed is not None and unit.removed.durability is not None:
            self._batch.removed_subscriptions.append(unit.removed.durability.store_id)
            self._accounts += accounts_of_removed(unit.removed, unit.removed_as, self._now_ns)
        for topic, first in unit.appended.items():
            self._publish(topic, first, unit.publications[topic])
        for effect in unit.effects:
            reading = effect.reading
            if reading.subscription.is_durable and reading.topic.store_id is not None:
                self._write_down(effect)
        for topic, offsets in unit.purged.items():
            if topic.store_id is not None and not topic.is_removed:
                self._batch.deletions += [Deletion(topic.store_id, offset, offset + 1) for offset in offsets]
                self._batch.gaps += [Gap(topic.store_id, offset + 1, offset) for offset in offsets]

    def finish(self) -> None:
        """Write down where all of it leaves topics and cursors. Of several rows for one thing the last counts."""
        batch = self._batch
        for topic, next_offset in self._next_offsets.items():
            add_topic(batch, topic, self._id_of(topic), next_offset)
        batch.cursors += [cursor_row(each[0], _with_settled(*each)) for each in self._settled.items()]
        if self._done_with:
            batch.redeliveries = [row for row in batch.redeliveries if row[:3] not in self._done_with]
            batch.settled_redeliveries += self._done_with
        batch.redeliveries += self._refused
        if batch.removed_subscriptions:
            # They may have moved just before, or have been created by an earlier unit of this very batch.
            removed = set(batch.removed_subscriptions)
            batch.subscriptions = [row for row in batch.subscriptions if row.id not in removed]
            batch.cursors = [row for row in batch.cursors if row.subscription_id not in removed]
            batch.redeliveries = [row for row in batch.redeliveries if row.subscription_id not in removed]

    def _next_offset(self, topic: Topic) -> Offset:
        return self._next_offsets.setdefault(topic, topic.log.end_offset)

    def _publish(self, topic: Topic, first: Offset, messages: list[Message]) -> None:
        topic_id = self._id_of(topic)
        self._next_offsets[topic] = Offset(first + len(messages))
        if all(message.origin.is_persistent for message in messages):
            self._batch.messages.append(MessageRun(topic_id, first, messages))
            return
        for offset, message in enumerate(messages, first):
            if message.origin.is_persistent:
                self._batch.messages.append(MessageRun(topic_id, Offset(offset), [message]))
            else:
                self._batch.gaps.append(Gap(topic_id, offset + 1, offset))

    def _create(self, subscription: Subscription) -> None:
        """No cursor means that everything there is is unsettled: it needs one where something was stored before it, in
        earlier batches or by earlier units of this one."""
        row = subscription_row(subscription)
        self._batch.subscriptions.append(row)
        positions = self._positions.get(subscription)
        if positions is not None:
            self._batch.topics += positions.topics
            self._batch.gaps += positions.gaps
            self._batch.cursors += positions.cursors
        for topic in self._topics_named_by(subscription.pattern):
            offset = self._next_offset(topic)
            if subscription.starts_at is not None:
                offset = min(offset, subscription.starts_at.start)
            self._batch.cursors.append(CursorRow(row.id, self._id_of(topic), offset, (), offset))

    def _topics_named_by(self, pattern: Pattern) -> list[Topic]:
        """The very topic that is meant; or of those that are, the ones this batch publishes to."""
        if pattern.is_exact:
            topic = self._registry.topics.get(pattern.key)
            return [] if topic is None else [topic]
        return [topic for topic in self._next_offsets if pattern.matches(topic.destination)]

    def _write_down(self, effect: Effect) -> None:
        reading = effect.reading
        if isinstance(effect, SettledDeliveries) and effect.records:
            self._accounts.append(Account(reading.party, effect.records))
        if reading.subscription.is_closed:
            return  # it was removed by a batch before
        # Also for what is set aside: a start takes no notice of the failure of a message that was never sent.
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
    """Where a subscription stands when these are settled too."""
    cursor = Cursor.restored(reading.cursor.ack_floor, reading.cursor.settled_ranges, reading.cursor.next_offset)
    for start, stop in ranges:
        cursor.settle(start, stop)
    return cursor
