"""One byte budget for the whole broker.

Law: all bytes kept for clients are charged here, in batches: windows of topics, messages held for redelivery, outboxes,
parked and partial frames, transactions. Bounds per thing alone would add up to more than any machine has. The budget
only counts; its callers decide what to do when it runs short.
"""

from __future__ import annotations

from typing import Final, final

from stompbroker.signals import Signal

#: From this share of the limit on, outboxes are kept short and publishers are held back.
TIGHT_SHARE: Final = 0.8


@final
class MemoryBudget:
    """
    Invariants:
        used_bytes == sum of all charges minus what was given back >= 0
    """

    __slots__ = ("_tight_bytes", "eased", "limit_bytes", "peak_bytes", "used_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._tight_bytes = int(limit_bytes * TIGHT_SHARE)
        self.used_bytes = 0
        self.peak_bytes = 0
        #: Woken when the budget stops being tight.
        self.eased = Signal()

    @property
    def is_tight(self) -> bool:
        return self.used_bytes >= self._tight_bytes

    @property
    def is_used_up(self) -> bool:
        return self.used_bytes >= self.limit_bytes

    def adjust(self, difference_bytes: int) -> None:
        """Charge bytes, or give them back when negative."""
        before_bytes, used_bytes = self.used_bytes, self.used_bytes + difference_bytes
        self.used_bytes = used_bytes
        if used_bytes > self.peak_bytes:
            self.peak_bytes = used_bytes
        elif used_bytes < self._tight_bytes <= before_bytes:
            self.eased.wake()
