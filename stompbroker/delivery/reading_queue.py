"""The readings of one subscription that have something to send, in turn.

Law: a reading stands in it once at most, and each gets a slice in turn, whichever consumer asks.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stompbroker.commitlog import Cursor

__all__ = ["ReadingQueue"]


class Listed(Protocol):
    is_listed: bool

    @property
    def has_more(self) -> bool: ...

    @property
    def cursor(self) -> Cursor: ...


R = TypeVar("R", bound=Listed)


@final
class ReadingQueue(Generic[R]):
    """
    Invariants:
        reading.is_listed == (reading is in the queue)
    """

    __slots__ = ("_readings",)

    def __init__(self) -> None:
        self._readings: deque[R] = deque()

    def __bool__(self) -> bool:
        return bool(self._readings)

    def __iter__(self) -> Iterator[R]:
        return iter(self._readings)

    def put(self, reading: R) -> None:
        if not reading.is_listed:
            reading.is_listed = True
            self._readings.append(reading)

    def remove(self, reading: R) -> None:
        """Nothing to do if it is not in it."""
        if reading.is_listed:
            reading.is_listed = False
            if self._readings[-1] is reading:  # as it is when it was just served
                self._readings.pop()
            else:
                self._readings.remove(reading)

    def clear(self) -> None:
        for reading in self._readings:
            reading.is_listed = False
        self._readings.clear()

    def next(self, *, only_again: bool) -> R | None:
        """The one whose turn it is; if `only_again`, of those that have something to send once more."""
        for _ in range(len(self._readings)):
            reading = self._readings.popleft()
            if not reading.has_more:
                reading.is_listed = False
                continue
            self._readings.append(reading)
            if not only_again or reading.cursor.free_count:
                return reading
        return None
