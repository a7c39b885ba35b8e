"""Who is to be served next: the readings of a subscription, and the consumers of all subscriptions.

Law: first in, first out, and nobody stands in a queue twice. Whatever makes a consumer ready puts it into the
`ReadyQueue`, and `Dispatch` takes it from there: that is all the two know of each other.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, final

from stompbroker.signals import Signal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stompbroker.commitlog import Cursor


class Listed(Protocol):
    listed_in: object

    @property
    def has_more(self) -> bool: ...

    @property
    def cursor(self) -> Cursor: ...


R = TypeVar("R", bound=Listed)


@final
class ReadingQueue(Generic[R]):
    """The readings of one subscription that have something to send; each gets a slice in turn.

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


class Receiver(Protocol):
    is_queued: bool


C = TypeVar("C", bound=Receiver)
T = TypeVar("T")


@final
class ReadyQueue(Generic[C, T]):
    """The consumers that could be sent something now, and the blocked topics that were delivered from. The distributor
    is woken unless a turn is about to be taken anyway (`is_attended`).

    Invariants:
        consumer.is_queued == (consumer is in the queue)
    """

    __slots__ = ("_consumers", "_filled", "_moved", "is_attended", "wake_ups")

    def __init__(self) -> None:
        self._consumers: deque[C] = deque()
        self._filled = Signal()
        self._moved: dict[T, None] = {}
        self.is_attended = False
        #: How often `wait` was satisfied, for the guard that counts wake-ups per message.
        self.wake_ups = 0

    def __len__(self) -> int:
        return len(self._consumers)

    def put(self, consumer: C) -> None:
        if not consumer.is_queued:
            consumer.is_queued = True
            self._consumers.append(consumer)
            if not self.is_attended:
                self._filled.wake()

    def take(self) -> C:
        consumer = self._consumers.popleft()
        consumer.is_queued = False
        return consumer

    def leave(self) -> None:
        """Nobody attends any more; who is still ready is left to the distributor."""
        self.is_attended = False
        if self._consumers:
            self._filled.wake()

    def note_moved(self, topic: T) -> None:
        """Something was delivered from a blocked topic."""
        self._moved[topic] = None

    def take_moved(self) -> Iterable[T]:
        """The blocked topics that were delivered from: perhaps their publishers can go on. Called once per turn, not
        per delivery."""
        moved, self._moved = self._moved, {}
        return moved

    async def wait(self) -> None:
        """Until a consumer is ready."""
        while not self._consumers:
            await self._filled.wait()
        self.wake_ups += 1
