"""Sending: hands a consumer what its subscription has to read.

Law: the only module that puts messages in flight. It works on a slice at a time: one run of messages is taken from one
reading, delivered at once, and remembered as one entry. A message is in flight from when the sink has it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from stompbroker.delivery.answering import defer_settling, split_pending
from stompbroker.delivery.consumer import SLICE_MESSAGES, Part, Unanswered
from stompbroker.delivery.sharing import fair_share, not_failed_with, others_that_can_take
from stompbroker.delivery.sink import Deliveries
from stompbroker.ids import Offset
from stompbroker.ledger.records import Outcome
from stompbroker.message import tails_bytes

if TYPE_CHECKING:
    from stompbroker.commitlog import Log
    from stompbroker.delivery.consumer import Consumer
    from stompbroker.delivery.policy import Failure
    from stompbroker.delivery.reading import Reading
    from stompbroker.delivery.topic import Topic
    from stompbroker.message import Message

#: The most bytes that are handed to a sink at once, beside SLICE_MESSAGES.
SLICE_BYTES: Final = 256 * 1024
#: The same for what goes again, which is looked at message by message.
SLICE_AGAIN: Final = 128


def deliver_slice(consumer: Consumer, now_ns: int) -> None:
    """Hand one slice to the sink, if there is credit, room and something to send; then queue up for the next."""
    limit = min(consumer.free_credit, SLICE_MESSAGES if consumer.credit.max_bytes is None else 1)
    if limit <= 0 or not consumer.is_open:
        return
    if not consumer.sink.outlet.has_room:
        consumer.sink.outlet.call_when_room(consumer.wake)
        return
    if consumer.subscription.browser is not None:
        consumer.subscription.browser.deliver_slice(consumer, now_ns)
        return
    reading = _next_reading(consumer)
    if reading is None:
        return
    if consumer.subscription.is_shared:
        if not _deliver_share(consumer, reading, limit, now_ns):
            # Only what this one has failed with is left, and others can take it.
            consumer.subscription.wake_others(consumer)
            return
    elif reading.cursor.free_count:
        _deliver_again(consumer, reading, min(limit, SLICE_AGAIN), now_ns)
    else:
        _deliver_new(consumer, reading, limit, now_ns)
    consumer.note_served(reading)
    if reading.missing is not None:
        consumer.subscription.to_read.remove(reading)
        reading.ask_for(reading.missing)
    if reading.topic.gate.is_blocked:
        consumer.queue.note_moved(reading.topic)
    consumer.wake()


def _next_reading(consumer: Consumer) -> Reading | None:
    """The reading whose turn it is: each gets a slice in turn."""
    subscription = consumer.subscription
    only_again = consumer.expects_acks and consumer.room_to_wait <= 0
    if subscription.is_ordered:
        # Over all topics, also those that wait for a page.
        only_again = only_again or any(reading.cursor.free_count for reading in subscription.readings.values())
    return subscription.to_read.next(only_again=only_again)


# To one of several ---------------------------------------------------------------------------------------------------


def _deliver_share(consumer: Consumer, reading: Reading, limit: int, now_ns: int) -> bool:
    """Hand a fair share of what there is to one member of a group. False if there is nothing for this one."""
    cursor, subscription = reading.cursor, consumer.subscription
    others = others_that_can_take(consumer)
    if cursor.free_count:
        limit = min(limit, SLICE_AGAIN, fair_share(cursor.free_count, consumer, others))
        offsets = not_failed_with(consumer, reading, limit) if others else cursor.lowest_free(limit)
        if offsets:
            _deliver_again(consumer, reading, len(offsets), now_ns, offsets)
            subscription.note_served(consumer)
            return True
        if not reading.unsent or subscription.is_ordered or (consumer.expects_acks and consumer.room_to_wait <= 0):
            return False
    _deliver_new(consumer, reading, min(limit, fair_share(reading.unsent, consumer, others)), now_ns)
    subscription.note_served(consumer)
    return True


# For the first time --------------------------------------------------------------------------------------------------


def _deliver_new(consumer: Consumer, reading: Reading, limit: int, now_ns: int) -> None:
    if consumer.expects_acks:
        limit = min(limit, consumer.room_to_wait)
    first, messages = _take_new(reading, consumer, limit, now_ns)
    if not messages:
        return
    topic, count = reading.topic, len(messages)
    consumer.in_flight += count
    consumer.delivered += count
    consumer.subscription.counters.delivered += count
    topic.context.times.note_delivered(messages[0].published_at_ns, now_ns, count)
    first_number = consumer.sent.next_number
    deliveries = Deliveries(messages, first_number)
    if topic.retained is not None:
        missing_before, reading.replay = _missing_before(reading), None
        if missing_before is not None:
            reading.told_missing = first, missing_before
        deliveries = Deliveries(messages, first_number, first, missing_before)
    if consumer.is_of_bridge:
        deliveries = deliveries._replace(first_offset=first, topic_number=topic.store_id)
    if not consumer.expects_acks and topic.context.records is not None and not consumer.subscription.is_durable:
        # Now, while the messages are at hand: the log keeps nothing for it.
        topic.context.records.sample_sent(reading, first, messages, now_ns, consumer.member)
    _hand_over(consumer, reading, first, deliveries, now_ns)
    _set_deadline(consumer, reading, first_number, now_ns)


def _take_new(reading: Reading, taker: Consumer, limit: int, now_ns: int) -> tuple[Offset, list[Message]]:
    """The next messages to be sent for the first time, in a row; from now on in flight to `taker`.

    At least one if there is one, however large. None although there are more if some were stepped over, and the next
    call goes on behind them; or if what comes next is `missing`.
    """
    cursor, topic = reading.cursor, reading.topic
    source = _source(topic, cursor.next_offset)
    if source is None:
        reading.missing = cursor.next_offset
        return cursor.next_offset, []
    is_page = source is not topic.log
    first, messages = source.read(cursor.next_offset, limit)
    if is_page:
        # A page knows nothing of what only the log has: from the log's start on, the log is read.
        start = topic.log.start_offset
        first, messages = min(first, start), messages[: max(0, start - first)]
    if cursor.has_given_up:
        stop = next((stop for _, stop in cursor.unsent(topic.log.end_offset)), cursor.next_offset)
        messages = messages[: max(0, stop - first)]
    reading.step_over(first)
    if topic.is_choosy or reading.subscription.is_no_local or is_page or reading.replay:
        messages = _selected(reading, messages, now_ns)
        first = cursor.next_offset
    if tails_bytes(messages) > SLICE_BYTES:
        messages = _within_bytes(messages, SLICE_BYTES)
    if is_page and reading.is_recorded:
        for offset, message in enumerate(messages, first):
            reading.remembered.keep_stub(Offset(offset), message)
    if messages:
        reading.owners.expect(taker, cursor)
        cursor.advance(Offset(first + len(messages)))
        reading.owners.note(taker, first, first + len(messages))
    return first, messages


def _source(topic: Topic, offset: Offset) -> Log | None:
    """Where to read on from `offset`: the log, or a page of what left it; None if that has to be read first."""
    if topic.store_id is None or offset >= topic.log.start_offset:
        return topic.log
    page = topic.page(offset)
    if page is not None:
        topic.context.pages.read_ahead(topic, page.end_offset)
    return page


def _selected(reading: Reading, messages: list[Message], now_ns: int) -> list[Message]:
    """Step over what this subscriber does not get; returns the run up to the next such message."""
    cursor, selection = reading.cursor, reading.selection
    since_ns = 0 if reading.replay is None else reading.replay.since_ns
    if not since_ns and selection.takes_all(messages):
        return messages
    position = 0
    for message in messages:
        if selection.takes(message) and message.published_at_ns >= since_ns:
            if not message.has_expired(now_ns):
                break
            reading.subscription.counters.expired += 1
            _record_expired(reading, Offset(cursor.next_offset + position), message, now_ns)
        position += 1
    if since_ns and reading.replay is not None and position and messages[0].published_at_ns < since_ns:
        reading.replay = reading.replay._replace(is_whole=True)
    reading.step_over(cursor.next_offset + position)
    stop = position
    while stop < len(messages) and selection.takes(messages[stop]) and not messages[stop].has_expired(now_ns):
        stop += 1
    return messages[position:stop]


def _record_expired(reading: Reading, offset: Offset, message: Message, now_ns: int) -> None:
    """It is about to be stepped over."""
    if reading.topic.context.records is not None:
        reading.remember(offset, message)
        reading.record([(offset, offset + 1)], Outcome.EXPIRED, now_ns)
        reading.remembered.drop_stub(offset)


def _missing_before(reading: Reading) -> Offset | None:
    """For the first message of a replay: the offset below which nothing of what was asked for is left."""
    replay = reading.replay
    if replay is None:
        return None
    start = reading.topic.collected_up_to
    if replay.asked_for is not None:
        is_missing = start > replay.asked_for
    else:
        is_missing = replay.since_ns > 0 and not replay.is_whole and start >= replay.start > 0
    return start if is_missing else None


def _within_bytes(messages: list[Message], limit_bytes: int) -> list[Message]:
    """As many from the front as fit, but one at least."""
    total_bytes = 0
    for index, message in enumerate(messages):
        total_bytes += len(message.tail)
        if total_bytes > limit_bytes:
            return messages[: max(index, 1)]
    return messages


# Again ---------------------------------------------------------------------------------------------------------------


class _Again(NamedTuple):
    """Messages in a row, from `offset` on, that one header block can tell the history of."""

    offset: Offset
    messages: list[Message]
    failure: Failure | None
    first_sent_ns: int | None

    def goes_on_with(self, offset: Offset, failure: Failure | None, first_sent_ns: int | None) -> bool:
        """Whether that message comes next and has the same history."""
        if offset != self.offset + len(self.messages) or first_sent_ns != self.first_sent_ns:
            return False
        if failure is None or self.failure is None:
            return failure is self.failure
        return failure.count == self.failure.count and failure.reason == self.failure.reason


def _deliver_again(
    consumer: Consumer, reading: Reading, limit: int, now_ns: int, offsets: list[Offset] | None = None
) -> None:
    """The lowest, or these."""
    first_number, count = consumer.sent.next_number, 0
    for offset, messages, failure, first_sent_ns in _take_again(reading, consumer, limit, now_ns, offsets):
        number = consumer.sent.next_number
        _note_numbers(reading, offset, len(messages), number)
        told_with, missing_before = reading.told_missing or (None, None)
        deliveries = Deliveries(
            messages,
            number,
            offset if reading.topic.retained is not None else None,
            missing_before if told_with == offset else None,
            is_again=True,
            failure=failure,
            first_sent_ns=first_sent_ns,
        )
        if consumer.is_of_bridge:
            deliveries = deliveries._replace(first_offset=offset, topic_number=reading.topic.store_id)
        count += len(messages)
        consumer.in_flight += len(messages)
        _hand_over(consumer, reading, offset, deliveries, now_ns)
    consumer.delivered += count
    consumer.subscription.counters.delivered += count
    consumer.subscription.counters.redelivered += count
    if count:
        _set_deadline(consumer, reading, first_number, now_ns)


def _take_again(
    reading: Reading, taker: Consumer, limit: int, now_ns: int, offsets: list[Offset] | None
) -> list[_Again]:
    """Messages to be sent once more, lowest offset first; from now on in flight to `taker`.

    At least one if there is one; none if the next is `missing`. What has expired or is gone is settled instead.
    """
    again: list[_Again] = []
    while not again and reading.missing is None and reading.cursor.free_count and limit > 0:
        reading.owners.expect(taker, reading.cursor)
        _gather_again(reading, again, reading.cursor.lowest_free(limit) if offsets is None else offsets, now_ns)
        if offsets is not None:
            break
    for offset, messages, _, _ in again:
        reading.owners.note(taker, offset, offset + len(messages))
    return again


def _gather_again(reading: Reading, again: list[_Again], offsets: list[Offset], now_ns: int) -> None:
    is_each_its_own = reading.topic.retained is not None or reading.told_missing is not None
    gone: list[tuple[Offset, Message | None]] = []
    taken, limit_bytes = 0, SLICE_BYTES
    for offset in offsets:
        message, is_known = reading.get(offset)
        if not is_known:
            reading.missing = offset
            break
        taken += 1
        if message is None or message.has_expired(now_ns):
            gone.append((offset, message))
            continue
        reading.remember(offset, message)
        failure, first_sent_ns = reading.failures.get(offset), reading.first_sent_ns(offset)
        if again and not is_each_its_own and again[-1].goes_on_with(offset, failure, first_sent_ns):
            again[-1].messages.append(message)
        else:
            again.append(_Again(offset, [message], failure, first_sent_ns))
        limit_bytes -= message.size_bytes
        if limit_bytes <= 0:
            break
    reading.cursor.take_free(offsets[:taken])
    for offset, gone_message in gone:
        if gone_message is None:
            _pass_over(reading, offset, now_ns)
        else:
            reading.subscription.counters.expired += 1
            reading.remember(offset, gone_message)
            reading.settle(offset, offset + 1, Outcome.EXPIRED, now_ns)


def _pass_over(reading: Reading, offset: Offset, now_ns: int) -> None:
    """A message that was sent is gone. If an operator took it away while it was in flight, the ledger gets a record. A
    `persistent:false` message that was lost has none: mostly nobody knows any more what it was."""
    if any(message.origin.is_persistent for _, message in reading.remembered.recalled(offset, offset + 1)):
        reading.settle(offset, offset + 1, Outcome.SKIPPED, now_ns)
    else:
        reading.settle_unrecorded(offset, offset + 1)


def _note_numbers(reading: Reading, first: Offset, count: int, first_number: int) -> None:
    """These messages, from offset `first` on, have new delivery numbers: answers to earlier ones are late."""
    for number, offset in enumerate(range(first, first + count), first_number):
        failure = reading.failures.get(Offset(offset))
        if failure is not None:
            failure.last_number = number


# Handing over --------------------------------------------------------------------------------------------------------


def _hand_over(consumer: Consumer, reading: Reading, first: Offset, deliveries: Deliveries, now_ns: int) -> None:
    """In flight from now on, until it is answered, or in `auto` mode until it has left our hands."""
    messages, sink = deliveries.messages, consumer.sink
    if not consumer.expects_acks:
        sink.deliver(deliveries, partial(_note_sent, consumer, reading, first, first + len(messages)))
        return
    put_at_bytes = sink.outlet.put_bytes
    consumer.sent.add(reading, first, messages, sent_at_ns=now_ns, put_at_bytes=put_at_bytes)
    sink.deliver(deliveries)
    if consumer.credit.max_bytes is not None:
        consumer.count_bytes(reading, first, sink.outlet.put_bytes - put_at_bytes)


def _set_deadline(consumer: Consumer, reading: Reading, first_number: int, now_ns: int) -> None:
    """What was just sent must be answered in time, if the policy says so."""
    deadline_ns = reading.policy.ack_deadline_ns if consumer.expects_acks else 0
    if deadline_ns:
        consumer.has_deadlines = True
        numbers = Unanswered(consumer, first_number, consumer.sent.next_number - 1)
        reading.topic.context.deadlines.schedule(now_ns + deadline_ns, numbers)


def _note_sent(consumer: Consumer, reading: Reading, start: int, stop: int) -> None:
    """`auto`: these deliveries have left our hands, which settles them if no late ACK did so before."""
    if not consumer.is_open:
        return
    if reading.cursor.pending_count:
        unclaimed, pending = split_pending(Part(reading, start, stop, 0))
        for part in pending:
            defer_settling(part, partial(_settle_sent, consumer, reading, part.start, part.stop))
        for part in unclaimed:
            _settle_sent(consumer, reading, part.start, part.stop)
    else:
        _settle_sent(consumer, reading, start, stop)
    consumer.wake()


def _settle_sent(consumer: Consumer, reading: Reading, start: int, stop: int) -> None:
    records = reading.topic.context.records
    if records is None or not consumer.subscription.is_durable:
        settlement = reading.settle_unrecorded(start, stop)
    else:
        now_ns = records.now_ns()
        settlement = reading.settle(start, stop, Outcome.SENT, now_ns, sent_at_ns=now_ns, member=consumer.member)
    for holder, count in reading.owners.take_away([(start, stop)], settlement.in_flight):
        holder.in_flight -= count
    consumer.subscription.counters.acked += settlement.total
