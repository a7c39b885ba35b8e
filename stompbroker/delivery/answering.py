"""Answering: which messages an ACK or NACK means, and what becomes of them: settled, or set aside until they are due.

Law: answers name delivery numbers; here they become settled or waiting offsets. "Before", for cumulative answers, means
a lower number. An answer that meets something pending waits until that is decided, and is given again. The distributor
calls `become_due` when the time of what failed has come.
"""

from __future__ import annotations

from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Final
from weakref import ref

from stompbroker.commitlog import OffsetRanges
from stompbroker.delivery.consumer import Part
from stompbroker.delivery.policy import Failing, Refusal
from stompbroker.delivery.reading import Waiting
from stompbroker.delivery.reading_notes import offsets_between
from stompbroker.ids import Offset
from stompbroker.ledger.records import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from stompbroker.commitlog import Claimed
    from stompbroker.delivery.consumer import Consumer
    from stompbroker.delivery.policy import Failure
    from stompbroker.delivery.reading import Reading

_NS_PER_MS: Final = 1_000_000

# Which messages are meant --------------------------------------------------------------------------------------------


def acknowledged(consumer: Consumer, first: int, last: int) -> list[Part]:
    """What ACKs of the deliveries numbered first..last mean; they count as answered from now on."""
    counters = consumer.subscription.counters
    if consumer.is_cumulative:
        parts = _meant_between(consumer, consumer.answered_up_to + 1, first - 1)
        # What is named is meant whatever state it is in.
        parts += consumer.sent.parts(first, last + 1)
        parts += _overdue_up_to(consumer, first - 1)
        consumer.answered_up_to = max(consumer.answered_up_to, last)
        counters.late += not parts
    else:
        parts = consumer.sent.parts(first, last + 1)
        # A number that no run holds any more was settled long ago.
        counters.late += last + 1 - first - sum(part.stop - part.start for part in parts)
        counters.late += _sent_again_since(consumer, parts, last)
    return parts


def refused(consumer: Consumer, first: int, last: int) -> list[Part]:
    """What NACKs of the deliveries numbered first..last mean (one NACK if cumulative); they count as answered now."""
    if consumer.is_cumulative:
        assert first == last
        parts = _meant_between(consumer, consumer.answered_up_to + 1, last)
        consumer.answered_up_to = max(consumer.answered_up_to, last)
        return parts
    return [
        part
        for first_number, whole in consumer.sent.numbered_parts(first, last + 1)
        for part in _not_sent_again_since(whole, first_number)
    ]


def count_in_flight_between(consumer: Consumer, first: int, last: int) -> int:
    return sum(part.stop - part.start for part in _in_flight_between(consumer, first, last))


def _sent_again_since(consumer: Consumer, parts: list[Part], number: int) -> int:
    """How many of these are in flight to another consumer, or under a number above that one."""
    count = 0
    for reading, start, stop, _ in parts:
        if not reading.owners.is_alone(consumer):
            count += sum(
                reading.cursor.is_in_flight(offset) and not reading.is_in_flight_to(consumer, offset, number)
                for offset in range(start, stop)
            )
        elif reading.failures:  # nothing else was sent again
            count += sum(
                reading.failures[offset].last_number > number and reading.cursor.is_in_flight(offset)
                for offset in offsets_between(reading.failures, start, stop)
            )
    return count


def _not_sent_again_since(part: Part, first_number: int) -> Iterator[Part]:
    """What was sent under the numbers from that one on, without what has been sent again since."""
    reading, start, stop, sent_at_ns = part
    to_number = first_number - start
    for offset in sorted(offsets_between(reading.failures, start, stop)):
        if reading.was_sent_again(offset, after=offset + to_number):
            if start < offset:
                yield Part(reading, start, offset, sent_at_ns)
            start = offset + 1
    if start < stop:
        yield Part(reading, start, stop, sent_at_ns)


def _meant_between(consumer: Consumer, first: int, last: int) -> list[Part]:
    """What a cumulative answer means of the numbers first..last: what is in flight. If the consumer has left, what was
    in flight then and nobody has settled or refused since."""
    if consumer.is_open:
        return _in_flight_between(consumer, first, last)
    return [
        Part(reading, offset, offset + 1, sent_at_ns)
        for reading, start, stop, sent_at_ns in consumer.sent.parts(first, last + 1)
        for low, high in reading.cursor.unsettled(start, stop)
        for offset in range(low, high)
        if not reading.cursor.is_waiting(offset)
    ]


def _in_flight_between(consumer: Consumer, first: int, last: int) -> list[Part]:
    """What is in flight under the numbers first..last. What waits was refused before, and what has been sent again
    since has a higher number: neither is meant."""
    found: list[Part] = []
    for reading, start, stop, sent_at_ns in consumer.sent.parts(first, last + 1):
        for low, high in reading.cursor.unsettled(start, stop):
            if reading.is_all_in_flight and not reading.failures and reading.owners.is_alone(consumer):
                found.append(Part(reading, low, high, sent_at_ns))
                continue
            found.extend(
                Part(reading, offset, offset + 1, sent_at_ns)
                for offset in range(low, high)
                if reading.is_in_flight_to(consumer, offset, last)
            )
    return found


def _overdue_up_to(consumer: Consumer, last: int) -> list[Part]:
    """What was sent under the numbers up to `last` and is set aside only because it was not answered in time."""
    if not consumer.has_deadlines:
        return []
    return [
        Part(reading, offset, offset + 1, sent_at_ns)
        for reading, start, stop, sent_at_ns in consumer.sent.parts(1, last + 1)
        for offset, failure in reading.failures.items()
        if start <= offset < stop and failure.is_overdue and not reading.cursor.is_in_flight(offset)
    ]


# What becomes of them ------------------------------------------------------------------------------------------------


def settle(consumer: Consumer, parts: list[Part], now_ns: int) -> None:
    """These messages are acknowledged, also if this consumer has left and they are on their way to another."""
    subscription = consumer.subscription
    if subscription.is_closed:
        return
    counters = subscription.counters
    if subscription.pending or subscription.is_leaving:
        parts = _without_pending(consumer, parts, now_ns)
    for (reading, sent_at_ns), ranges in _sent_together(parts):
        settlement = reading.settle_all(ranges, Outcome.ACKED, now_ns, sent_at_ns=sent_at_ns, member=consumer.member)
        reading.topic.context.times.note_acknowledged(sent_at_ns, now_ns, settlement.total)
        for holder, count in reading.owners.take_away(ranges, settlement.in_flight):
            holder.give_up_in_flight(reading, ranges, count)
            if holder is not consumer:
                holder.sent.forget_settled()
        subscription.waiting -= settlement.waiting
        counters.acked += settlement.total
        counters.late += sum(stop - start for start, stop in ranges) - settlement.in_flight
    consumer.sent.forget_settled()
    subscription.wake()


def _sent_together(parts: list[Part]) -> Iterator[tuple[tuple[Reading, int], list[tuple[int, int]]]]:
    """The ranges of parts in a row that are of one reading and were sent at one time."""
    for key, alike in groupby(parts, itemgetter(0, 3)):
        yield key, list(map(itemgetter(1, 2), alike))


def set_aside(consumer: Consumer, parts: list[Part], refusal: Refusal, *, answers: int = 1) -> None:
    """These are refused, by so many answers. If this consumer has left, only those that nobody was sent since."""
    subscription = consumer.subscription
    if subscription.is_closed:
        return
    total = 0
    for (reading, sent_at_ns), ranges in _sent_together(parts):
        count = _set_aside_ranges(consumer, reading, ranges, sent_at_ns, refusal)
        if consumer.is_open:
            consumer.give_up_in_flight(reading, ranges, count)
        total += count
    subscription.waiting += total
    if refusal.is_overdue:
        subscription.counters.overdue += total
    else:
        subscription.counters.nacked += total
        subscription.counters.late += max(0, answers - total)
    consumer.sent.forget_settled()
    subscription.wake()


def pass_deadline(consumer: Consumer, first: int, last: int, now_ns: int) -> None:
    """The deliveries numbered first..last should have been answered by now: those that were not have failed."""
    for part in _in_flight_between(consumer, first, last):
        reason = f"not acknowledged within {part.reading.policy.ack_deadline_ms / 1000:g} s"
        set_aside(consumer, [part], Refusal(now_ns, reason, is_overdue=True))


# Answers that meet something pending ---------------------------------------------------------------------------------


def split_pending(part: Part) -> tuple[list[Part], list[Part]]:
    """What of it is not pending, and what is and has to wait."""
    reading, start, stop, sent_at_ns = part
    if reading.subscription.is_leaving:
        return [], [part]
    pending = reading.cursor.pending(start, stop)
    if not pending:
        return [part], []
    unclaimed = reading.cursor.unclaimed(start, stop)
    return (
        [Part(reading, low, high, sent_at_ns) for low, high in unclaimed],
        [Part(reading, low, high, sent_at_ns) for low, high in pending],
    )


def _without_pending(consumer: Consumer, parts: list[Part], now_ns: int) -> list[Part]:
    """What is not pending; the rest is acknowledged once more when that is decided."""
    found: list[Part] = []
    for whole in parts:
        unclaimed, pending = split_pending(whole)
        found += unclaimed
        for part in pending:
            defer_settling(part, partial(settle, consumer, [part], now_ns))
    return found


def defer(reading: Reading, repeat: Callable[[], None]) -> None:
    """Give this answer again when what is pending is decided."""
    if reading.deferred is None:
        reading.deferred = []
    reading.deferred.append(repeat)


def defer_settling(part: Part, repeat: Callable[[], None]) -> None:
    """The same for an answer outside of transactions: of several to one message the first is enough."""
    reading = part.reading
    reading.deferred_settling = reading.deferred_settling or OffsetRanges()
    if reading.deferred_settling.add(part.start, part.stop):
        defer(reading, repeat)


def repeat_deferred(reading: Reading) -> None:
    """Something that was pending is decided: give the answers that came meanwhile. They may have to wait again."""
    deferred, reading.deferred, reading.deferred_settling = reading.deferred, None, None
    for repeat in deferred or ():
        repeat()


# Redelivery -----------------------------------------------------------------------------------------------------------


def _set_aside_ranges(
    consumer: Consumer, reading: Reading, ranges: list[tuple[int, int]], sent_at_ns: int, refusal: Refusal
) -> int:
    """Deliveries have failed: they wait for their time. Returns how many; only those that were in flight to this
    consumer, or that are free if it has left."""
    cursor = reading.cursor
    if not consumer.is_open:
        offsets = [Offset(each) for start, stop in ranges for each in range(start, stop) if cursor.suspend(each)]
    elif reading.owners.is_alone(consumer):
        offsets = [offset for start, stop in ranges for offset in cursor.set_aside(start, stop)]
    else:
        meant = reading.owners.within(consumer, ranges)
        offsets = [offset for start, stop in meant for offset in cursor.set_aside(start, stop)]
        reading.owners.take_away(meant, len(offsets))
    if offsets:
        failures = failures_after(reading, offsets, refusal, sent_at_ns, consumer)
        reading.failures.update(failures)
        _schedule(reading, failures)
        reading.note_failures_changed(offsets)
    return len(offsets)


def set_aside_claimed(reading: Reading, claimed: Claimed, failures: Mapping[Offset, Failure]) -> None:
    """What was pending has failed, in the store as well: it waits for its time."""
    reading.cursor.set_aside_claimed(claimed)
    for failure in failures.values():
        failure.is_stored = True
    reading.failures.update(failures)
    _schedule(reading, failures)


def note_lost(consumer: Consumer, part: Part, refusal: Refusal) -> None:
    """This consumer was lost while it worked on this one message, which is free now: that counts as a failure. It waits
    only if it is not to be tried again."""
    reading, offset = part.reading, Offset(part.start)
    failures = failures_after(reading, [offset], refusal._replace(delay_ns=0), part.sent_at_ns, consumer)
    reading.failures.update(failures)
    reading.note_failures_changed(failures)
    if reading.is_used_up(offset) and reading.cursor.suspend(offset):
        reading.subscription.waiting += 1
        _schedule(reading, failures)


def restore_failure(reading: Reading, offset: Offset, failure: Failure, key: str | None = None) -> bool:
    """It was waiting for its time when it was last written down. False if it has been settled since."""
    if not reading.cursor.suspend(offset):
        return False
    reading.failures[offset] = failure
    reading.subscription.waiting += 1
    _schedule(reading, {offset: failure})
    if reading.lines is not None and reading.subscription.is_ordered_by_key:
        reading.lines.enter(offset, key)
        reading.lines = reading.lines or None
    return True


def schedule_again(reading: Reading, offsets: Iterable[int]) -> None:
    """These wait again: they go when they are due, perhaps at once."""
    _schedule(reading, {offset: reading.failures[offset] for offset in map(Offset, offsets)})


def start_over(reading: Reading, offset: Offset, now_ns: int) -> None:
    """A letter in a queue has failed for good, and has nowhere else to go: it waits for as long as ever, and is tried
    again until somebody takes it or it expires."""
    failure = reading.failures[offset]
    failure.count, failure.is_final = 1, False
    failure.due_ns = now_ns + reading.policy.max_delay_ms * _NS_PER_MS
    _schedule(reading, {offset: failure})
    reading.note_failures_changed([offset])


def become_due(waiting: Waiting) -> None:
    """What was set aside may go again, unless it has been settled in the meantime."""
    reading, offset = waiting
    if reading.cursor.release(offset):
        reading.subscription.waiting -= 1
        reading.subscription.offer(reading)


def failures_after(
    reading: Reading, offsets: Sequence[Offset], refusal: Refusal, sent_at_ns: int, failed_with: Consumer
) -> dict[Offset, Failure]:
    """What is known of these messages when they have been refused together."""
    failing = Failing(refusal, reading.policy, reading.subscription.jitter_seed)
    is_noted = bool(reading.remembered.first_sent_between(min(offsets), max(offsets) + 1))
    found: dict[Offset, Failure] = {}
    for offset in offsets:
        before = reading.failures.get(offset)
        first_sent_ns = before.first_attempt_ns if before is not None else 0
        if not first_sent_ns and is_noted:
            first_sent_ns = reading.remembered.first_sent_ns(offset) or 0
        failure = failing.failure_after(before, first_sent_ns=first_sent_ns or sent_at_ns, sent_at_ns=sent_at_ns)
        if before is None and offset in reading.changed_failures:
            failure.is_stored = True  # a row from before the subscription was moved is still to go
        found[offset] = failure
    if reading.subscription.is_shared:
        member = ref(failed_with)
        for failure in found.values():
            failure.failed_with, failure.member = member, failed_with.member
    return found


def _schedule(reading: Reading, failures: Mapping[Offset, Failure]) -> None:
    due: dict[int, list[Waiting]] = {}
    for offset, failure in failures.items():
        due.setdefault(failure.due_ns, []).append(Waiting(reading, offset))
    for due_ns, waiting in due.items():
        reading.topic.context.redeliveries.schedule(due_ns, *waiting)
