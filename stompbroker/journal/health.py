"""How the store is, and what follows from it for publishers.

Law: keeps what it is told and holds the gate accordingly. The gate is closed exactly while the store fails, space is
low, or too much waits to be written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from stompbroker.topics import Gate, StoreState

if TYPE_CHECKING:
    from stompbroker.clock import Clock

__all__ = ["Health"]

#: Publishers go on when there is this much more room than the mark at which they were stopped.
ROOM_MARGIN: Final = 1.1


@final
class Health:
    __slots__ = ("_clock", "_is_backlog_long", "_min_free_bytes", "gate", "reason", "since_ns", "state")

    def __init__(self, clock: Clock, min_free_bytes: int) -> None:
        self._clock = clock
        self._min_free_bytes = min_free_bytes
        self._is_backlog_long = False
        self.gate = Gate()
        self.state = StoreState.OK
        #: Why it is not ok, and since when.
        self.reason: str | None = None
        self.since_ns: int | None = None

    def note_room(self, free_bytes: int | None) -> None:
        """The store works, and there is that much room left."""
        low_mark = self._min_free_bytes * (ROOM_MARGIN if self.state is StoreState.LOW_SPACE else 1)
        if free_bytes is not None and free_bytes < low_mark:
            self._change(StoreState.LOW_SPACE, f"only {free_bytes} bytes are free where the database is")
        else:
            self._change(StoreState.OK, None)

    def note_failing(self, reason: str) -> bool:
        """The store does not take what it is given, for now. True if that is news."""
        return self._change(StoreState.FAILING, reason)

    def note_backlog(self, *, is_long: bool) -> None:
        """Whether too much waits to be written."""
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
