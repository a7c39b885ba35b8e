"""What is compared from day to day, how it is named and how its values are written.

The one table behind the tiles, the changes and the list of earlier days.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, final

from stompbroker_report.readable_numbers import count, duration, share

if TYPE_CHECKING:
    from collections.abc import Callable


EARLIER_DAYS: Final = 7


def earlier_dates(day: datetime.date) -> list[datetime.date]:
    """The seven days before it, oldest first."""
    return [day - datetime.timedelta(days=distance) for distance in range(EARLIER_DAYS, 0, -1)]


@final
class Measure(Enum):
    """What is compared with earlier days; each value is a field of `DayMeasures`."""

    DELIVERIES = "deliveries"
    REDELIVERY_RATE = "redelivery_rate"
    DEAD = "dead"
    #: Seconds.
    P99_TO_ACK_S = "p99_to_ack_s"
    #: Messages unsettled at the end of the day.
    CLOSING_LAG = "closing_lag_messages"


@final
class Scope(Enum):
    """What a measure is taken of."""

    DAY = "day"
    TOPIC = "topic"
    SUBSCRIPTION = "subscription"


@final
class Direction(Enum):
    """How a value differs from earlier days."""

    HIGHER = "higher"
    LOWER = "lower"
    #: No deliveries on any earlier day.
    NEW = "new"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DayMeasures:
    """The measures of one whole day; None if it has no deliveries, no acks or no snapshot."""

    date: datetime.date
    deliveries: int | None
    redelivery_rate: float | None
    dead: int | None
    p99_to_ack_s: float | None
    closing_lag_messages: int | None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A value that differs from earlier days by the rule in `changes.py`; the most unusual first."""

    scope: Scope
    #: Name of the topic or subscription; None for the day.
    name: str | None
    measure: Measure
    direction: Direction
    value: float
    #: Over the earlier days that have a value; None for what is new.
    median: float | None
    lowest: float | None
    highest: float | None
    #: The seven days before, oldest first; None: no value.
    previous: tuple[float | None, ...]
    #: Distance from the median in units of the usual spread; only used for sorting.
    score: float

    @property
    def is_worse(self) -> bool:
        """More of anything but deliveries is worse; every other change is only a difference."""
        return self.measure is not Measure.DELIVERIES and self.direction is Direction.HIGHER


#: Each measure's name, and the function that writes a value of it.
MEASURES: Final[dict[Measure, tuple[str, Callable[[float | None], str]]]] = {
    Measure.DELIVERIES: ("deliveries", count),
    Measure.REDELIVERY_RATE: ("redelivered", share),
    Measure.DEAD: ("dead letters", count),
    Measure.P99_TO_ACK_S: ("p99 time to ack", duration),
    Measure.CLOSING_LAG: ("unsettled at the end of the day", count),
}
