"""When each session is due to be called next.

Law: one heap of times; a session has one place in it at most, and none once it has left. It only keeps the order; the
pacemaker calls `on_timer`.
"""

from __future__ import annotations

import heapq
from itertools import count
from typing import Final, Protocol, final

from stompbroker.signals import Signal

__all__ = ["SessionTimers", "Timed"]

#: Cancelled entries are cleared out when the heap has this many more than twice the live ones.
SLACK: Final = 64


class Timed(Protocol):
    """What the timers need of a session."""

    def on_timer(self, now_ns: int) -> int | None:
        """Do what is due; returns when to be called again."""


@final
class _Entry:
    __slots__ = ("at_ns", "sequence", "session")

    def __init__(self, at_ns: int, sequence: int, session: Timed) -> None:
        self.at_ns = at_ns
        self.sequence = sequence
        #: None when the session has left or wants to be called at another time.
        self.session: Timed | None = session

    def __lt__(self, other: _Entry) -> bool:
        return (self.at_ns, self.sequence) < (other.at_ns, other.sequence)


@final
class SessionTimers:
    """
    Invariants:
        _places[session] is the one entry in the heap that is not cancelled
        len(_heap) <= 2 * len(_places) + SLACK + 1
    """

    __slots__ = ("_heap", "_places", "_sequence", "changed")

    def __init__(self) -> None:
        self._heap: list[_Entry] = []
        self._places: dict[Timed, _Entry] = {}
        self._sequence = count()
        #: Woken when the earliest time has become earlier.
        self.changed = Signal()

    def __len__(self) -> int:
        """Entries in the heap, cancelled ones included."""
        return len(self._heap)

    @property
    def next_at_ns(self) -> int | None:
        return self._heap[0].at_ns if self._heap else None

    def schedule(self, session: Timed, at_ns: int) -> None:
        """Call this session's `on_timer` at that time, and not at the time asked for before."""
        self.forget(session)
        entry = _Entry(at_ns, next(self._sequence), session)
        self._places[session] = entry
        heapq.heappush(self._heap, entry)
        if len(self._heap) > 2 * len(self._places) + SLACK:
            self._heap = [each for each in self._heap if each.session is not None]
            heapq.heapify(self._heap)
        if self._heap[0] is entry:
            self.changed.wake()

    def forget(self, session: Timed) -> None:
        place = self._places.pop(session, None)
        if place is not None:
            place.session = None

    def take_due(self, now_ns: int, limit: int) -> list[Timed]:
        """The sessions whose time has come, at most `limit`."""
        due: list[Timed] = []
        while self._heap and self._heap[0].at_ns <= now_ns and len(due) < limit:
            session = heapq.heappop(self._heap).session
            if session is not None:
                del self._places[session]
                due.append(session)
        return due
