"""Collecting: drop what everybody has settled, and find topics that nobody uses.

Law: from the log at once; for the store only the ranges are named, and the journal deletes them with its next batch.
What is pending or unsettled for anybody is never collected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stompbroker.commitlog import OffsetRanges
from stompbroker.delivery.withdrawing import expire_oldest
from stompbroker.ids import Offset

if TYPE_CHECKING:
    from stompbroker.delivery.subscription import Subscription
    from stompbroker.delivery.topic import Topic

#: Settled messages above the ack floor before looking whether everybody has settled them is worth it; and the most
#: ranges that are looked at: with more of them, the floors have to move first.
MIN_BETWEEN_HOLES: Final = 100
MAX_HOLES: Final = 20_000


def collect(topic: Topic, now_ns: int) -> None:
    """Drop what nobody needs any more from the log, and note what the store can delete."""
    topic.forget_closed_readings()
    expire_oldest(topic, now_ns)
    find_between_holes(topic)
    if topic.is_in_store and topic.collected_up_to < collectable_up_to(topic, now_ns):
        topic.note_collectable()
    if topic.log.message_count:
        topic.window.trim()
        if topic.is_in_store and topic.context.budget.is_tight:
            topic.window.shorten()


def settled_floor(topic: Topic) -> Offset:
    """Everybody has settled everything below it."""
    return min([reading.cursor.ack_floor for reading in topic.readings.values()], default=topic.log.end_offset)


def collectable_up_to(topic: Topic, now_ns: int) -> Offset:
    """Nobody needs what is below it, now or later."""
    floor = settled_floor(topic)
    return floor if topic.retained is None else min(floor, topic.retained.floor(now_ns))


def note_collected(topic: Topic, start: int, stop: int) -> None:
    """The batch that is being formed deletes these offsets from the store."""
    if start <= topic.collected_up_to:
        topic.collected_up_to = max(topic.collected_up_to, Offset(stop))
        topic.collected.forget_below(topic.collected_up_to)
    else:
        topic.collected.add(start, stop)
    if topic.retained is not None:
        topic.retained.forget_below(topic.collected_up_to)


def find_between_holes(topic: Topic) -> None:
    """Drop settled ranges between unsettled ones from the log, and name them for the store."""
    topic.between_holes = []
    if topic.retained is not None:
        return  # who replays may want it, and takes a gap in the log for one in the store
    readings = topic.readings.values()
    if all(reading.cursor.settled_above < MIN_BETWEEN_HOLES for reading in readings):
        return
    if sum(reading.cursor.hole_count for reading in readings) > MAX_HOLES:
        return
    needed = OffsetRanges()
    for reading in readings:
        for start, stop in reading.unsettled_ranges():
            needed.add(start, stop)
    floor, end = settled_floor(topic), topic.log.end_offset
    topic.window.drop_ranges(needed.gaps(max(floor, topic.log.start_offset), end))
    if topic.is_in_store:
        for start, stop in topic.collected:
            needed.add(start, stop)
        topic.between_holes = needed.gaps(max(floor, topic.collected_up_to), end)
        if topic.between_holes:
            topic.note_collectable()


def is_unused(topic: Topic) -> bool:
    """Whether it can go: nothing kept, in memory or in the store, or on its way, and nobody who asked for this very
    topic or has something unsettled. A queue goes with its group, if nobody is attached to that."""
    end = topic.log.end_offset
    return (
        not topic.policy.is_declared
        and topic.log.message_count == 0
        and (not topic.is_in_store or topic.collected_up_to == end)
        and not topic.pending_units
        and all(_needs_nothing(each) and reading.is_idle for each, reading in topic.readings.items())
        # The ledger gets everything before the group of a queue goes.
        and not (
            topic.is_queue and any(reading in topic.context.unsaved.readings for reading in topic.readings.values())
        )
        # One that is only just being made has no reading yet, and a batch may be giving the topic its number.
        and not any(
            each not in topic.readings or not _needs_nothing(each)
            for each in topic.context.durable_patterns.match(topic.destination)
            if each.pattern.is_exact
        )
    )


def _needs_nothing(subscription: Subscription) -> bool:
    if subscription.is_queue:
        return not (subscription.consumers or subscription.pending or subscription.is_leaving or subscription.is_paused)
    return not subscription.pattern.is_exact
