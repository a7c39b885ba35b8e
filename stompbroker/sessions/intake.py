"""What is kept of what one client sends before it can be applied, and whether more is read from it.

Law: counts and compares. The session parks frames and gives the client up; the worker stops reading.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from stompbroker.clock import NANOSECONDS
from stompbroker.errors import PeerViolation
from stompbroker.stomp import weight_bytes

if TYPE_CHECKING:
    from stompbroker.changes import Lane
    from stompbroker.clock import Clock
    from stompbroker.delivery import Gate
    from stompbroker.memory_budget import MemoryBudget
    from stompbroker.sessions.consumers import Consumers
    from stompbroker.sessions.outbox import Outbox
    from stompbroker.stomp import Frame

#: Bytes a connection may park while the memory budget is tight: parked frames of many connections can cause that.
MAX_TIGHT_BYTES: Final = 32 * 1024
#: Bytes of one client in the journal before no more is read from it. A few chunks, so that the next batch fills while
#: one is written.
MAX_LANE_BYTES: Final = 2 * 1024 * 1024


@final
@dataclass(slots=True, eq=False)
class Parking:
    """The frames of a connection that is held back, in order. A mistake of the client is parked like a frame, because
    its ERROR must not overtake what was sent before it.

    Invariants:
        size_bytes == what the parked frames weigh, and is charged to the budget
    """

    _budget: MemoryBudget
    _max_bytes: int
    _items: deque[Frame | PeerViolation] = field(default_factory=deque)
    size_bytes: int = 0

    def __len__(self) -> int:
        return len(self._items)

    @property
    def is_full(self) -> bool:
        bound = min(self._max_bytes, MAX_TIGHT_BYTES) if self._budget.is_tight else self._max_bytes
        return self.size_bytes >= bound

    def put(self, item: Frame | PeerViolation) -> None:
        self._items.append(item)
        self._charge(0 if isinstance(item, PeerViolation) else weight_bytes(item))

    def put_back(self, items: list[Frame]) -> None:
        """Frames that were taken and could not be applied yet."""
        self._items.extendleft(reversed(items))
        self._charge(sum(map(weight_bytes, items)))

    def take(self, limit: int) -> list[Frame]:
        """The next frames, at most `limit`. Raises a parked PeerViolation if it is first."""
        frames: list[Frame] = []
        while self._items and len(frames) < limit:
            item = self._items[0]
            if isinstance(item, PeerViolation):
                if frames:
                    break
                try:
                    raise item
                finally:
                    del item  # its traceback keeps this frame, which would be a reference cycle
            frames.append(item)
            self._items.popleft()
        self._charge(-sum(map(weight_bytes, frames)))
        return frames

    def clear(self) -> None:
        self._items.clear()
        self._charge(-self.size_bytes)

    def _charge(self, difference_bytes: int) -> None:
        self.size_bytes += difference_bytes
        self._budget.adjust(difference_bytes)


@final
@dataclass(slots=True, eq=False)
class Intake:
    """
    Invariants:
        _stopped_since_ns is None exactly if there was room at the last `note`
    """

    _parking: Parking
    _lane: Lane
    _outbox: Outbox
    _timeout_ns: int
    #: Since when nothing is read, and how much the client had been sent then.
    _stopped_since_ns: int | None = None
    _sent_when_stopped: int = 0

    @property
    def has_room(self) -> bool:
        """False while the parking or the lane is full, or the client does not read its receipts."""
        return (
            not self._parking.is_full and self._lane.size_bytes < MAX_LANE_BYTES and not self._outbox.is_owing_too_much
        )

    @property
    def check_at_ns(self) -> int | None:
        """When to check again; None while there is room."""
        return None if self._stopped_since_ns is None else self._stopped_since_ns + self._timeout_ns

    def note(self, clock: Clock) -> bool:
        """Whether room has just run out. It is called for every chunk, so it reads the clock only then."""
        if self.has_room:
            self._stopped_since_ns = None
            return False
        if self._stopped_since_ns is not None:
            return False
        self._stop(clock.now_ns())
        return True

    def _stop(self, now_ns: int) -> None:
        self._stopped_since_ns = now_ns
        self._sent_when_stopped = self._outbox.sent_bytes

    def check(self, now_ns: int, held_by: Gate | None, consumers: Consumers) -> None:
        """Raise PeerViolation if reading has stopped for too long, and the client waits for itself or does not read its
        receipts."""
        if self.check_at_ns is None or now_ns < self.check_at_ns:
            return
        if self._outbox.is_owing_too_much and self._outbox.sent_bytes == self._sent_when_stopped:
            raise PeerViolation(
                "receipts are not read",
                f"{self._outbox.size_bytes} bytes wait to be read by this client, and it took none of them for "
                f"{self._timeout_ns / NANOSECONDS:g} s; read what the broker sends",
            )
        in_flight = consumers.in_flight
        if self._parking.is_full and in_flight and held_by is not None and held_by.waits_for_consumers:
            raise PeerViolation(
                "held back too long",
                f"{held_by.why}, {self._parking.size_bytes} bytes of what this connection sent wait for "
                f"it, and {in_flight} deliveries to it are not acknowledged; acknowledge them, or "
                "publish on another connection",
            )
        self._stop(now_ns)
