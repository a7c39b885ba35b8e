"""Frames of a connection that is held back, in the order they came.

Law: a bounded queue, charged to the memory budget. A mistake of the client is parked like a frame, because its ERROR
must not overtake what was sent before it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, final

from stompbroker.errors import PeerViolation
from stompbroker.stomp import weight_bytes

if TYPE_CHECKING:
    from stompbroker.memory_budget import MemoryBudget
    from stompbroker.stomp import Frame

__all__ = ["Parking"]

#: What a connection may park while the memory budget is tight: parked frames of many connections can cause that.
MAX_TIGHT_BYTES: Final = 32 * 1024


@final
class Parking:
    """
    Invariants:
        size_bytes == what the parked frames weigh, and is charged to the budget
    """

    __slots__ = ("_budget", "_items", "_max_bytes", "size_bytes")

    def __init__(self, budget: MemoryBudget, max_bytes: int) -> None:
        self._budget = budget
        self._max_bytes = max_bytes
        self._items: deque[Frame | PeerViolation] = deque()
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._items)

    @property
    def is_full(self) -> bool:
        bound = min(self._max_bytes, MAX_TIGHT_BYTES) if self._budget.is_tight else self._max_bytes
        return self.size_bytes >= bound

    def put(self, item: Frame | PeerViolation) -> None:
        self._items.append(item)
        self._charge(_weight_bytes(item))

    def put_back(self, items: list[Frame]) -> None:
        """These were taken and could not be applied yet."""
        self._items.extendleft(reversed(items))
        self._charge(sum(map(_weight_bytes, items)))

    def take(self, limit: int) -> list[Frame]:
        """The next frames, at most `limit`. Raises a parked PeerViolation when its turn has come."""
        frames: list[Frame] = []
        while self._items and len(frames) < limit:
            item = self._items[0]
            if isinstance(item, PeerViolation):
                if frames:
                    break
                try:
                    raise item
                finally:
                    del item  # its traceback keeps this frame, and the two would keep each other
            frames.append(item)
            self._items.popleft()
        self._charge(-sum(map(_weight_bytes, frames)))
        return frames

    def clear(self) -> None:
        self._items.clear()
        self._charge(-self.size_bytes)

    def _charge(self, difference_bytes: int) -> None:
        self.size_bytes += difference_bytes
        self._budget.adjust(difference_bytes)


def _weight_bytes(item: Frame | PeerViolation) -> int:
    return 0 if isinstance(item, PeerViolation) else weight_bytes(item)
