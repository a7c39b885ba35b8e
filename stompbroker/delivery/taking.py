"""Taking: which messages of a reading go next, for the first time or again.

Law: the only module that puts messages in flight; `sending` hands them over at once. A slice for the first time is one
run, or several if some are passed over, since another message of their key is unsettled. What has expired, or is not
for this subscriber, is settled on the way.
"""

from __future__ import annotations

from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from stompbroker.delivery.consumer import SLICE_MESSAGES
from stompbroker.delivery.keys import KeyLines
from stompbroker.delivery.reading_notes import asks_for_outcomes
from stompbroker.delivery.selection import has_keys
from stompbroker.delivery.sharing import fair_share
from stompbroker.ids import Offset
from stompbroker.ledger.records import Outcome
from stompbroker.message import tails_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stompbroker.commitlog import Log
    from stompbroker.delivery.consumer import Consumer
    from stompbroker.delivery.policy import Failure
    from stompbroker.delivery.reading import Reading
    from stompbroker.delivery.topic import Topic
    from stompbroker.message import Message

_messages_of: Final = attrgetter("messages")

# For the first time --------------------------------------------------------------------------------------------------


class Run(NamedTuple):
    """Messages in a row, from `offset` on."""

    offset: Offset
    messages: list[Message]

    @property
    def stop(self) -> int:
        return self.offset + len(self.messages)


def take_new(
    reading: Reading, taker: Consumer, limit: int, now_ns: int, others: list[Consumer] | None
) -> Sequence[tuple[Offset, list[Message]]]:
    """The next messages to be sent for the first time, one run of them unless some are passed over; from now on in
    flight to `taker`, or settled if that is all there is to its deliveries.

    At least one if there is one, however large. None although there are more if some were stepped or passed over, and
    the next call goes on behind them; or if what comes next is `missing`.
    """
    cursor, topic, next_offset = reading.cursor, reading.topic, reading.cursor.next_offset
    source = topic.log if topic.store_id is None else _source(topic, next_offset)
    if source is None:
        reading.missing = next_offset
        return ()
    is_page = source is not topic.log
    # Of messages with keys perhaps most are passed over.
    first, messages = source.read(next_offset, limit if reading.lines is None else SLICE_MESSAGES)
    if is_page:
        # A page knows nothing of what only the log has: from the log's start on, the log is read.
        start = topic.log.start_offset
        first, messages = min(first, start), messages[: max(0, start - first)]
    if cursor.given_up is not None:
        stop = next((stop for _, stop in cursor.unsent(topic.log.end_offset)), cursor.next_offset)
        messages = messages[: max(0, stop - first)]
    if first > next_offset:
        reading.step_over(first)
    if topic.is_choosy or reading.subscription.is_no_local or is_page or reading.replay:
        messages = _selected(reading, messages, now_ns)
        first = cursor.next_offset
    if len(messages) > 1 and tails_bytes(messages) > (room_bytes := taker.sink.outlet.room_bytes):
        messages = _within_bytes(messages, room_bytes)
    if not messages:
        return ()
    if taker.settles_at_once:
        reading.step_over(first + len(messages))
        return ((first, messages),)
    if reading.subscription.is_ordered_by_key and (reading.lines is not None or has_keys(messages)):
        return _take_by_key(reading, taker, Run(first, messages), limit, others or [])
    reading.owners.expect(taker, cursor)
    _put_in_flight(reading, taker, first, messages)
    return ((first, messages),)


def _put_in_flight(reading: Reading, taker: Consumer, first: Offset, messages: list[Message]) -> None:
    """The next messages in a row; that `taker` gets some is expected."""
    stop = Offset(first + len(messages))
    topic = reading.topic
    is_of_page = topic.store_id is not None and topic.log.start_offset > first
    if is_of_page and reading.is_recorded:
        for offset, message in enumerate(messages, first):
            reading.remembered.keep_stub(Offset(offset), message)
    if is_of_page or topic.is_asking:
        reading.note_asking(first, messages)
    reading.cursor.advance(stop)
    reading.owners.note(taker, first, stop)


def _take_by_key(reading: Reading, taker: Consumer, run: Run, limit: int, others: list[Consumer]) -> list[Run]:
    """Of this run, messages no other of whose key is unsettled, at most `limit`; what lies between is held up."""
    lines = reading.lines = reading.lines or KeyLines()
    limit = min(limit, fair_share(lines.count_untaken(run.messages), taker, others))
    room = reading.room_to_hold_up
    #: Whether they may go, and which.
    stretches: list[tuple[bool, Run]] = []
    for offset, message in enumerate(run.messages, run.offset):
        key = message.origin.group_key
        may_go = not lines.is_taken(key)
        if not (limit if may_go else room):
            break
        limit -= may_go
        room -= not may_go
        lines.enter(offset, key)
        if stretches and stretches[-1][0] is may_go:
            stretches[-1][1].messages.append(message)
        else:
            stretches.append((may_go, Run(Offset(offset), [message])))
    reading.lines = reading.lines or None
    runs = [found for may_go, found in stretches if may_go]
    if runs:
        reading.owners.expect(taker, reading.cursor)
    for may_go, found in stretches:
        if may_go:
            _put_in_flight(reading, taker, found.offset, found.messages)
        else:
            reading.cursor.hold_up(Offset(found.offset + len(found.messages)))
    return runs


def _source(topic: Topic, offset: Offset) -> Log | None:
    """Where to read on from `offset` in a stored topic: the log, or a page of what left it; None if that has to be read
    first."""
    if offset >= topic.log.start_offset:
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
    reading.tell_unsent(message, Outcome.EXPIRED)
    if reading.topic.context.records is not None:
        reading.remember(offset, message)
        reading.record([(offset, offset + 1)], Outcome.EXPIRED, now_ns)
        reading.remembered.drop_stub(offset)


def _within_bytes(messages: list[Message], limit_bytes: int) -> list[Message]:
    """As many from the front as fit, but one at least."""
    total_bytes = 0
    for index, message in enumerate(messages):
        total_bytes += len(message.tail)
        if total_bytes > limit_bytes:
            return messages[: max(index, 1)]
    return messages


# Again ---------------------------------------------------------------------------------------------------------------


class Again(NamedTuple):
    """Messages that one header block can tell the history of, in runs, lowest offset first."""

    runs: list[Run]
    #: False for what was only passed over.
    is_again: bool
    failure: Failure | None
    first_sent_ns: int | None

    @property
    def messages(self) -> list[Message]:
        return list(chain.from_iterable(map(_messages_of, self.runs)))

    def has_history(self, failure: Failure | None, first_sent_ns: int | None, *, is_again: bool) -> bool:
        """Whether a message with this history is told the same."""
        if first_sent_ns != self.first_sent_ns or is_again is not self.is_again:
            return False
        if failure is None or self.failure is None:
            return failure is self.failure
        return failure.count == self.failure.count and failure.reason == self.failure.reason


def take_again(reading: Reading, taker: Consumer, limit: int, now_ns: int, offsets: list[Offset] | None) -> list[Again]:
    """Messages to be sent once more, lowest offset first; from now on in flight to `taker`.

    At least one if there is one, unless `offsets` are only looked at; none if the next is `missing`. What has expired
    or is gone is settled instead.
    """
    again: list[Again] = []
    while not again and reading.missing is None and reading.again_count and limit > 0:
        reading.owners.expect(taker, reading.cursor)
        found = _lowest_again(reading, limit) if offsets is None else offsets
        _gather_again(reading, again, found, taker, now_ns)
        if offsets is not None:
            break
    for each in again:
        is_asking = asks_for_outcomes(each.messages)
        for offset, messages in each.runs:
            reading.owners.note(taker, offset, offset + len(messages))
            if is_asking:
                reading.note_asking(offset, messages)
    return again


def _lowest_again(reading: Reading, limit: int) -> list[Offset]:
    offsets = reading.cursor.lowest_free(limit)
    if reading.lines is None:
        return offsets
    return sorted({*offsets, *map(Offset, reading.lines.ready[:limit])})[:limit]


def _gather_again(reading: Reading, again: list[Again], offsets: list[Offset], taker: Consumer, now_ns: int) -> None:
    #: Messages with one history may be delivered together although there are others between them, as it is when every
    #: tenth was refused.
    takes_gaps = taker.expects_acks and not taker.is_of_bridge
    is_each_its_own = reading.topic.retained is not None or reading.told_missing is not None
    cursor, lines, log, is_recorded = reading.cursor, reading.lines, reading.log, reading.is_recorded
    gone: list[tuple[Offset, Message | None]] = []
    free: list[Offset] = []
    held_up: list[Offset] = []
    limit_bytes = taker.sink.outlet.room_bytes
    for offset in offsets:
        message = log.get(offset)
        is_in_log = message is not None
        if message is None:
            message, is_known = reading.get(offset)
            if not is_known:
                reading.missing = offset
                break
        is_free = lines is None or cursor.is_free(offset)
        is_gone = message is None or message.has_expired(now_ns)
        if lines is not None and not _is_its_turn(reading, lines, offset, message, is_free=is_free, is_gone=is_gone):
            continue
        (free if is_free else held_up).append(offset)
        if message is None or is_gone:
            gone.append((offset, message))
            continue
        if is_recorded and not is_in_log:
            reading.remember(offset, message)
        failure, first_sent_ns = reading.failures.get(offset), reading.first_sent_ns(offset)
        is_again = is_free or failure is not None or first_sent_ns is not None
        last = again[-1] if again and not is_each_its_own else None
        if last is not None and not last.has_history(failure, first_sent_ns, is_again=is_again):
            last = None
        if last is not None and last.runs[-1].stop == offset:
            last.runs[-1].messages.append(message)
        elif last is not None and takes_gaps:
            last.runs.append(Run(offset, [message]))
        else:
            again.append(Again([Run(offset, [message])], is_again, failure, first_sent_ns))
        limit_bytes -= message.size_bytes
        if limit_bytes <= 0:
            break
    cursor.take_free(free)
    cursor.take_held_up(held_up)
    reading.lines = reading.lines or None
    for offset, gone_message in gone:
        if gone_message is None:
            _pass_over(reading, offset, now_ns)
        else:
            reading.subscription.counters.expired += 1
            reading.remember(offset, gone_message)
            reading.note_asking(offset, [gone_message])
            reading.settle(offset, offset + 1, Outcome.EXPIRED, now_ns)


def _is_its_turn(
    reading: Reading, lines: KeyLines, offset: Offset, message: Message | None, *, is_free: bool, is_gone: bool
) -> bool:
    """Whether it goes now, or is to be settled since it is gone. Otherwise it waits in its line from now on."""
    is_held_up = reading.cursor.is_held_up(offset)
    has_key_that_counts = message is not None and reading.subscription.is_ordered_by_key
    has_key = lines.enter(offset, message.origin.group_key if message is not None and has_key_that_counts else None)
    if not (is_free or is_held_up):
        return False  # it waits for its time, or is pending: its key was not known
    if has_key or is_gone:
        lines.leave_ready(offset, offset + 1)
        return True
    if is_free:
        reading.cursor.hold_up_free(offset)
    return False


def _pass_over(reading: Reading, offset: Offset, now_ns: int) -> None:
    """A message that was sent is gone. If an operator took it away while it was in flight, the ledger gets a record. A
    `persistent:false` message that was lost has none: mostly nobody knows any more what it was."""
    if any(message.origin.is_persistent for _, message in reading.remembered.recalled(offset, offset + 1)):
        reading.settle(offset, offset + 1, Outcome.SKIPPED, now_ns)
    else:
        reading.settle_unrecorded([(offset, offset + 1)])
