"""The one clock seam.

Law: wall time at start plus what trio's clock has counted since. A jump of the wall clock moves nothing that is already
scheduled, and a test with a mock clock moves everything. Read once per chunk, not per message.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Final, final

import trio

__all__ = ["NANOSECONDS", "Clock", "iso_time"]

#: Nanoseconds in a second.
NANOSECONDS: Final = 1_000_000_000


def iso_time(at_ns: int) -> str:
    """A time as we write it everywhere: ISO 8601, in UTC, to the millisecond."""
    return datetime.fromtimestamp(at_ns / NANOSECONDS, UTC).isoformat(timespec="milliseconds")


@final
class Clock:
    """Must be made inside a trio run."""

    __slots__ = ("_started_at_ns", "_started_at_s")

    def __init__(self) -> None:
        self._started_at_ns = time.time_ns()
        self._started_at_s = trio.current_time()

    def now_ns(self) -> int:
        """Nanoseconds since the epoch."""
        return self._started_at_ns + int((trio.current_time() - self._started_at_s) * NANOSECONDS)
