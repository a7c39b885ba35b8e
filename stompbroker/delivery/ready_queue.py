"""The consumers that could be sent something now, and the blocked topics that were delivered from.

Law: first in, first out; a consumer stands in it once at most. Whoever makes a consumer ready puts it here, `Dispatch`
takes from here, and that is all the two know of each other. The distributor is woken unless somebody attends, who will
take a turn before the next checkpoint.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, Protocol, TypeVar, final

from stompbroker.signals import Signal

__all__ = ["ReadyQueue"]


class Receiver(Protocol):
    is_queued: bool


class Blockable(Protocol):
    def try_to_unblock(self, now_ns: int) -> None: ...


R = TypeVar("R", bound=Receiver)


@final
class ReadyQueue(Generic[R]):
    """
    Invariants:
        consumer.is_queued == (consumer is in the queue)
    """

    __slots__ = ("_consumers", "_filled", "_moved", "is_attended", "wake_ups")

    def __init__(self) -> None:
        self._consumers: deque[R] = deque()
        self._filled = Signal()
        self._moved: dict[Blockable, None] = {}
        self.is_attended = False
        #: How often `wait` was satisfied, for the guard that counts wake-ups per message.
        self.wake_ups = 0

    def __len__(self) -> int:
        return len(self._consumers)

    def put(self, consumer: R) -> None:
        if not consumer.is_queued:
            consumer.is_queued = True
            self._consumers.append(consumer)
            if not self.is_attended:
                self._filled.wake()

    def take(self) -> R:
        consumer = self._consumers.popleft()
        consumer.is_queued = False
        return consumer

    def leave(self) -> None:
        """Nobody attends any more; who is still ready is left to the distributor."""
        self.is_attended = False
        if self._consumers:
            self._filled.wake()

    def note_moved(self, topic: Blockable) -> None:
        """Something was delivered from a blocked topic."""
        self._moved[topic] = None

    def try_to_unblock_moved(self, now_ns: int) -> None:
        """See which blocked topics can go on. Once per turn, not per delivery: it looks at all readings of a topic."""
        moved, self._moved = self._moved, {}
        for topic in moved:
            topic.try_to_unblock(now_ns)

    async def wait(self) -> None:
        """Until a consumer is ready."""
        while not self._consumers:
            await self._filled.wait()
        self.wake_ups += 1
