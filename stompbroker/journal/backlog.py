"""Units on their way into the store.

Law: units are handed out in the order they were taken, and let go of once, completed or refused. Until then they are
charged to the memory budget and counted by their lanes.
"""

from __future__ import annotations

from collections import deque
from operator import attrgetter
from typing import TYPE_CHECKING, Final, final

from stompbroker.changes import Appended, Created, Removed

if TYPE_CHECKING:
    from stompbroker.changes import Unit
    from stompbroker.journal.health import Health
    from stompbroker.memory_budget import MemoryBudget

#: Charged for a unit beside its messages: receipts, answers, the objects around them.
UNIT_OVERHEAD_BYTES: Final = 2048
#: What may wait to be written before publishers to stored topics are held back, and when they go on.
MAX_BACKLOG_BYTES: Final = 16 * 1024 * 1024
EASED_BACKLOG_BYTES: Final = MAX_BACKLOG_BYTES // 2
#: From here on durable subscriptions can be neither made nor deleted; answers are never held back.
OVERFULL_BACKLOG_BYTES: Final = 2 * MAX_BACKLOG_BYTES
#: The most in one batch. More would make the first unit wait without making the last any quicker.
MAX_BATCH_BYTES: Final = 4 * 1024 * 1024
MAX_BATCH_UNITS: Final = 1024
#: Effects that take as long to write down as several others: a subscription comes or goes.
_SLOW: Final[frozenset[type]] = frozenset((Created, Removed))

_size_bytes_of: Final = attrgetter("size_bytes")


@final
class Backlog:
    """
    Invariants:
        its bytes, those being written included, are charged to the memory budget
        every unit taken and not let go of is waiting or being written, once
    """

    def __init__(self, budget: MemoryBudget, health: Health) -> None:
        self._budget = budget
        self._health = health
        self._waiting: deque[Unit] = deque()
        #: How many are being written.
        self._writing = 0
        #: Of all units that wait or are being written.
        self.size_bytes = 0
        #: Counted since the start.
        self.taken = 0
        self.let_go_of = 0
        #: Units that come with the batch being written without having waited: nobody waits for them either.
        self._joined: set[Unit] = set()

    def __len__(self) -> int:
        """How many units wait for the next batch."""
        return len(self._waiting)

    @property
    def pending(self) -> int:
        """How many units wait or are being written."""
        return self.taken - self.let_go_of

    @property
    def is_overfull(self) -> bool:
        return self.size_bytes >= OVERFULL_BACKLOG_BYTES

    def take(self, unit: Unit) -> None:
        self._charge_for(unit)
        self._waiting.append(unit)
        self.taken += 1
        if unit.lane is not None:
            unit.lane.enter(unit)
        if self.size_bytes >= MAX_BACKLOG_BYTES:
            self._health.note_backlog(is_long=True)

    def _charge_for(self, unit: Unit) -> None:
        unit.size_bytes = UNIT_OVERHEAD_BYTES + sum(map(_size_bytes_of, unit.effects))
        self.size_bytes += unit.size_bytes
        self._budget.adjust(unit.size_bytes)

    def join(self, unit: Unit) -> None:
        """It belongs to the batch that is being formed."""
        self._charge_for(unit)
        self._joined.add(unit)

    @property
    def is_ready(self) -> bool:
        """Whether `hand_out` has something."""
        return bool(self._waiting) and not self._waits_for_room(self._waiting[0])

    def _waits_for_room(self, unit: Unit) -> bool:
        return self._health.is_out_of_room and any(isinstance(effect, Appended) for effect in unit.effects)

    def hand_out(self) -> list[Unit]:
        """The units of the next batch, perhaps none."""
        units: list[Unit] = []
        size_bytes = work = 0
        while self._waiting and size_bytes < MAX_BATCH_BYTES and work < MAX_BATCH_UNITS:
            unit = self._waiting[0]
            if self._waits_for_room(unit) or (units and _must_follow(units, unit)):
                break
            self._waiting.popleft()
            size_bytes += unit.size_bytes
            work += 1 if _SLOW.isdisjoint(map(type, unit.effects)) else 8
            units.append(unit)
        self._writing = len(units)
        return units

    def let_go(self, unit: Unit) -> None:
        if unit in self._joined:
            self._joined.remove(unit)
        else:
            self.let_go_of += 1
            self._writing -= 1
        self.size_bytes -= unit.size_bytes
        self._budget.adjust(-unit.size_bytes)
        if unit.lane is not None:
            unit.lane.leave(unit)

    def note_finished(self) -> None:
        """All of a batch were let go of."""
        if self.size_bytes < EASED_BACKLOG_BYTES:
            self._health.note_backlog(is_long=False)

    def check_invariants(self) -> None:
        assert self.pending == len(self._waiting) + self._writing
        if not self._writing and not self._joined:
            assert self.size_bytes == sum(unit.size_bytes for unit in self._waiting)


def _must_follow(units: list[Unit], unit: Unit) -> bool:
    """Whether what it does is known only when these units are completed: it removes a subscription that they publish to
    or for which something is pending, or it acknowledges something pending."""
    if unit.deferred:
        return True
    for removed in unit.effects:
        if isinstance(removed, Removed):
            subscription = removed.subscription
            return subscription.pending > 0 or any(
                isinstance(effect, Appended) and subscription.pattern.matches(effect.topic.destination)
                for before in units
                for effect in before.effects
            )
    return False
