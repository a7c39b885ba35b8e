"""Outboxes that will be sent from at the end of the stretch that fills them.

Law: while somebody attends, an outbox that is filled waits here instead of waking its writer, and whoever attends has
it handed to the kernel before the next checkpoint. To wake a task costs more than the system call that it would make.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from stompbroker.outbox import Outbox

__all__ = ["Departures"]


@final
class Departures:
    """
    Invariants:
        nobody waits unless it is attended
    """

    __slots__ = ("_waiting", "is_attended")

    def __init__(self) -> None:
        self._waiting: dict[Outbox, None] = {}
        self.is_attended = False

    def put(self, outbox: Outbox) -> None:
        assert self.is_attended
        self._waiting[outbox] = None

    def send(self) -> None:
        """Send what waits, as far as it goes at once; what does not is left to its writer."""
        waiting, self._waiting = self._waiting, {}
        try:
            for outbox in waiting:
                outbox.send_at_once()
        except BaseException:
            # A mistake with one connection must not leave the others waiting for a writer that nobody wakes.
            self._waiting |= waiting
            raise

    def leave(self) -> None:
        """Nobody attends any more."""
        self.is_attended = False
        waiting, self._waiting = self._waiting, {}
        for outbox in waiting:
            outbox.wake_writer()
