"""Points in time as a person reads them.

Law: pure; the caller supplies `now`. Instants come as the broker writes them, ISO 8601 in UTC, and None where there is
none.
"""

from __future__ import annotations

from datetime import datetime

__all__ = ["duration", "moment", "relative"]

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def duration(seconds: float) -> str:
    """In the largest unit of which there is at least one."""
    for length, unit in _UNITS:
        if seconds >= length:
            return f"{seconds // length:,.0f} {unit}"
    return "0 s"


def relative(instant: str | None, now: datetime) -> str:
    """`3 min ago`, `in 4 s`, or `now`."""
    if not instant:
        return ""
    seconds = (datetime.fromisoformat(instant) - now).total_seconds()
    if seconds <= -1:
        return f"{duration(-seconds)} ago"
    return f"in {duration(seconds)}" if seconds >= 1 else "now"


def moment(instant: str | None, now: datetime) -> str:
    """To the second, and how far from now."""
    if not instant:
        return ""
    return f"{datetime.fromisoformat(instant).strftime('%Y-%m-%d %H:%M:%S')} ({relative(instant, now)})"
