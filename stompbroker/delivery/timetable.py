"""Timers: entries to look at when their time comes.

Law: one heap, ordered by due time. Entries are not removed when they become pointless: that is asked when they are due,
or when too many have piled up.
"""

from __future__ import annotations

import heapq
import itertools
from typing import TYPE_CHECKING, Final, Generic, TypeVar, final

if TYPE_CHECKING:
    from collections.abc import Callable

    from stompbroker.signals import Signal

#: Pointless entries are cleared out when there are this many beyond twice what was left after the last clearing.
SLACK: Final = 1024

Entry = TypeVar("Entry")


@final
class Timetable(Generic[Entry]):
    """
    Invariants:
        at most twice what is pending, plus SLACK, is in it
    """

    __slots__ = ("_clear_at", "_heap", "_is_pending", "_sequence", "changed", "count")

    def __init__(self, is_pending: Callable[[Entry], bool], changed: Signal) -> None:
        self._is_pending = is_pending
        #: Woken when the earliest due time has become earlier.
        self.changed = changed
        #: Entries that were scheduled together are one element.
        self._heap: list[tuple[int, int, list[Entry]]] = []
        #: Entries, pointless ones included.
        self.count = 0
        self._sequence = itertools.count()
        self._clear_at = SLACK

    @property
    def next_due_ns(self) -> int | None:
        return self._heap[0][0] if self._heap else None

    def schedule(self, due_ns: int, *entries: Entry) -> None:
        """All of these at one time."""
        heapq.heappush(self._heap, (due_ns, next(self._sequence), list(entries)))
        self.count += len(entries)
        if self.count > self._clear_at:
            self._clear()
        if self._heap and self._heap[0][0] == due_ns:
            self.changed.wake()

    def _clear(self) -> None:
        pending = ((due_ns, number, list(filter(self._is_pending, entries))) for due_ns, number, entries in self._heap)
        self._heap = [each for each in pending if each[2]]
        heapq.heapify(self._heap)
        self.count = sum(len(entries) for _, _, entries in self._heap)
        self._clear_at = 2 * self.count + SLACK

    def take_due(self, now_ns: int, limit: int) -> list[Entry]:
        """What is due and still pending, at most `limit`."""
        due: list[Entry] = []
        while self._heap and self._heap[0][0] <= now_ns and len(due) < limit:
            entries = self._heap[0][2]
            taken = entries[: limit - len(due)]
            if len(taken) == len(entries):
                heapq.heappop(self._heap)
            else:
                del entries[: len(taken)]
            self.count -= len(taken)
            due.extend(filter(self._is_pending, taken))
        return due
