"""How much of a topic is kept for later subscribers, and where one of them begins in it.

Law: counts the stored messages of one topic in marks of a few messages each, and says below which offset the policy
keeps nothing. A mark is at most 1/64 of what is retained, so little is kept beyond that. What a broker finds at its
start is counted in the background; until then nothing is deleted.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, final

from stompbroker.clock import NANOSECONDS
from stompbroker.ids import Offset
from stompbroker.message import tails_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from stompbroker.delivery.policy import Retention
    from stompbroker.message import Message


#: The least number of marks for what is retained, and the most that one mark counts.
MARKS: Final = 64
MAX_MARK_MESSAGES: Final = 1_000
MAX_MARK_BYTES: Final = 1024 * 1024
#: Above every offset.
NO_FLOOR: Final = Offset(1 << 62)


class Replay(NamedTuple):
    """Where a subscription begins; found when its SUBSCRIBE is read. If something it asked for is gone, the first
    message that is sent says so."""

    #: The first offset that is read.
    start: Offset
    #: Messages published before that are stepped over; 0 for all.
    since_ns: int = 0
    #: The first offset that was asked for, if that was an offset.
    asked_for: Offset | None = None
    #: Whether something older than what was asked for is there, so that nothing of it can be missing.
    is_whole: bool = False


class Mark(NamedTuple):
    """The messages at offsets below `stop`, and not below the mark before."""

    stop: int
    messages: int
    size_bytes: int
    #: When the first and the last of them were published.
    begun_at_ns: int
    published_at_ns: int

    def joined(self, behind: Mark) -> Mark:
        return Mark(
            behind.stop,
            self.messages + behind.messages,
            self.size_bytes + behind.size_bytes,
            self.begun_at_ns,
            behind.published_at_ns,
        )


@final
class Retained:
    """
    Invariants:
        marks are sorted by offset, and count everything stored at or above the first offset that was not collected
        messages and size_bytes are the sums over all marks
    """

    __slots__ = ("_marks", "_max_mark", "_retention", "counts_from", "is_counted", "messages", "size_bytes")

    def __init__(self, retention: Retention) -> None:
        self._retention = retention
        self._marks: deque[Mark] = deque()
        #: What one mark counts at most: messages, bytes, nanoseconds.
        self._max_mark = (
            max(1, min(MAX_MARK_MESSAGES, (retention.max_messages or MARKS * MAX_MARK_MESSAGES) // MARKS)),
            max(1, min(MAX_MARK_BYTES, (retention.max_bytes or MARKS * MAX_MARK_BYTES) // MARKS)),
            max(1, int(retention.age_s * NANOSECONDS / MARKS)) if retention.age_s else 1 << 62,
        )
        self.messages = 0
        self.size_bytes = 0
        #: Whether messages from before the start, below `counts_from`, are counted.
        self.is_counted = True
        self.counts_from = Offset(0)

    def note_start(self, next_offset: Offset) -> None:
        """The store has messages below it that are not counted yet."""
        self.counts_from = next_offset
        self.is_counted = False

    def mark_size(self, messages: int, size_bytes: int, span_ns: int) -> int:
        """How many messages make one mark, if `messages` of them have `size_bytes` and span `span_ns`."""
        max_messages, max_bytes, max_ns = self._max_mark
        by_bytes = max_bytes * messages // max(1, size_bytes)
        by_time = max_ns * messages // max(1, span_ns)
        return max(1, min(max_messages, by_bytes, by_time))

    def note(self, first: Offset, messages: Sequence[Message]) -> None:
        """These were stored, at offsets from `first` on."""
        step = self.mark_size(len(messages), tails_bytes(messages), 0)
        for index in range(0, len(messages), step):
            part = messages[index : index + step]
            stop = first + index + len(part)
            stored = [message for message in part if message.origin.is_persistent]
            self._add(Mark(stop, len(stored), tails_bytes(stored), part[0].published_at_ns, part[-1].published_at_ns))

    def note_earlier(self, marks: Iterable[Mark]) -> None:
        """These were there before the start."""
        for mark in sorted(marks, reverse=True):
            self._marks.appendleft(mark)
            self.messages += mark.messages
            self.size_bytes += mark.size_bytes
        self.is_counted = True

    def _add(self, mark: Mark) -> None:
        self.messages += mark.messages
        self.size_bytes += mark.size_bytes
        if self._marks:
            joined = self._marks[-1].joined(mark)
            max_messages, max_bytes, max_ns = self._max_mark
            is_small = joined.messages <= max_messages and joined.size_bytes <= max_bytes
            if is_small and joined.published_at_ns - joined.begun_at_ns <= max_ns:
                self._marks[-1] = joined
                return
        self._marks.append(mark)

    def floor(self, now_ns: int) -> Offset:
        """The policy keeps nothing below it. As many messages are kept as it says, or more, and at most as many
        bytes."""
        if not self.is_counted:
            return Offset(0)
        retention = self._retention
        oldest_ns = now_ns - int(retention.age_s * NANOSECONDS)
        messages, size_bytes, floor = self.messages, self.size_bytes, 0
        for mark in self._marks:
            is_old = bool(retention.age_s) and mark.published_at_ns < oldest_ns
            is_one_too_many = bool(retention.max_messages) and messages - mark.messages >= retention.max_messages
            is_too_much = bool(retention.max_bytes) and size_bytes > retention.max_bytes
            if mark.messages and not (is_old or is_one_too_many or is_too_much):
                break
            messages -= mark.messages
            size_bytes -= mark.size_bytes
            floor = mark.stop
        else:
            return NO_FLOOR
        return Offset(floor)

    def forget(self, offsets: Iterable[Offset]) -> None:
        """These were deleted out of turn. Each is taken for an average message of its mark."""
        stops = [mark.stop for mark in self._marks]
        for offset in offsets:
            index = bisect_right(stops, offset)
            if index == len(stops) or not self._marks[index].messages:
                continue
            mark = self._marks[index]
            left_bytes = mark.size_bytes * (mark.messages - 1) // mark.messages
            self._marks[index] = mark._replace(messages=mark.messages - 1, size_bytes=left_bytes)
            self.messages -= 1
            self.size_bytes -= mark.size_bytes - left_bytes

    def forget_below(self, offset: int) -> None:
        while self._marks and self._marks[0].stop <= offset:
            mark = self._marks.popleft()
            self.messages -= mark.messages
            self.size_bytes -= mark.size_bytes

    def offset_before(self, at_ns: int) -> Offset:
        """Close to the highest offset below which everything was published before `at_ns`."""
        found = 0
        for mark in self._marks:
            if mark.published_at_ns >= at_ns:
                break
            found = mark.stop
        return Offset(found)

    def check_invariants(self) -> None:
        stops = [mark.stop for mark in self._marks]
        assert stops == sorted(set(stops))
        assert self.messages == sum(mark.messages for mark in self._marks)
        assert self.size_bytes == sum(mark.size_bytes for mark in self._marks)
