"""What is compared from day to day: how it is called and how its values are written.

Law: pure; the one table for tiles, for what stands out, and for the days before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stompbroker_report.content import Direction, Measure
from stompbroker_report.readable_numbers import count, duration, share

if TYPE_CHECKING:
    from collections.abc import Callable

    from stompbroker_report.content import Change, ReportContent

__all__ = ["MEASURES", "closing_lag", "is_worse"]

MEASURES: Final[dict[Measure, tuple[str, Callable[[float | None], str]]]] = {
    Measure.DELIVERIES: ("deliveries", count),
    Measure.REDELIVERY_RATE: ("redelivered", share),
    Measure.DEAD: ("dead letters", count),
    Measure.P99_TO_ACK_S: ("p99 time to ack", duration),
    Measure.CLOSING_LAG: ("unsettled at the end of the day", count),
}


def is_worse(change: Change) -> bool:
    """More of anything but deliveries is worse; all other changes are only different."""
    return change.measure is not Measure.DELIVERIES and change.direction is Direction.HIGHER


def closing_lag(content: ReportContent) -> int | None:
    """What was unsettled at the end of the day; None where nobody looked."""
    return content.history[-1].closing_lag_messages if content.history else None
