"""How long the store takes, and how much it is given at once.

Law: measures, and decides nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from stompbroker.clock import NANOSECONDS
from stompbroker.histogram import COUNT_BOUNDS, SECONDS_BOUNDS, Histogram

if TYPE_CHECKING:
    from stompbroker.clock import Clock
    from stompbroker.storage import Batch

__all__ = ["WriteGauge"]


@final
class WriteGauge:
    __slots__ = ("_clock", "batch_sizes", "commit_times", "since_ns", "stored_bytes")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: Since when a batch is being written.
        self.since_ns: int | None = None
        #: How large the database was when it was last measured.
        self.stored_bytes: int | None = None
        #: How many messages each batch had, and how long the store took, in seconds.
        self.batch_sizes = Histogram(COUNT_BOUNDS)
        self.commit_times = Histogram(SECONDS_BOUNDS)

    def begin(self) -> int:
        """A batch is begun, now; or the store has answered, if only with an error: its time counts anew."""
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
