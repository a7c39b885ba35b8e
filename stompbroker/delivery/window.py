"""How much of a topic's log is kept in memory, and who pays when it is too much.

Law: the only place that drops from the log. The window bounds what is not yet sent to everybody. A full one first loses
what nobody needs, then what the store has; only then the policy for slow subscribers decides (`appending`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar, final

from stompbroker.commitlog import OffsetRanges
from stompbroker.ids import Offset
from stompbroker.message import is_persistent

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from stompbroker.commitlog import Cursor, Log
    from stompbroker.delivery.policy import TopicPolicy
    from stompbroker.memory_budget import MemoryBudget
    from stompbroker.message import Message

#: The window of each topic while memory is tight.
TIGHT_WINDOW_BYTES: Final = 64 * 1024
#: A log is trimmed when it has doubled since the last time, but not below these: with a thousand topics, what nobody
#: needs any more should still be in the processor's caches when it is freed, and its memory be used again.
MIN_TRIM_MESSAGES: Final = 16
MIN_TRIM_BYTES: Final = 16 * 1024
#: A full window of a stored topic is shortened to this part: less would mean a trim at every append.
KEPT_SHARE: Final = 0.75


class Reader(Protocol):
    """One reading of the topic, and what it needs."""

    @property
    def cursor(self) -> Cursor: ...

    @property
    def lowest_needed(self) -> Offset: ...

    @property
    def is_connected(self) -> bool: ...

    def unsent_ranges(self) -> list[tuple[int, int]]: ...

    def hold_unsettled(self, start: int, stop: int) -> None: ...


R = TypeVar("R", bound=Reader)


@final
class Window(Generic[R]):
    """
    Invariants:
        no message is kept that every reading has settled, longer than until the next trim
        a message in the log is in the store too, unless the topic is not or `_unstored` has its offset
        what exists below the start of the log is in the store
    """

    __slots__ = (
        "_budget",
        "_is_in_store",
        "_log",
        "_policy",
        "_readings",
        "_trim_bytes",
        "_trim_messages",
        "_unstored",
    )

    def __init__(self, log: Log, readings: Mapping[Any, R], policy: TopicPolicy, budget: MemoryBudget) -> None:
        # Parts of its topic, not the topic: the two would keep each other in memory.
        self._log = log
        self._readings = readings
        self._policy = policy
        self._budget = budget
        self._is_in_store = False
        #: Offsets in the log that are not in the store; only for topics in the store.
        self._unstored = OffsetRanges()
        self._trim_messages = MIN_TRIM_MESSAGES
        self._trim_bytes = MIN_TRIM_BYTES

    # How full it is --------------------------------------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """The same as `fills(1.0)`, in one step: it is asked for every append."""
        log, policy = self._log, self._policy
        if log.message_count >= policy.window_messages or log.size_bytes >= policy.window_bytes:
            return True
        return log.size_bytes >= TIGHT_WINDOW_BYTES and self._budget.is_tight

    @property
    def is_large(self) -> bool:
        """Whether it may be full or overgrown. A small one is neither, however tight memory is."""
        log, policy = self._log, self._policy
        return (
            log.message_count >= self._trim_messages
            or log.size_bytes >= self._trim_bytes
            or log.message_count >= policy.window_messages
            or log.size_bytes >= policy.window_bytes
            or log.size_bytes >= TIGHT_WINDOW_BYTES
        )

    @property
    def is_overgrown(self) -> bool:
        """Whether it is time to trim."""
        log = self._log
        return log.message_count >= self._trim_messages or log.size_bytes >= self._trim_bytes

    def fills(self, share: float, *, part: float = 1.0) -> bool:
        """Whether the log, or a part of it, fills that share of the window."""
        max_bytes, max_messages = self._bounds()
        log = self._log
        return log.size_bytes * part >= max_bytes * share or log.message_count * part >= max_messages * share

    def _bounds(self) -> tuple[int, int]:
        """Bytes and messages that may be kept."""
        max_bytes = self._policy.window_bytes
        return min(max_bytes, TIGHT_WINDOW_BYTES) if self._budget.is_tight else max_bytes, self._policy.window_messages

    @property
    def lowest_unsent(self) -> Offset:
        """The position of the slowest reading in the window."""
        log = self._log
        if self._is_in_store:
            positions = [max(reading.cursor.next_offset, log.start_offset) for reading in self.connected()]
        else:
            positions = [reading.cursor.next_offset for reading in self._readings.values()]
        return min(positions, default=log.end_offset)

    @property
    def sent_part(self) -> float:
        """The part of the log, from 0 to 1, that everybody has been sent and that waits to be settled."""
        log = self._log
        return (self.lowest_unsent - log.start_offset) / max(1, log.message_count)

    # What only the log has -------------------------------------------------------------------------------------------

    def note_unstored(self, first: Offset, messages: Sequence[Message], *, is_stored: bool) -> None:
        """These messages were appended. If `is_stored`, the journal has written the persistent ones; else none."""
        if not is_stored:
            self._unstored.add(first, first + len(messages))
        elif not all(map(is_persistent, messages)):
            for offset, message in enumerate(messages, first):
                if not message.origin.is_persistent:
                    self._unstored.add(offset, offset + 1)

    def enter_store(self) -> None:
        """The topic gets its place in the store; messages already in the log are not stored."""
        self._is_in_store = True
        self._unstored.add(self._log.start_offset, self._log.end_offset)

    def has_unstored(self, offset: Offset) -> bool:
        return offset in self._unstored

    def _first_unstored(self, reading: R) -> Offset | None:
        """The first message that is only in the log and that this reading has not been sent."""
        first = self._unstored.first_from(max(reading.cursor.next_offset, self._log.start_offset))
        return None if first is None else Offset(first)

    # Making it shorter -----------------------------------------------------------------------------------------------

    def trim(self, *, only_unsent: bool = False) -> None:
        """Drop what nobody needs.

        Sent and unsettled messages stay, since most are settled soon. If they fill half of the window, or with
        `only_unsent`, they go too: readings that may need them hold them, unless the store has them.
        """
        log = self._log
        before_bytes = log.size_bytes
        readings = self._readings.values()
        log.drop(log.start_offset, min([reading.lowest_needed for reading in readings], default=log.end_offset))
        if only_unsent or (self.fills(0.5) and self.fills(0.5, part=self.sent_part)):
            needed = OffsetRanges()
            for reading in readings:
                for start, stop in reading.unsent_ranges():
                    needed.add(start, stop)
            for start, stop in needed.gaps(log.start_offset, log.end_offset):
                for reading in readings:
                    reading.hold_unsettled(start, stop)
                log.drop(start, stop)
        self._after_drop(before_bytes)
        self._trim_messages = max(MIN_TRIM_MESSAGES, 2 * log.message_count)
        self._trim_bytes = max(MIN_TRIM_BYTES, 2 * log.size_bytes)

    def drop_ranges(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Drop settled ranges between unsettled ones."""
        log = self._log
        before_bytes = log.size_bytes
        for start, stop in ranges:
            log.drop(start, stop)
        self._after_drop(before_bytes)

    def shorten(self) -> None:
        """Keep only what is unsent; if that still fills the window, also drop what can be read from the store."""
        self.trim(only_unsent=True)
        if not self._is_in_store or not self.is_full:
            return
        # Connected readers still need what is only in the log.
        needed = [first for reading in self.connected() if (first := self._first_unstored(reading)) is not None]
        self.leave_to_store(min([self._first_to_keep(), *needed]))

    def pinned_by_unstored(self) -> dict[R, list[tuple[int, int]]]:
        """The connected readings that keep the window from being shortened, and the messages they have not been sent
        and that are only in the log."""
        stop = self._first_to_keep()
        firsts = {reading: self._first_unstored(reading) for reading in self.connected()}
        return {
            reading: self._unstored.common(first, stop)
            for reading, first in firsts.items()
            if first is not None and first < stop
        }

    def leave_to_store(self, stop: Offset | None = None) -> None:
        """Drop what is below `stop`, or what is too much; it is read from the store when it is needed."""
        log = self._log
        stop = self._first_to_keep() if stop is None else stop
        before_bytes = log.size_bytes
        for reading in self._readings.values():
            reading.hold_unsettled(log.start_offset, stop)
        log.drop(log.start_offset, stop)
        self._after_drop(before_bytes)

    def _after_drop(self, before_bytes: int) -> None:
        log = self._log
        self._budget.adjust(log.size_bytes - before_bytes)
        if self._unstored:
            self._unstored.forget_below(log.start_offset)

    def _first_to_keep(self) -> Offset:
        """From this offset on, the log fills KEPT_SHARE of the window."""
        max_bytes, max_messages = self._bounds()
        log = self._log
        share = KEPT_SHARE * min(max_bytes / log.size_bytes, max_messages / log.message_count)
        return Offset(log.end_offset - int(log.message_count * share))

    def connected(self) -> list[R]:
        return [reading for reading in self._readings.values() if reading.is_connected]

    def check_invariants(self) -> None:
        self._unstored.check_invariants()
        if self._is_in_store:
            assert not any(start < self._log.start_offset for start, _ in self._unstored)
