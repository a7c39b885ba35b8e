"""The readings of one subscription that have something to send, in turn.

Law: a reading stands in it once at most, and each gets a slice in turn, whichever consumer asks.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stompbroker.commitlog import Cursor

__all__ = ["ReadingQueue"]


class Listed(Protocol):
    listed_in: object

    @property
    def has_more(self) -> bool: ...

    @property
    def cursor(self) -> Cursor: ...


R = TypeVar("R", bound=Listed)


@final
class ReadingQueue(Generic[R]):
    """
    Invariants:
        reading.listed_in is _token exactly if the reading is in the queue
    """

    __slots__ = ("_readings", "_token")

    def __init__(self) -> None:
        self._readings: deque[R] = deque()
        #: Stands for the queue in its readings, until it is cleared: then none of them has to be touched.
        self._token = object()

    def __bool__(self) -> bool:
        return bool(self._readings)

    def put(self, reading: R) -> None:
        if reading.listed_in is not self._token:
            reading.listed_in = self._token
            self._readings.append(reading)

    def remove(self, reading: R) -> None:
        """Nothing to do if it is not in it."""
        if reading.listed_in is self._token:
            reading.listed_in = None
            if self._readings[-1] is reading:  # as it is when it was just served
                self._readings.pop()
            else:
                self._readings.remove(reading)

    def clear(self) -> None:
        if self._readings:
            self._readings.clear()
            self._token = object()

    def next(self, *, only_again: bool) -> R | None:
        """The one whose turn it is; if `only_again`, of those that have something to send once more."""
        for _ in range(len(self._readings)):
            reading = self._readings.popleft()
            if not reading.has_more:
                reading.listed_in = None
                continue
            self._readings.append(reading)
            if not only_again or reading.cursor.free_count:
                return reading
        return None

    def check_invariants(self, readings: Iterable[R]) -> None:
        listed = [reading for reading in readings if reading.listed_in is self._token]
        assert len(listed) == len(self._readings)
        assert set(map(id, listed)) == set(map(id, self._readings))
