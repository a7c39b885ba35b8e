"""Which messages of a group or queue are to be taken one after the other: those of one key, in a line each.

Law: knows offsets and keys, and decides who is next. The first of a line *has* its key: it is sent and unsettled, or it
is `ready`. All others of the line are held up in the cursor, which the reading keeps in step.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final, final

from stompbroker.commitlog import OffsetRanges

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from stompbroker.commitlog import Cursor
    from stompbroker.message import Message

#: Messages of one reading that are held up; then it sends nothing new until some of them are sent. Each may be a range
#: in the row of the cursor and a hole between settled ones: with both, 128 KiB in a write, up to 20 of them a second.
MAX_HELD_UP: Final = 4096


@final
@dataclass(slots=True, eq=False)
class KeyLines:
    """
    Invariants:
        a line has unsettled offsets, one at least; all but the first are held up, or were sent before there were lines
        ready: sorted; exactly the first ones that are held up, and those of `ended`
        unread: unsettled offsets that were sent or held up, of which nobody knows the key any more
        everything that is held up is in a line, ready or unread
    """

    #: By key: offsets in the order in which they go.
    _lines: dict[str, dict[int, None]] = field(default_factory=dict)
    _keys: dict[int, str] = field(default_factory=dict)
    ready: list[int] = field(default_factory=list)
    unread: OffsetRanges = field(default_factory=OffsetRanges)

    def __bool__(self) -> bool:
        return bool(self._lines or self.ready or self.unread)

    @classmethod
    def begun(cls, cursor: Cursor) -> KeyLines:
        """Nobody knows the keys of what is unsettled."""
        lines = cls()
        for start, stop in cursor.unsettled(cursor.ack_floor, cursor.next_offset):
            lines.unread.add(start, stop)
        return lines

    @classmethod
    def ended(cls, cursor: Cursor) -> KeyLines:
        """There is no order by key any more: everything that is held up may go."""
        return cls(ready=[offset for start, stop in cursor.held_up_ranges for offset in range(start, stop)])

    @property
    def keys_held_up(self) -> int:
        """How many keys have a message that waits behind another."""
        return sum(len(line) > 1 for line in self._lines.values())

    def lowest_unread(self, limit: int) -> list[int]:
        return list(islice((offset for start, stop in self.unread for offset in range(start, stop)), limit))

    def is_taken(self, key: str | None) -> bool:
        return key in self._lines

    def count_untaken(self, messages: Sequence[Message]) -> int:
        """How many of these may go next: those without a key, and one of each key that is not taken."""
        keys = [message.origin.group_key for message in messages]
        return keys.count(None) + len({*keys} - self._lines.keys() - {None})

    def enter(self, offset: int, key: str | None) -> bool:
        """It goes to the end of its line, unless it is there already. Whether it has its key, or none, and may go."""
        if self.unread:
            self.unread.discard(offset, offset + 1)
        if key is None:
            return True
        self._keys[offset] = key
        line = self._lines.setdefault(key, {})
        line[offset] = None
        return next(iter(line)) == offset

    def leave_ready(self, start: int, stop: int) -> None:
        """These are not held up any more."""
        del self.ready[bisect_left(self.ready, start) : bisect_left(self.ready, stop)]

    def leave(self, start: int, stop: int, cursor: Cursor) -> None:
        """These are settled: the next of each of their keys is ready."""
        if self.unread:
            self.unread.discard(start, stop)
        self.leave_ready(start, stop)
        if stop - start <= len(self._keys):
            offsets: Iterable[int] = [offset for offset in range(start, stop) if offset in self._keys]
        else:
            offsets = sorted(offset for offset in self._keys if start <= offset < stop)
        for offset in offsets:
            key = self._keys.pop(offset)
            line = self._lines[key]
            had_key = next(iter(line)) == offset
            del line[offset]
            if not line:
                del self._lines[key]
            elif had_key and cursor.is_held_up(first := next(iter(line))):
                insort(self.ready, first)

    def check_invariants(self, cursor: Cursor) -> None:
        held_up = {offset for start, stop in cursor.held_up_ranges for offset in range(start, stop)}
        in_line: set[int] = set()
        for key, line in self._lines.items():
            assert line
            assert all(self._keys[offset] == key and not cursor.is_settled(offset, offset + 1) for offset in line)
            assert not any(cursor.is_in_flight(offset) for offset in list(line)[1:])
            first = next(iter(line))
            assert first < cursor.next_offset
            assert (first in held_up) == (first in self.ready)
            in_line.update(line)
        assert in_line == set(self._keys)
        assert self.ready == sorted(set(self.ready))
        assert held_up.issuperset(self.ready)
        unread = {offset for start, stop in self.unread for offset in range(start, stop)}
        assert not any(cursor.is_settled(offset, offset + 1) or offset in in_line for offset in unread)
        assert held_up <= in_line | set(self.ready) | unread
