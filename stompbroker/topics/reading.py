"""One subscription reads one topic.

Law: pairs a cursor with the topic's log and keeps what the two cannot know: messages that left the log's window
while unsettled and that no store has, how often each has failed, and what was dropped ahead of the cursor. Synchronous
throughout: what is neither in the log nor in a page is named in `missing`, and tried again when the page has come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, final

from stompbroker.commitlog import Cursor, OffsetRanges, Settlement
from stompbroker.ids import DeliveryNumber, Offset
from stompbroker.message import tails_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stompbroker.message import Message
    from stompbroker.topics.subscription import Subscription
    from stompbroker.topics.topic import Topic

__all__ = ["Again", "Failure", "Reading"]


@final
class Failure:
    """What is known of a message that failed at least once for this subscription and is not settled."""

    __slots__ = ("count", "due_ns", "last_number", "reason")

    def __init__(self) -> None:
        #: How many deliveries have failed.
        self.count = 0
        #: When it goes again.
        self.due_ns = 0
        #: What the subscriber last gave as its reason.
        self.reason = ""
        #: The number of its latest delivery: an answer to an earlier one is late.
        self.last_number = DeliveryNumber(0)


class Again(NamedTuple):
    """A message to be sent once more."""

    offset: Offset
    message: Message
    failure: Failure | None


@final
class Reading:
    """
    Invariants:
        every unsettled sent message that may have to go again is in the log, in `held` or in the store
        held_bytes is the size of `held`, and is charged to the memory budget
        failures and held hold unsettled offsets only
        unsent == end of the log - cursor.next_offset - what was dropped ahead of it
    """

    __slots__ = (
        "_dropped_ahead",
        "_held",
        "changed_failures",
        "cursor",
        "failures",
        "held_bytes",
        "listed_in",
        "missing",
        "subscription",
        "topic",
    )

    def __init__(self, subscription: Subscription, topic: Topic, cursor: Cursor) -> None:
        self.subscription = subscription
        self.topic = topic
        self.cursor = cursor
        self.failures: dict[Offset, Failure] = {}
        #: Where `failures` differs from what the store was last told; only for durable subscriptions.
        self.changed_failures: set[Offset] = set()
        #: The offset that has to be read from the store before anything more can be sent.
        self.missing: Offset | None = None
        self._held: dict[Offset, Message] = {}
        self.held_bytes = 0
        #: Unsent offsets that will never be sent because the window was full (`drop-newest`).
        self._dropped_ahead: OffsetRanges | None = None
        #: The backlog that holds this reading; its consumer's to set.
        self.listed_in: object = None

    @property
    def has_more(self) -> bool:
        """Whether there is anything to send, for the first time or again."""
        return self.cursor.free_count > 0 or self.cursor.next_offset < self.topic.log.end_offset

    @property
    def unsent(self) -> int:
        dropped = self._dropped_ahead.count if self._dropped_ahead is not None else 0
        return self.topic.log.end_offset - self.cursor.next_offset - dropped

    @property
    def backlog(self) -> int:
        """How many messages it has still to get, for the first time or again."""
        return self.unsent + self.cursor.free_count + self.cursor.waiting_count

    @property
    def lowest_needed(self) -> Offset:
        """The log may drop everything below without anybody having to hold it."""
        if self.subscription.consumer is None and self.topic.is_in_store:
            return self.topic.log.end_offset  # whoever is not there reads from the store when it returns
        return self.cursor.ack_floor if self.subscription.may_go_again else self.cursor.next_offset

    @property
    def is_idle(self) -> bool:
        """Whether nothing is owed or expected here."""
        return self.cursor.ack_floor == self.topic.log.end_offset

    def unsent_ranges(self) -> list[tuple[int, int]]:
        """The offsets that the window is still needed for."""
        if self.subscription.consumer is None and self.topic.is_in_store:
            return []
        return self._unsent_ranges()

    def _unsent_ranges(self) -> list[tuple[int, int]]:
        start, stop = self.cursor.next_offset, self.topic.log.end_offset
        if self._dropped_ahead is not None:
            return self._dropped_ahead.gaps(start, stop)
        return [(start, stop)] if start < stop else []

    def take_new(self, limit: int, limit_bytes: int) -> tuple[Offset, list[Message]]:
        """The next messages to be sent for the first time, in a row, and from now on in flight.

        At least one if there is one, however large. It may be none although there are more: then some were stepped
        over, and the next call goes on behind them; or what comes next is `missing`.
        """
        cursor = self.cursor
        if self._dropped_ahead is not None:
            limit = self._step_over_dropped(limit)
        source = self.topic.source(cursor.next_offset)
        if source is None:
            self.missing = cursor.next_offset
            return cursor.next_offset, []
        first, messages = source.read(cursor.next_offset, limit)
        if source is not self.topic.log:
            first, messages = self._within_page(first, messages)
        self._step_over(first)
        if self.subscription.is_no_local:
            messages = self._without_own(messages)
            first = cursor.next_offset
        if tails_bytes(messages) > limit_bytes:
            messages = _within(messages, limit_bytes)
        cursor.advance(Offset(first + len(messages)))
        return first, messages

    def _within_page(self, first: Offset, messages: list[Message]) -> tuple[Offset, list[Message]]:
        """A page knows nothing of what only the log has: from the log's start on, the log is read."""
        start = self.topic.log.start_offset
        return min(first, start), messages[: max(0, start - first)]

    def take_again(self, limit: int, limit_bytes: int) -> list[Again]:
        """Messages to be sent once more, lowest offset first, from now on in flight.

        One at least if there is one; none if the next is `missing`, or if nobody has it any more, which settles it.
        """
        again: list[Again] = []
        while self.cursor.free_count and len(again) < limit and limit_bytes > 0:
            offset = self.cursor.lowest_free
            message = self._held.get(offset) or self.topic.log.get(offset)
            if message is None:
                page = self.topic.page(offset)
                if page is None:
                    self.missing = offset
                    break
                message = page.get(offset)
            if message is None:
                self.settle(offset, offset + 1)
                continue
            self.cursor.take_lowest_free()
            again.append(Again(offset, message, self.failures.get(offset)))
            limit_bytes -= message.size_bytes
        return again

    def settle(self, start: int, stop: int) -> Settlement:
        """These offsets are done with, whatever state they were in."""
        settlement = self.cursor.settle(start, stop)
        if self.failures:
            for offset in _offsets_between(self.failures, start, stop):
                del self.failures[offset]
                self._note_failure_changed(offset)
        if self._held:
            size_bytes = sum(self._held.pop(offset).size_bytes for offset in _offsets_between(self._held, start, stop))
            self.held_bytes -= size_bytes
            self.topic.budget.adjust(-size_bytes)
        if self.topic.is_in_store:
            self.topic.unsaved.note_reading(self, settlement.total)
        return settlement

    def set_aside(self, offset: Offset, *, due_ns: int, reason: str, is_in_flight: bool = True) -> bool:
        """A delivery has failed: it waits until `due_ns`. False if it was not in flight, or else not free."""
        is_aside = self.cursor.set_aside(offset) if is_in_flight else self.cursor.suspend(offset)
        if not is_aside:
            return False
        failure = self.failures.setdefault(offset, Failure())
        failure.count += 1
        failure.due_ns = due_ns
        failure.reason = reason
        self._note_failure_changed(offset)
        return True

    def restore_failure(self, offset: Offset, failure: Failure) -> bool:
        """It was waiting for its time when it was last written down. False if it has been settled since."""
        if not self.cursor.suspend(offset):
            return False
        self.failures[offset] = failure
        return True

    def _note_failure_changed(self, offset: Offset) -> None:
        if self.subscription.is_durable:
            self.changed_failures.add(offset)
            self.topic.unsaved.note_reading(self, 1)

    def become_due(self, offset: Offset) -> None:
        """What was set aside may go again, unless it has been settled in the meantime."""
        if self.cursor.release(offset):
            self.subscription.waiting -= 1
            if self.subscription.consumer is not None:
                self.subscription.consumer.offer(self)

    def is_waiting(self, offset: Offset) -> bool:
        return self.cursor.is_waiting(offset) and not self.subscription.is_closed

    def was_sent_again(self, offset: int, *, after: int) -> bool:
        """Whether the message has been sent again under a number higher than `after`."""
        failure = self.failures.get(Offset(offset))
        return failure is not None and failure.last_number > after

    def hold_unsettled(self, start: int, stop: int) -> None:
        """The log is about to drop [start, stop): keep what of it is sent, unsettled and may have to go again, unless
        the store has it."""
        if not self.subscription.may_go_again:
            return
        size_bytes = 0
        for low, high in self.cursor.unsettled(start, stop):
            for offset in map(Offset, range(low, high)):
                message = self.topic.log.get(offset)
                if message is not None and not self.topic.has_stored(offset):
                    self._held[offset] = message
                    size_bytes += message.size_bytes
        self.held_bytes += size_bytes
        self.topic.budget.adjust(size_bytes)

    def drop_oldest(self, stop: Offset) -> int:
        """Give up what is unsent below `stop`; returns how many messages that were."""
        before = self.unsent
        self._step_over(stop)
        self._forget_dropped_behind()
        return max(before - self.unsent, 0)

    def drop_newest(self, start: Offset) -> int:
        """Give up what is unsent from `start` on; returns how many messages that were."""
        if self._dropped_ahead is None:
            self._dropped_ahead = OffsetRanges()
        return self._dropped_ahead.add(max(start, self.cursor.next_offset), self.topic.log.end_offset)

    def close(self) -> None:
        """Nobody reads here any more."""
        self.topic.budget.adjust(-self.held_bytes)
        self.held_bytes = 0
        self._held.clear()

    def _step_over_dropped(self, limit: int) -> int:
        """Move past what was dropped; returns how many messages may be read before the next dropped one."""
        ranges = self._unsent_ranges()
        start, stop = ranges[0] if ranges else (self.topic.log.end_offset, self.topic.log.end_offset)
        self._step_over(Offset(start))
        self._forget_dropped_behind()
        return min(limit, stop - start)

    def _forget_dropped_behind(self) -> None:
        if self._dropped_ahead is not None:
            self._dropped_ahead.forget_below(self.cursor.next_offset)
            self._dropped_ahead = self._dropped_ahead or None

    def _step_over(self, stop: Offset) -> None:
        """What is unsent below `stop` will never be sent: it is settled."""
        if stop > self.cursor.next_offset:
            self.cursor.step_over(stop)
            if self.topic.is_in_store:
                self.topic.unsaved.note_reading(self, 1)

    def _without_own(self, messages: list[Message]) -> list[Message]:
        """Step over what the subscriber published itself; what is left is the run up to the next such message."""
        own = self.subscription.connection_name
        position = 0
        while position < len(messages) and messages[position].origin.publisher == own:
            position += 1
        self._step_over(Offset(self.cursor.next_offset + position))
        stop = position
        while stop < len(messages) and messages[stop].origin.publisher != own:
            stop += 1
        return messages[position:stop]

    def check_invariants(self) -> None:
        self.cursor.check_invariants()
        assert self.held_bytes == sum(message.size_bytes for message in self._held.values())
        for offset in (*self.failures, *self._held):
            assert offset < self.cursor.next_offset
            assert not self.cursor.is_settled(offset, offset + 1)
        assert self.unsent == sum(stop - start for start, stop in self._unsent_ranges())
        assert not self.changed_failures or self.subscription.is_durable


def _within(messages: list[Message], limit_bytes: int) -> list[Message]:
    """As many from the front as fit, but one at least."""
    total_bytes = 0
    for index, message in enumerate(messages):
        total_bytes += len(message.tail)
        if total_bytes > limit_bytes:
            return messages[: max(index, 1)]
    return messages


def _offsets_between(kept: Mapping[Offset, object], start: int, stop: int) -> list[Offset]:
    """Which offsets of [start, stop) are kept; goes through the smaller of the two."""
    if stop - start <= len(kept):
        return [offset for offset in map(Offset, range(start, stop)) if offset in kept]
    return [offset for offset in kept if start <= offset < stop]
