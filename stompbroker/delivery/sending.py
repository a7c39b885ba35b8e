"""Sending: hands a consumer what its subscription has to read.

Law: works on a slice at a time: `taking` puts some messages of one reading in flight, mostly one run; each run is
delivered at once, and remembered as one entry.
"""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final, cast

from stompbroker.delivery.answering import defer_settling, split_pending
from stompbroker.delivery.consumer import SLICE_MESSAGES, Part, Unanswered
from stompbroker.delivery.sharing import fair_share, not_failed_with, others_that_can_take
from stompbroker.delivery.sink import Particulars
from stompbroker.delivery.taking import take_again, take_new
from stompbroker.ids import Offset
from stompbroker.ledger.records import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stompbroker.delivery.consumer import Consumer
    from stompbroker.delivery.keys import KeyLines
    from stompbroker.delivery.reading import Reading
    from stompbroker.delivery.taking import Run
    from stompbroker.message import Message

#: Messages that are handed to a sink at once, of what goes again and is looked at message by message.
SLICE_AGAIN: Final = 128


def deliver_slice(consumer: Consumer, now_ns: int) -> None:
    """Hand one slice to the sink, if there is credit, room and something to send; then queue up for the next. What it
    cannot take is passed on."""
    subscription = consumer.subscription
    limit = min(consumer.free_credit, SLICE_MESSAGES if consumer.credit.max_bytes is None else 1)
    if limit <= 0 or not consumer.is_open:
        subscription.pass_on()
        return
    if not consumer.sink.outlet.has_room:
        consumer.sink.outlet.call_when_room(consumer.wake)
        subscription.pass_on()
        return
    if subscription.browser is not None:
        subscription.browser.deliver_slice(consumer, now_ns)
        return
    if subscription.greeting is not None:
        subscription.greeting.deliver_slice(consumer, now_ns)
        return
    reading = _next_reading(consumer)
    if reading is None:
        return
    if subscription.is_shared:
        if not _deliver_share(consumer, reading, limit, now_ns):
            # Only what this one has failed with is left, and others can take it: it is what they look at next.
            subscription.to_read.put_back(reading)
            subscription.wake_others(consumer)
            return
    elif not consumer.settles_at_once and reading.again_count:
        _deliver_again(consumer, reading, min(limit, SLICE_AGAIN), now_ns)
    else:
        _deliver_new(consumer, reading, limit, now_ns)
    if not consumer.settles_at_once:
        consumer.note_served(reading)
    if reading.missing is not None:
        subscription.to_read.remove(reading)
        reading.ask_for(reading.missing)
    elif not reading.has_more:
        subscription.to_read.remove(reading)
    if reading.topic.gate.is_blocked:
        consumer.queue.note_moved(reading.topic)
    if subscription.to_read.readings:
        consumer.wake()
    if subscription.is_shared and not consumer.is_queued:
        subscription.pass_on()


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
    if again_count := reading.again_count:
        limit_again = min(limit, SLICE_AGAIN, fair_share(again_count, consumer, others))
        is_left = any(other.sink.outlet.has_room for other in others)
        offsets = not_failed_with(consumer, reading, limit_again) if is_left else cursor.lowest_free(limit_again)
        if reading.lines is not None:
            offsets = _with_passed_over(consumer, reading.lines, offsets)[:limit_again]
        if offsets:
            _deliver_again(consumer, reading, len(offsets), now_ns, offsets)
            subscription.note_served(consumer)
            return True
        if not reading.new_count or subscription.is_ordered or (consumer.expects_acks and consumer.room_to_wait <= 0):
            return False
    _deliver_new(consumer, reading, min(limit, fair_share(reading.unsent, consumer, others)), now_ns, others)
    subscription.note_served(consumer)
    return True


def _with_passed_over(consumer: Consumer, lines: KeyLines, offsets: list[Offset]) -> list[Offset]:
    """These free ones, and the lowest that were passed over and whose turn it is, or whose key nobody knows: as many as
    there may be new ones."""
    room = min(SLICE_AGAIN, consumer.room_to_wait) if consumer.expects_acks else SLICE_AGAIN
    if room <= 0:
        return offsets
    passed_over = sorted({*lines.ready[:room], *lines.lowest_unread(room)})[:room]
    return sorted({*offsets, *map(Offset, passed_over)})


# For the first time --------------------------------------------------------------------------------------------------


def _deliver_new(
    consumer: Consumer, reading: Reading, limit: int, now_ns: int, others: list[Consumer] | None = None
) -> None:
    """`others`: the members of its group that take a share."""
    if consumer.expects_acks:
        limit = min(limit, consumer.room_to_wait)
    topic, counters = reading.topic, consumer.subscription.counters
    for first, messages in take_new(reading, consumer, limit, now_ns, others):
        count = len(messages)
        if consumer.settles_at_once:
            counters.acked += count
        else:
            consumer.in_flight += count
        consumer.delivered += count
        counters.delivered += count
        topic.context.times.note_delivered(messages[0].published_at_ns, now_ns, count)
        first_number = consumer.sent.next_number
        particulars: Particulars | None = None
        if topic.retained is not None:
            missing_before, reading.replay = _missing_before(reading), None
            if missing_before is not None:
                reading.told_missing = first, missing_before
            particulars = Particulars(first, missing_before)
        if consumer.is_of_bridge:
            particulars = (particulars or Particulars())._replace(first_offset=first, topic_number=topic.store_id)
        if not consumer.expects_acks and topic.context.records is not None:
            _sample_sent(consumer, reading, first, messages, now_ns)
        if consumer.settles_at_once:
            consumer.sink.deliver(messages, first_number, particulars)
            continue
        _hand_over(consumer, reading, ((first, messages),), messages, particulars, now_ns)
        if consumer.expects_acks:
            _set_deadline(consumer, reading, first_number, now_ns)


def _sample_sent(consumer: Consumer, reading: Reading, first: Offset, messages: Sequence[Message], now_ns: int) -> None:
    """Of `auto` mode, now, while the messages are at hand: the log keeps nothing for it."""
    records = reading.topic.context.records
    if records is not None and not consumer.subscription.is_durable:
        records.sample_sent(reading, first, messages, now_ns, consumer.member)


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


# Again ---------------------------------------------------------------------------------------------------------------


def _deliver_again(
    consumer: Consumer, reading: Reading, limit: int, now_ns: int, offsets: list[Offset] | None = None
) -> None:
    """The lowest, or these; also what was passed over before, whose turn it is now."""
    first_number, count, redelivered = consumer.sent.next_number, 0, 0
    for again in take_again(reading, consumer, limit, now_ns, offsets):
        runs, is_again, failure, first_sent_ns = again
        offset, messages, number = runs[0].offset, again.messages, consumer.sent.next_number
        told_with, missing_before = reading.told_missing or (None, None)
        particulars = Particulars(
            offset if reading.topic.retained is not None else None,
            missing_before if told_with == offset else None,
            is_again=is_again,
            failure=failure,
            first_sent_ns=first_sent_ns,
        )
        if consumer.is_of_bridge:
            particulars = particulars._replace(first_offset=offset, topic_number=reading.topic.store_id)
        if is_again:
            _note_numbers(reading, runs, number)
            redelivered += len(messages)
        else:
            for run in runs:
                published_at_ns = run.messages[0].published_at_ns
                reading.topic.context.times.note_delivered(published_at_ns, now_ns, len(run.messages))
                if not consumer.expects_acks:
                    _sample_sent(consumer, reading, run.offset, run.messages, now_ns)
        count += len(messages)
        consumer.in_flight += len(messages)
        _hand_over(consumer, reading, runs, messages, particulars, now_ns)
    consumer.delivered += count
    consumer.subscription.counters.delivered += count
    consumer.subscription.counters.redelivered += redelivered
    if count and consumer.expects_acks:
        _set_deadline(consumer, reading, first_number, now_ns)


def _note_numbers(reading: Reading, runs: list[Run], first_number: int) -> None:
    """These messages have new delivery numbers: answers to earlier ones are late."""
    offsets = chain.from_iterable([range(run.offset, run.stop) for run in runs])
    for number, failure in enumerate(map(reading.failures.get, cast("chain[Offset]", offsets)), first_number):
        if failure is not None:
            failure.last_number = number


# Handing over --------------------------------------------------------------------------------------------------------


def _hand_over(
    consumer: Consumer,
    reading: Reading,
    runs: Sequence[tuple[Offset, list[Message]]],
    messages: Sequence[Message],
    particulars: Particulars | None,
    now_ns: int,
) -> None:
    """In flight from now on, until it is answered, or in `auto` mode, where it is one run, until it has left our
    hands."""
    sink, first_number = consumer.sink, consumer.sent.next_number
    if not consumer.expects_acks:
        ((first, _),) = runs
        stop = Offset(first + len(messages))
        sink.deliver(messages, first_number, particulars, partial(_note_sent, consumer, reading, first, stop))
        return
    put_at_bytes = sink.outlet.put_bytes
    for first, run in runs:
        consumer.sent.add(reading, first, run, sent_at_ns=now_ns, put_at_bytes=put_at_bytes)
    sink.deliver(messages, first_number, particulars)
    if consumer.credit.max_bytes is not None:
        consumer.count_bytes(reading, runs[0][0], sink.outlet.put_bytes - put_at_bytes)


def _set_deadline(consumer: Consumer, reading: Reading, first_number: int, now_ns: int) -> None:
    """What was just sent must be answered in time, if the policy says so."""
    deadline_ns = reading.policy.ack_deadline_ns
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
        if reading.remembered.asking:
            reading.tell(reading.outcomes(reading.cursor.unsettled(start, stop), Outcome.SENT, was_sent=True))
        settlement = reading.settle_unrecorded([(start, stop)])
    else:
        now_ns = records.now_ns()
        ranges = [(start, stop)]
        settlement = reading.settle_all(ranges, Outcome.SENT, now_ns, sent_at_ns=now_ns, member=consumer.member)
    for holder, count in reading.owners.take_away([(start, stop)], settlement.in_flight):
        holder.in_flight -= count
    consumer.subscription.counters.acked += settlement.total
