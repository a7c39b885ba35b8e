"""What waits for its redelivery time.

Law: one heap for the whole broker, ordered by due time. It holds promises, not facts: whether an offset still waits
is known by its cursor, and an entry that has become pointless is dropped when its time comes, or when too many have.
"""

from __future__ import annotations

import heapq
from itertools import count
from typing import TYPE_CHECKING, Final, final

from stompbroker.signals import Signal

if TYPE_CHECKING:
    from stompbroker.ids import Offset
    from stompbroker.topics.reading import Reading

__all__ = ["Redeliveries"]

#: Entries beyond twice those that were needed at the last clearing, before the pointless ones are cleared out.
SLACK: Final = 1024


@final
class Redeliveries:
    __slots__ = ("_clear_at", "_heap", "_sequence", "changed")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Reading, Offset]] = []
        self._sequence = count()
        self._clear_at = SLACK
        #: Woken when the earliest due time has become earlier.
        self.changed = Signal()

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def next_due_ns(self) -> int | None:
        return self._heap[0][0] if self._heap else None

    def schedule(self, due_ns: int, reading: Reading, offset: Offset) -> None:
        heapq.heappush(self._heap, (due_ns, next(self._sequence), reading, offset))
        if len(self._heap) > self._clear_at:
            self._heap = [entry for entry in self._heap if entry[2].is_waiting(entry[3])]
            heapq.heapify(self._heap)
            self._clear_at = 2 * len(self._heap) + SLACK
        if self._heap[0][0] == due_ns:
            self.changed.wake()

    def take_due(self, now_ns: int, limit: int) -> list[tuple[Reading, Offset]]:
        """What is due, at most `limit` of it."""
        due: list[tuple[Reading, Offset]] = []
        while self._heap and self._heap[0][0] <= now_ns and len(due) < limit:
            _, _, reading, offset = heapq.heappop(self._heap)
            due.append((reading, offset))
        return due
