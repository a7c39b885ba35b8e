"""Adds to a batch what has changed in memory beside units. It is written even if the store refuses the units.

Law: generators of short steps, between which others run. What changes after it was written down is unsaved again and
goes with the next batch; or with this batch's last step, if its units or deletions depend on it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final, final

from stompbroker.delivery import collecting
from stompbroker.journal.rows import add_topic, cursor_row, redelivery_key, redelivery_row, subscription_row
from stompbroker.storage import CursorRow, Deletion, Gap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from stompbroker.changes import Unit
    from stompbroker.delivery import Reading, Registry, Subscription, Topic, Untold
    from stompbroker.ids import Offset
    from stompbroker.ledger.records import Account
    from stompbroker.storage import Batch

#: Messages deleted in one batch, at most.
MAX_DELETED: Final = 5_000
#: Fewer than this of one topic, and between two unsettled messages, are left until the journal is idle.
MIN_DELETED: Final = 100
MIN_BETWEEN_HOLES: Final = 16
#: Ranges deleted in one batch, at most: each is a condition of its own to the database.
MAX_RANGES: Final = 256
#: Things looked at in one step; each takes a few microseconds.
STEP: Final = 100
#: Failures written with a batch beside other work, and when there is none: each is a row that all its units wait for.
FAILURES_BESIDE: Final = 64
FAILURES_IDLE: Final = 512
#: At least one in so many of a reading's failures is written, so that they do not pile up.
FAILURES_PART: Final = 64


@final
@dataclass(slots=True, eq=False)
class Base:
    """What is written even if all units of a batch are refused."""

    batch: Batch
    #: What the ledger is told with it.
    accounts: list[Account] = field(default_factory=list)
    #: What publishers are to be told of it.
    untold: list[Untold] = field(default_factory=list)

    def take_settled(self, reading: Reading) -> None:
        """What `reading` has settled since it was last asked. The removal of a closed subscription has accounted for
        everything itself, and only its publishers are still to be told."""
        accounts = reading.unrecorded.take(reading)
        self.untold += reading.unrecorded.take_untold()
        if not reading.subscription.is_closed:
            self.accounts += accounts

    def take_untold(self) -> list[Untold]:
        untold, self.untold = self.untold, []
        return untold


def add_unsaved(
    base: Base,
    registry: Registry,
    *,
    most_failures: int,
    is_owed: Callable[[Subscription], bool],
) -> Iterator[None]:
    """Cursors that have moved together with what was settled by that and what publishers are told of it, failures that
    came or went, subscriptions that were seen. Must come before the units, whose cursor rows replace these.

    At most `most_failures` failures, the oldest changes first, but all of a subscription that `is_owed` a receipt. The
    rest stays unsaved: meanwhile the store misses an attempt, or has a failure of a settled message.
    """
    readings, subscriptions = registry.unsaved.take()
    left, batch = most_failures, base.batch
    for subscription in subscriptions:
        if not subscription.is_closed and subscription.has_begun:
            batch.subscriptions.append(subscription_row(subscription))
    looked_at = 0
    for reading in readings:
        if looked_at >= STEP:
            looked_at = 0
            yield
        base.take_settled(reading)
        if reading.subscription.is_closed:
            continue
        changed = reading.changed_failures
        count = len(changed)
        if not is_owed(reading.subscription):
            count = min(count, max(left, count // FAILURES_PART))
        looked_at += 1 + count
        if reading.topic.is_removed or reading.topic.store_id is None:
            continue
        left = max(0, left - count)
        batch.cursors.append(cursor_row(reading, reading.cursor))
        for offset in list(islice(changed, count)):
            del changed[offset]
            key = redelivery_key(reading, offset)
            failure = reading.failures.get(offset)
            if failure is None:
                batch.settled_redeliveries.append(key)
            else:
                batch.redeliveries.append(redelivery_row(key, failure))
                failure.is_stored = True
        if changed:
            registry.unsaved.note_reading(reading, 0)


def add_moved_since(base: Base, units: Iterable[Unit]) -> None:
    """What was settled since `add_unsaved` in readings of these units: their cursors are written as they are now, and
    must not say more than the ledger. Must come in the last step."""
    for unit in units:
        for effect in unit.effects:
            for reading in effect.readings:
                _add_moved(base, reading)


def add_deleted_since(base: Base, registry: Registry) -> None:
    """The same for topics of which the batch deletes messages: the ledger could not describe those afterwards."""
    topics = {deletion.topic_id for deletion in base.batch.deletions}.union(base.batch.removed_topics)
    if topics:
        for reading in registry.unsaved.readings:
            if reading.topic.store_id in topics:
                _add_moved(base, reading)


def _add_moved(base: Base, reading: Reading) -> None:
    if not reading.unrecorded or reading.subscription.is_closed:
        return
    base.take_settled(reading)
    if not reading.topic.is_removed and reading.topic.store_id is not None:
        base.batch.cursors.append(cursor_row(reading, reading.cursor))


def add_collected(batch: Batch, registry: Registry, now_ns: int, *, most: int, is_idle: bool) -> Iterator[None]:
    """Delete messages that everybody has settled. The cursors that allow it are in this batch or an earlier one;
    `add_deleted_since` adds those that moved between two steps."""
    left = min(most, MAX_DELETED)
    ranges_left = MAX_RANGES
    for number, topic in enumerate(list(registry.unsaved.collectable)):
        if number % STEP == STEP - 1:
            yield
        if topic not in registry.unsaved.collectable:
            continue  # it was removed between two steps
        floor = collecting.collectable_up_to(topic, now_ns)
        for start, stop in _to_delete(topic, floor, ranges_left, is_idle=is_idle):
            stop = min(stop, start + left)
            assert topic.store_id is not None
            batch.deletions.append(Deletion(topic.store_id, start, stop))
            is_from_the_start = start <= topic.collected_up_to
            collecting.note_collected(topic, start, stop)
            if is_from_the_start:
                add_topic(batch, topic, topic.store_id, topic.log.end_offset)
            else:
                batch.gaps.append(Gap(topic.store_id, stop, start))
            left -= stop - start
            ranges_left -= 1
            if not left or not ranges_left:
                return
        if topic.store_id is None or topic.collected_up_to >= floor:
            registry.unsaved.collectable.pop(topic, None)


def _to_delete(topic: Topic, floor: Offset, max_ranges: int, *, is_idle: bool) -> list[tuple[int, int]]:
    """Ranges of one topic: below the floor, and settled ones above it that the collector has found."""
    least = 1 if is_idle else MIN_DELETED
    found: list[tuple[int, int]] = []
    if topic.store_id is None:
        return found
    if floor - topic.collected_up_to >= least:
        found.append((topic.collected_up_to, floor))
    ranges, topic.between_holes = topic.between_holes, []
    for start, stop in ranges:
        if stop - max(start, floor) >= min(least, MIN_BETWEEN_HOLES):
            found.append((max(start, floor), stop))
    return found[:max_ranges]


def find_positions(subscription: Subscription, registry: Registry, found: Batch) -> Iterator[None]:
    """Where a new wildcard subscription begins in topics that may hold stored messages. Their logs do not grow until
    the batch is completed, since everything published to them goes through the journal."""
    if subscription.pattern.is_exact:
        return
    subscription_id = subscription_row(subscription).id
    for number, topic in enumerate(list(registry.topics.values())):
        if number % STEP == STEP - 1:
            yield
        end, topic_id = topic.log.end_offset, topic.store_id
        if topic_id is None or topic.is_removed or topic.collected_up_to == end:
            continue
        if subscription.pattern.matches(topic.destination):
            # The stored end may lag, if the topic was not stored for a while; no cursor may be ahead of it.
            add_topic(found, topic, topic_id, end)
            found.cursors.append(CursorRow(subscription_id, topic_id, end, (), end))
