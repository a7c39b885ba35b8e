"""How the store is, how long it takes, and what follows from it for publishers.

Law: keeps what it is told and holds the gate accordingly. The gate is closed exactly while the store fails, space is
low, or too much waits to be written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import structlog

from stompbroker.changes import StoreState
from stompbroker.clock import NANOSECONDS
from stompbroker.counting import COUNT_BOUNDS, SECONDS_BOUNDS, Histogram
from stompbroker.delivery import Gate
from stompbroker.storage import REMEDY

if TYPE_CHECKING:
    from stompbroker.clock import Clock
    from stompbroker.storage import Batch

#: Publishers go on when there is this much more room than the mark at which they were stopped.
ROOM_MARGIN: Final = 1.1
#: Damages that are told one by one. One beyond that is counted each time it is met.
MAX_KNOWN: Final = 100

log = structlog.get_logger()


@final
class Health:
    """Damage stays until a restart: it is told once, and shown while the store does not also fail or fill up. The gate
    stays open, since what is published now can be stored."""

    def __init__(self, clock: Clock, min_free_bytes: int) -> None:
        self._clock = clock
        self._min_free_bytes = min_free_bytes
        self._is_backlog_long = False
        self.gate = Gate()
        #: Whether nothing may be stored until consumers have made room: only what is kept for deletions is left.
        self.is_out_of_room = False
        self.state = StoreState.OK
        #: Why it is not ok, and since when.
        self.reason: str | None = None
        self.since_ns: int | None = None

        #: The first damages, each told in the log; and how many were met.
        self._known_damages: dict[str, None] = {}
        self.damages = 0
        self._damaged_since_ns: int | None = None
        #: "running" or "done" if the store is checked, since its last broker did not close it.
        self.check: str | None = None

    def shown(self) -> tuple[StoreState, str | None, int | None]:
        """For people: the state, why it is not ok, and since when."""
        if self.state is not StoreState.OK or not self.damages:
            return self.state, self.reason, self.since_ns
        first = next(iter(self._known_damages))
        others = f" (and {self.damages - 1} more)" if self.damages > 1 else ""
        return StoreState.DAMAGED, f"{first}{others}. {REMEDY}", self._damaged_since_ns

    def note_damage(self, what: str) -> None:
        """Something that was stored is altered or lost. It stays unsettled; readings stop in front of it."""
        if what in self._known_damages:
            return
        self.damages += 1
        if self._damaged_since_ns is None:
            self._damaged_since_ns = self._clock.now_ns()
        if len(self._known_damages) < MAX_KNOWN:
            self._known_damages[what] = None
            log.error("the store is damaged; subscribers stop in front of what is lost", what=what, remedy=REMEDY)

    def note_room(self, free_bytes: int | None) -> None:
        """The store works, and there is that much room left."""
        self.is_out_of_room = free_bytes is not None and free_bytes < 0
        low_mark = self._min_free_bytes * (ROOM_MARGIN if self.state is StoreState.LOW_SPACE else 1)
        if free_bytes is not None and free_bytes < low_mark:
            self._change(StoreState.LOW_SPACE, f"only {max(0, free_bytes)} bytes are free where the database is")
        else:
            self._change(StoreState.OK, None)

    def note_failing(self, reason: str) -> bool:
        """The store does not take what it is given, for now. True if that is news."""
        return self._change(StoreState.FAILING, reason)

    def note_backlog(self, *, is_long: bool) -> None:
        self._is_backlog_long = is_long
        self._set_gate()

    def _change(self, state: StoreState, reason: str | None) -> bool:
        is_news = state is not self.state
        if is_news:
            self.state = state
            self.since_ns = None if state is StoreState.OK else self._clock.now_ns()
        if is_news or reason != self.reason:
            self.reason = reason
            self._set_gate()
        return is_news

    def _set_gate(self) -> None:
        match self.state:
            case StoreState.FAILING:
                self.gate.close(f"the store fails ({self.reason})", waits_for_consumers=False)
            case StoreState.LOW_SPACE:
                self.gate.close(f"the store is nearly full ({self.reason})", waits_for_consumers=True)
            case StoreState.OK if self._is_backlog_long:
                self.gate.close("the store is slower than what is published", waits_for_consumers=False)
            case StoreState.OK:
                self.gate.open()

    def check_invariants(self) -> None:
        assert self.gate.is_blocked == (self.state is not StoreState.OK or self._is_backlog_long)


@final
class WriteGauge:
    """How long the store takes, and how much it is given at once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: Since when a batch is being written.
        self.since_ns: int | None = None
        #: The size of the database, as last measured.
        self.stored_bytes: int | None = None
        #: How many messages each batch had, and how long the store took, in seconds.
        self.batch_sizes = Histogram(COUNT_BOUNDS)
        self.commit_times = Histogram(SECONDS_BOUNDS)

    def begin(self) -> int:
        """A batch is begun; or the store has answered, if only with an error. Returns the time."""
        self.since_ns = self._clock.now_ns()
        return self.since_ns

    @property
    def waited_s(self) -> float:
        """How long the store has not answered about the batch it is to write; 0 if it has none."""
        return 0.0 if self.since_ns is None else (self._clock.now_ns() - self.since_ns) / NANOSECONDS

    def end(self, batch: Batch) -> None:
        """The batch is written."""
        self.commit_times.add(self.waited_s)
        self.batch_sizes.add(sum(len(run.messages) for run in batch.messages))
        self.since_ns = None
