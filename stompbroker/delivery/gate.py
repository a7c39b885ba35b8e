"""Whether publishers may go on.

Law: a topic closes its own while its window is full; the journal closes one for all stored topics while it has too much
to write, or nowhere to write it.
"""

from __future__ import annotations

from typing import final

from stompbroker.signals import Signal


@final
class Gate:
    __slots__ = ("is_blocked", "unblocked", "waits_for_consumers", "why")

    def __init__(self) -> None:
        self.is_blocked = False
        self.unblocked = Signal()
        #: While it is closed: the reason, for whoever is held back.
        self.why = ""
        #: Whether it opens when consumers have made room; otherwise there is nothing they could do.
        self.waits_for_consumers = False

    def close(self, why: str, *, waits_for_consumers: bool) -> None:
        self.is_blocked = True
        self.why = why
        self.waits_for_consumers = waits_for_consumers

    def open(self) -> None:
        if self.is_blocked:
            self.is_blocked = False
            self.unblocked.wake()
