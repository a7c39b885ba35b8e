"""The messages of one topic that are kept in memory, by offset.

Law: appends at the end, reads from anywhere, drops any range; readers step over gaps. The owner decides what is
dropped. Messages on their way to the store have reserved offsets: they are appended later, in that order, and nothing
else is appended meanwhile.

Hot path: a segment is a list of messages in a row; an append extends the last segment, a read is a slice of one.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from stompbroker.ids import Offset
from stompbroker.message import size_of_all

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stompbroker.message import Message

#: Messages in a segment. Dropping from its front moves the rest, so it is short; a read ends at its end, so not too
#: short.
SEGMENT_MESSAGES: Final = 1024


@final
@dataclass(slots=True, eq=False)
class _Segment:
    """A run of messages without a gap: `messages[i]` has offset `base + i`."""

    base: int
    messages: list[Message] = field(default_factory=list)
    size_bytes: int = 0

    @property
    def stop(self) -> int:
        return self.base + len(self.messages)


@final
@dataclass(slots=True, eq=False, repr=False)
class Log:
    """
    Invariants:
        segments are sorted, not empty, do not overlap, and end at or below end_offset
        message_count and size_bytes are the sums over all segments
        end_offset never falls, and is never above reserved_end
    """

    #: The offset the next message will get.
    end_offset: Offset
    #: The next offset that `reserve` gives.
    reserved_end: Offset = field(init=False)
    _segments: list[_Segment] = field(default_factory=list)
    #: The segments' bases, for bisection.
    _bases: list[int] = field(default_factory=list)
    message_count: int = 0
    size_bytes: int = 0

    def __post_init__(self) -> None:
        self.reserved_end = self.end_offset

    @property
    def start_offset(self) -> Offset:
        """The lowest offset that is held; end_offset when none is."""
        return Offset(self._bases[0]) if self._bases else self.end_offset

    def reserve(self, count: int) -> Offset:
        """Reserve the next offsets for messages on their way to the store; returns the first."""
        first = self.reserved_end
        self.reserved_end = Offset(first + count)
        return first

    def cancel_reserved(self) -> None:
        """The messages on their way do not come, or reserve again."""
        self.reserved_end = self.end_offset

    def append(self, messages: Sequence[Message]) -> Offset:
        """Give the messages the next offsets and keep them; returns the first."""
        first = self.end_offset
        end = Offset(first + len(messages))
        size_bytes = size_of_all(messages)
        segment = self._segments[-1] if self._segments else None
        held = 0 if segment is None else len(segment.messages)
        if segment is None or held >= SEGMENT_MESSAGES or segment.base + held != first:
            segment = _Segment(first)
            self._segments.append(segment)
            self._bases.append(first)
        segment.messages.extend(messages)
        segment.size_bytes += size_bytes
        self.size_bytes += size_bytes
        self.message_count += end - first
        self.end_offset = end
        if end > self.reserved_end:
            self.reserved_end = end
        return first

    def skip(self, count: int) -> None:
        """Give out `count` offsets for messages that nobody needs kept."""
        self.end_offset = Offset(self.end_offset + count)
        self.reserved_end = max(self.reserved_end, self.end_offset)

    def read(self, offset: int, limit: int) -> tuple[Offset, list[Message]]:
        """At most `limit` messages in a row, at or after `offset`, with the offset of the first; (end_offset, []) if
        there are none. What lies between is gone."""
        index = bisect_right(self._bases, offset) - 1
        if index >= 0:
            segment = self._segments[index]
            skip = offset - segment.base
            if skip < len(segment.messages):
                return Offset(offset), segment.messages[skip : skip + limit]
        if index + 1 < len(self._segments):
            segment = self._segments[index + 1]
            return Offset(segment.base), segment.messages[:limit]
        return self.end_offset, []

    def get(self, offset: int) -> Message | None:
        first, found = self.read(offset, 1)
        return found[0] if found and first == offset else None

    def drop(self, start: int, stop: int) -> None:
        index = max(bisect_right(self._bases, start) - 1, 0)
        first = index
        replacement: list[_Segment] = []
        while index < len(self._segments) and self._segments[index].base < stop:
            segment = self._segments[index]
            index += 1
            dropped = segment.messages[max(start - segment.base, 0) : stop - segment.base]
            if not dropped:
                replacement.append(segment)
                continue
            self.message_count -= len(dropped)
            self.size_bytes -= segment.size_bytes
            for base, messages in (
                (segment.base, segment.messages[: max(start - segment.base, 0)]),
                (stop, segment.messages[max(stop - segment.base, 0) :]),
            ):
                if messages:
                    kept = _Segment(base, messages, size_of_all(messages))
                    self.size_bytes += kept.size_bytes
                    replacement.append(kept)
        self._segments[first:index] = replacement
        self._bases[first:index] = [segment.base for segment in replacement]

    def __iter__(self) -> Iterator[tuple[Offset, Message]]:
        for segment in self._segments:
            for index, message in enumerate(segment.messages):
                yield Offset(segment.base + index), message

    def check_invariants(self) -> None:
        assert self.end_offset <= self.reserved_end
        assert self._bases == [segment.base for segment in self._segments]
        assert all(segment.messages for segment in self._segments)
        stops = [segment.stop for segment in self._segments]
        assert all(stop <= base for stop, base in zip(stops, [*self._bases, self.end_offset][1:], strict=True))
        assert self.message_count == sum(len(segment.messages) for segment in self._segments)
        assert self.size_bytes == sum(segment.size_bytes for segment in self._segments)
        for segment in self._segments:
            assert segment.size_bytes == sum(message.size_bytes for message in segment.messages)
