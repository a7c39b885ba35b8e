"""What has to be looked at when its time has come.

Law: one heap, ordered by due time. It holds promises, not facts: whether an entry still means something is asked when
its time comes, or when too many have piled up.
"""

from __future__ import annotations

import heapq
from itertools import count
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar, final

if TYPE_CHECKING:
    from collections.abc import Callable

    from stompbroker.ids import Offset
    from stompbroker.signals import Signal
    from stompbroker.topics.consumer import Consumer
    from stompbroker.topics.reading import Reading

__all__ = ["Timetable", "Unanswered", "Waiting"]

#: Entries beyond twice those that were needed at the last clearing, before the pointless ones are cleared out.
SLACK: Final = 1024

Entry = TypeVar("Entry")


class Waiting(NamedTuple):
    """A message that was set aside."""

    reading: Reading
    offset: Offset


class Unanswered(NamedTuple):
    """Deliveries with a deadline, numbered first..last."""

    consumer: Consumer
    first: int
    last: int


@final
class Timetable(Generic[Entry]):
    """
    Invariants:
        at most twice what is pending, plus SLACK, is in it
    """

    __slots__ = ("_clear_at", "_heap", "_is_pending", "_sequence", "changed")

    def __init__(self, is_pending: Callable[[Entry], bool], changed: Signal) -> None:
        self._is_pending = is_pending
        self._heap: list[tuple[int, int, Entry]] = []
        self._sequence = count()
        self._clear_at = SLACK
        #: Woken when the earliest due time has become earlier.
        self.changed = changed

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def next_due_ns(self) -> int | None:
        return self._heap[0][0] if self._heap else None

    def schedule(self, due_ns: int, entry: Entry) -> None:
        heapq.heappush(self._heap, (due_ns, next(self._sequence), entry))
        if len(self._heap) > self._clear_at:
            self._heap = [each for each in self._heap if self._is_pending(each[2])]
            heapq.heapify(self._heap)
            self._clear_at = 2 * len(self._heap) + SLACK
        if self._heap and self._heap[0][0] == due_ns:
            self.changed.wake()

    def take_due(self, now_ns: int, limit: int) -> list[Entry]:
        """What is due and still means something, at most `limit` of it."""
        due: list[Entry] = []
        while self._heap and self._heap[0][0] <= now_ns and len(due) < limit:
            entry = heapq.heappop(self._heap)[2]
            if self._is_pending(entry):
                due.append(entry)
        return due
