"""Appending: takes messages into a topic, and does what the policy says when subscribers are too slow.

Law: the window bounds what is not yet sent to everybody. When it is full, publishers are held back until subscribers
have caught up, or messages are dropped, or the slow subscribers are disconnected.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from stompbroker.delivery.policy import SlowSubscriber
from stompbroker.errors import PeerViolation
from stompbroker.ids import Offset
from stompbroker.ledger.records import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from stompbroker.delivery.reading import Reading
    from stompbroker.delivery.topic import Topic
    from stompbroker.message import Message

#: A blocked topic takes messages again when its window is filled no more than this, so that it does not flutter.
UNBLOCK_SHARE: Final = 0.75

_body_bytes_of: Final = attrgetter("body_bytes")


def append(topic: Topic, messages: Sequence[Message], now_ns: int, *, reserved: Offset | None = None) -> None:
    """Take in messages, offer them to every reading, and keep the window within its bounds.

    `reserved`: their first offset if the journal has written the persistent ones.
    """
    log, window, is_stored = topic.log, topic.window, reserved is not None
    assert reserved == log.end_offset or not (is_stored or log.reserved_end > log.end_offset), "out of turn"
    topic.last_used_at_ns = now_ns
    if topic.matched_version != topic.context.patterns.version:
        topic.refresh_readings()
    topic.published += len(messages)
    topic.published_bytes += sum(map(_body_bytes_of, messages))
    if not topic.readings:
        if topic.retained is not None and is_stored:
            topic.retained.note(log.end_offset, messages)
        log.skip(len(messages))
        if log.message_count:
            window.trim()
        return
    # Before the append: a message larger than the window must reach everybody.
    laggards = _make_room(topic) if window.is_full else []
    before_bytes = log.size_bytes
    first = log.append(messages)
    topic.budget.adjust(log.size_bytes - before_bytes)
    if topic.store_id is not None:
        window.note_unstored(first, messages, is_stored=is_stored)
    if topic.retained is not None and is_stored:
        topic.retained.note(first, messages)
    for reading in laggards:
        _record_dropped(reading, first, log.end_offset)
        reading.subscription.counters.dropped += reading.cursor.give_up(first, log.end_offset)
    for reading in topic.readings.values():
        reading.subscription.offer(reading)
    if not window.is_large:
        return
    if window.is_overgrown:
        window.trim()
    if topic.policy.slow_subscriber is SlowSubscriber.BLOCK and window.is_full:
        window.shorten()
        if window.is_full:
            _block(topic, now_ns)


class Audience(NamedTuple):
    """How many will get a message."""

    #: Durable subscriptions, groups and queues.
    matched: int
    #: Connected subscribers of another kind.
    transient: int


def audience(topic: Topic, offset: Offset, message: Message, *, is_stored: bool) -> Audience:
    """Who will get the message that was just appended at `offset`. Only publishers that ask for it pay for this look at
    every reading."""
    matched = transient = 0
    for subscription, reading in topic.readings.items():
        is_ending = subscription.is_closed or subscription.is_leaving
        if is_ending or not (reading.cursor.is_unsent(offset) and reading.selection.takes(message)):
            continue
        # Without a store, or with persistent:false, it is not kept for those who are away.
        is_reached = is_stored or reading.is_connected
        if subscription.is_durable or subscription.is_shared:
            matched += is_reached
        else:
            transient += is_reached
    return Audience(matched, transient)


# Slow subscribers ----------------------------------------------------------------------------------------------------


def _make_room(topic: Topic) -> list[Reading]:
    """The window is full and more is about to come. Returns the readings that do not get the new messages."""
    topic.window.shorten()
    if not topic.window.is_full:
        return []
    if topic.is_in_store:
        _make_room_of_unstored(topic)
        return []
    match topic.policy.slow_subscriber:
        case SlowSubscriber.BLOCK:
            pass  # the publisher is not a client, or began before the window was full
        case SlowSubscriber.DROP_OLDEST:
            _drop_oldest(topic)
        case SlowSubscriber.DROP_NEWEST:
            return _laggards(topic)
        case SlowSubscriber.DISCONNECT:
            _disconnect(_laggards(topic), "it did not keep up with the topic's publishers")
    return []


def _make_room_of_unstored(topic: Topic) -> None:
    """The window is full of messages that are not in the store and that a connected reading has not been sent. Whatever
    the policy, only those are dropped, oldest first: all others wait in the store."""
    pinning = topic.window.pinned_by_unstored()
    match topic.policy.slow_subscriber:
        case SlowSubscriber.BLOCK:
            pass
        case SlowSubscriber.DISCONNECT:
            _disconnect(pinning, "it did not keep up with the topic's publishers")
        case SlowSubscriber.DROP_OLDEST | SlowSubscriber.DROP_NEWEST:
            for reading, ranges in pinning.items():
                _lose(reading, ranges)
            topic.window.leave_to_store()


def _drop_oldest(topic: Topic) -> None:
    """Drop the oldest quarter, until the window is not full; one message at a time would trim at every append."""
    log = topic.log
    while topic.window.is_full:
        before = log.message_count
        stop = Offset(log.start_offset + max(1, (log.end_offset - log.start_offset) // 4))
        for reading in topic.readings.values():
            unsent = reading.unsent
            _record_dropped(reading, 0, stop)
            reading.step_over(stop)
            reading.subscription.counters.dropped += max(unsent - reading.unsent, 0)
        topic.window.trim(only_unsent=True)
        if log.message_count == before:
            break


def _lose(reading: Reading, ranges: list[tuple[int, int]]) -> None:
    """These unsent messages are about to be gone for good."""
    reading.subscription.counters.dropped += sum(stop - start for start, stop in ranges)
    if reading.is_recorded:
        for start, stop in ranges:
            _record_dropped(reading, start, stop)
            reading.cursor.give_up(start, stop)
        reading.note_moved(1)
    else:
        _tell_dropped(reading, ranges)


def _record_dropped(reading: Reading, start: int, stop: int) -> None:
    records = reading.topic.context.records
    unsent = [(max(low, start), high) for low, high in reading.cursor.unsent(stop) if high > start]
    if records is not None:
        now_ns = records.now_ns()
        reading.record(reading.meant(unsent), Outcome.DROPPED, now_ns)
    _tell_dropped(reading, unsent)


def _tell_dropped(reading: Reading, unsent: list[tuple[int, int]]) -> None:
    takes = reading.selection.takes
    for start, stop in unsent if reading.topic.is_asking else ():
        for offset in range(start, stop):
            message = reading.topic.log.get(Offset(offset))
            if message is not None and takes(message):
                reading.tell_unsent(message, Outcome.DROPPED)


def _laggards(topic: Topic) -> list[Reading]:
    """The readings whose unsent messages alone fill the window; if there is none, those with the most unsent."""
    log, policy = topic.log, topic.policy
    unsent = {reading: reading.unsent for reading in topic.readings.values()}
    average_bytes = log.size_bytes / max(1, log.message_count)
    bound = min(policy.window_messages, policy.window_bytes / max(1.0, average_bytes))
    bound = min(bound, max(unsent.values()))
    return [reading for reading, count in unsent.items() if count >= bound]


def disconnect_slowest(topic: Topic) -> list[Reading]:
    """Disconnect the subscribers that hold a blocked topic up; returns their readings."""
    lowest = topic.window.lowest_unsent
    slowest = [reading for reading in topic.window.connected() if reading.cursor.next_offset <= lowest]
    _disconnect(slowest, f"nothing was taken from it for {topic.policy.block_timeout_s:g} s")
    return slowest


def _disconnect(readings: Iterable[Reading], why: str) -> None:
    for reading in readings:
        subscription = reading.subscription
        details = (
            f"subscription {subscription.name!r} to {subscription.destination!r} fills the window of topic "
            f"{reading.topic.name!r} with {reading.unsent} messages it has not been sent; {why}"
        )
        for consumer in list(subscription.consumers):
            consumer.sink.disconnect(PeerViolation("subscriber too slow", details))


# Publishers held back ------------------------------------------------------------------------------------------------


def _block(topic: Topic, now_ns: int) -> None:
    if not topic.gate.is_blocked:
        kind = topic.destination.kind.value
        topic.gate.close(f"{kind} {topic.name!r} is full", waits_for_consumers=True)
        topic.progress_at_ns = now_ns
        topic.pinned_at = topic.window.lowest_unsent
        topic.context.blocked[topic] = None


def try_to_unblock(topic: Topic, now_ns: int) -> None:
    """If publishers are held back: see whether the window has moved, and let them go on when there is room."""
    if not topic.gate.is_blocked:
        return
    window = topic.window
    topic.forget_closed_readings()
    window.trim()
    if topic.is_in_store and window.is_full:
        window.shorten()
    pinned_at = window.lowest_unsent
    if pinned_at > topic.pinned_at:
        topic.pinned_at = pinned_at
        topic.progress_at_ns = now_ns
    # Only unsent messages count: a subscriber that works on what it was sent blocks nobody.
    if not window.fills(UNBLOCK_SHARE, part=1 - window.sent_part):
        del topic.context.blocked[topic]
        topic.gate.open()
