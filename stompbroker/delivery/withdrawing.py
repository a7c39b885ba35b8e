"""Withdrawing: messages that nobody is to get any more, or one subscriber is not.

Law: for messages that expired, that an operator took away, or whose attempts are used up. Who has a message in flight
may still acknowledge it; everybody else never gets it. The ledger gets a record for each subscriber it was meant for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stompbroker.commitlog import Cursor
from stompbroker.ledger.records import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stompbroker.delivery.reading import Reading
    from stompbroker.delivery.subscription import Subscription
    from stompbroker.delivery.topic import Topic
    from stompbroker.ids import Offset
    from stompbroker.message import Message

#: Expired messages that are dropped from a log at one look.
EXPIRED_PER_LOOK: Final = 500


def purge(topic: Topic, messages: Mapping[Offset, Message], now_ns: int) -> None:
    """These messages are gone, although not everybody has settled them."""
    for reading in topic.readings.values():
        takes = reading.selection.takes
        for offset, message in messages.items():
            if takes(message):
                _give_up(reading, offset, Outcome.SKIPPED, now_ns, message)
            elif reading.cursor.is_unsent(offset):  # never meant for it: there is no delivery to record
                _give_up_unsent(reading, offset)
    topic.window.drop_ranges([(offset, offset + 1) for offset in messages])
    topic.context.pages.forget(topic)
    if topic.retained is not None:
        topic.retained.forget(messages)


def skip(topic: Topic, offset: Offset, message: Message, now_ns: int) -> None:
    """An operator takes a message away. Called before the purge: the batch that deletes it has cursors and records."""
    _give_up_everywhere(topic, offset, message, Outcome.SKIPPED, now_ns)


def expire(topic: Topic, offset: Offset, message: Message, now_ns: int) -> bool:
    """The time of a message, perhaps without its body, is over. True if nobody has it in flight: then it can be
    deleted. False, too, if it is in the store, but its batch is not completed yet."""
    if offset >= topic.log.end_offset:
        return False
    for subscription in _give_up_everywhere(topic, offset, message, Outcome.EXPIRED, now_ns):
        subscription.counters.expired += 1
    return all(
        reading.cursor.is_settled(offset, offset + 1) or offset >= reading.cursor.next_offset
        for reading in topic.readings.values()
    )


def expire_oldest(topic: Topic, now_ns: int) -> None:
    """Drop expired messages from the front of the log, a few at a time: messages mostly expire in their order. The rest
    is stepped over when its turn comes."""
    if not topic.is_choosy:
        return
    expired = 0
    for offset, message in topic.log:
        if expired == EXPIRED_PER_LOOK or not message.has_expired(now_ns) or not expire(topic, offset, message, now_ns):
            break
        expired += 1
    if expired:
        start = topic.log.start_offset
        topic.window.drop_ranges([(start, start + expired)])


def discard(reading: Reading, offset: Offset, now_ns: int) -> None:
    """Its attempts are used up, and it does not become a dead letter."""
    reading.subscription.counters.discarded += _give_up(reading, offset, Outcome.DISCARDED, now_ns)


def move_to(reading: Reading, position: Offset, now_ns: int) -> None:
    """Read on from `position`, as if all before it were settled and nothing else sent. Nobody may be attached."""
    subscription, topic = reading.subscription, reading.topic
    assert not subscription.consumers
    assert not reading.cursor.pending_count
    skipped = [(start, min(stop, position)) for start, stop in reading.unsettled_ranges() if start < position]
    reading.record(reading.meant(skipped), Outcome.SKIPPED, now_ns)
    sent = reading.cursor.ack_floor, reading.cursor.next_offset
    subscription.waiting -= reading.settle_unrecorded([sent]).waiting
    reading.unrecorded.end_generation(reading)
    reading.generation += 1
    reading.replay = reading.missing = None  # it may have stopped at something that is lost
    if subscription.starts_at is not None:
        # A start of the broker must not go back to where it once asked to begin.
        subscription.starts_at = None
        topic.context.unsaved.note_subscription(subscription)
    reading.cursor, reading.lines = Cursor(position), None
    if topic.is_in_store:
        # What was to be deleted is needed again, and is read from the store.
        topic.between_holes = []
        topic.window.trim(only_unsent=True)
        reading.note_moved(1)


def _give_up_everywhere(
    topic: Topic, offset: Offset, message: Message, outcome: Outcome, now_ns: int
) -> list[Subscription]:
    """Those for whom it was still to be sent."""
    return [
        subscription
        for subscription, reading in topic.readings.items()
        if reading.selection.takes(message) and _give_up(reading, offset, outcome, now_ns, message)
    ]


def _give_up(reading: Reading, offset: Offset, outcome: Outcome, now_ns: int, message: Message | None = None) -> bool:
    """It will not be sent any more, for the first time or again. False if there is nothing to give up: it is settled,
    or in flight, where it can still be acknowledged, or pending."""
    cursor, subscription = reading.cursor, reading.subscription
    if subscription.is_leaving:
        return False
    if cursor.is_waiting(offset) or cursor.is_free(offset) or cursor.is_held_up(offset):
        if message is not None:
            reading.remember(offset, message)
            reading.note_asking(offset, [message])
        subscription.waiting -= reading.settle(offset, offset + 1, outcome, now_ns).waiting
        subscription.wake()  # fewer messages wait: perhaps it may get new ones
        return True
    if cursor.is_unsent(offset):
        if message is not None:
            reading.remember(offset, message)
            reading.tell_unsent(message, outcome)
        reading.record([(offset, offset + 1)], outcome, now_ns)
        _give_up_unsent(reading, offset)
        return True
    is_unsettled = offset < cursor.next_offset and not cursor.is_settled(offset, offset + 1)
    if message is not None and reading.is_recorded and is_unsettled:
        reading.remembered.keep_stub(offset, message)  # for the ledger, if it is refused
    return False


def _give_up_unsent(reading: Reading, offset: Offset) -> None:
    reading.remembered.drop_stub(offset)
    reading.cursor.give_up(offset, offset + 1)
    reading.note_moved(1)
