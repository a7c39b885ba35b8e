"""The one clock: wall time at the start plus what trio's clock has counted since.

So a jump of the wall clock moves nothing that is scheduled, and a test's mock clock moves everything. Read once per
chunk, not per message.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, final

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

#: Nanoseconds in a second.
NANOSECONDS: Final = 1_000_000_000


def iso_time(at_ns: int) -> str:
    """ISO 8601, in UTC, to the millisecond: how we write times everywhere."""
    return datetime.fromtimestamp(at_ns / NANOSECONDS, UTC).isoformat(timespec="milliseconds")


def iso_time_if_any(at_ns: int | None) -> str | None:
    return iso_time(at_ns) if at_ns else None


@final
@dataclass(frozen=True, slots=True, eq=False)
class Clock:
    """Must be made inside a trio run."""

    #: `time_ns` is looked up at every start, so that tests can set the wall clock.
    _started_at_ns: int = field(default_factory=lambda: time.time_ns())
    #: Of the run's clock itself: `trio.current_time` looks for it each time, and takes twice as long.
    _seconds: Callable[[], float] = field(default_factory=lambda: trio.lowlevel.current_clock().current_time)
    _started_at_s: float = field(default_factory=trio.current_time)

    def now_ns(self) -> int:
        """Nanoseconds since the epoch."""
        return self._started_at_ns + int((self._seconds() - self._started_at_s) * NANOSECONDS)
