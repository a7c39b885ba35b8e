"""Everything that a report says: the shape of `report.json`, and what the HTML is drawn from.

Law: frozen values alone; no Spark, no files, no words for people. One `ReportContent` is one date (UTC, by
`settled_at`). Every tuple is bounded, whatever the day's size: a table holds its first rows in the order that its
comment names, and `Table.other` sums up the rest.

Units are in the names: `_s` seconds, `_bytes`, `_rate` 0 to 1, `_at` an instant in UTC, `hour_utc` 0 to 23. Numbers of
deliveries are weighted: a record that stands for several counts as several. None means that it is not known, or that
there is nothing to compute it from; it never stands for 0.

It is long because it has a value for each part of a report, and nothing else.
"""

from __future__ import annotations

import datetime  # noqa: TC003 - read at run time, when a report is read back
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar, final

__all__ = [
    "AttemptsBucket",
    "Backlog",
    "BacklogPoint",
    "BacklogSeries",
    "Change",
    "DayMeasures",
    "DeadLetter",
    "DeadLetterGroup",
    "DeadLetters",
    "Direction",
    "Durations",
    "Figures",
    "Head",
    "HourFigures",
    "Measure",
    "Outcomes",
    "Reading",
    "ReadingFigures",
    "Reason",
    "ReportContent",
    "Scope",
    "SlowSubscription",
    "SubscriptionFigures",
    "Table",
    "TopicFigures",
    "TopicHours",
    "Unsettled",
]

RowT = TypeVar("RowT")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Durations:
    """How long something took, over `deliveries` of them; all None if there were none."""

    deliveries: int
    p50_s: float | None
    p95_s: float | None
    p99_s: float | None
    max_s: float | None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """Deliveries by how they ended; their sum is `Figures.deliveries`."""

    acked: int
    sent: int
    dead: int
    discarded: int
    expired: int
    evicted: int
    dropped: int
    unsubscribed: int
    skipped: int
    #: With a word that this report does not know: written by a newer broker.
    unknown: int


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptsBucket:
    """Deliveries that were sent at least `attempts_from` and at most `attempts_to` times (None: no upper bound)."""

    attempts_from: int
    attempts_to: int | None
    deliveries: int


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What is said of a day, a topic, a subscription or a reading alike."""

    deliveries: int
    #: How many records the ledger has of them; fewer than `deliveries` where it keeps a sample.
    records: int
    outcomes: Outcomes
    #: Sent at least once; and of those, more than once.
    sent_deliveries: int
    redelivered: int
    #: redelivered / sent_deliveries; None where nothing was sent.
    redelivery_rate: float | None
    #: NACK frames, and all sends together.
    nacks: int
    attempts: int
    #: Always the same buckets, from 0 attempts up.
    attempts_distribution: tuple[AttemptsBucket, ...]
    #: Bodies, each counted once per delivery, however often it was sent.
    body_bytes: int
    #: published_at to first_sent_at, of everything that was sent.
    time_to_first_delivery: Durations
    #: last_sent_at to settled_at, of what was acknowledged.
    time_to_ack: Durations


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Table(Generic[RowT]):
    """The first rows of something, and the sum of the rest."""

    rows: tuple[RowT, ...]
    #: How many rows there are in the mart, those in `rows` included.
    total_rows: int
    #: What the rows that are left out say together; None if none is. Its durations are unknown.
    other: Figures | None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFigures:
    """One topic; most deliveries first."""

    topic: str
    #: How many subscriptions had deliveries from it.
    subscriptions: int
    figures: Figures


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionFigures:
    """One subscription in all its topics; most deliveries first."""

    subscription: str
    is_durable: bool
    topics: int
    figures: Figures


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One subscription in one topic."""

    topic: str
    subscription: str


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingFigures:
    """One subscription in one topic; most deliveries first."""

    reading: Reading
    is_durable: bool
    figures: Figures


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class HourFigures:
    """One hour of the day; always 24 of them, the first is 0."""

    hour_utc: int
    deliveries: int
    outcomes: Outcomes
    redelivered: int
    nacks: int
    body_bytes: int
    time_to_first_delivery: Durations
    time_to_ack: Durations


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TopicHours:
    """One topic's deliveries in each of the 24 hours; the topics with most deliveries, most first."""

    #: None: all other topics together, last.
    topic: str | None
    deliveries: tuple[int, ...]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why deliveries failed; most deliveries first. Of each delivery its last reason is known."""

    #: None: all other reasons together, last.
    reason: str | None
    deliveries: int
    nacks: int
    #: Of the deliveries: how many ended dead.
    dead: int
    #: How many readings it happened to, and the one it happened to most; None and 0 for all others together.
    readings: int
    most_in: Reading | None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterGroup:
    """Deliveries of one reading that ended dead for one reason; most deliveries first."""

    reading: Reading
    reason: str | None
    deliveries: int
    first_at: datetime.datetime
    last_at: datetime.datetime


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """One delivery that ended dead."""

    #: None where the record stands for a stretch.
    message_id: str | None
    reading: Reading
    offset: int
    attempts: int
    reason: str | None
    published_at: datetime.datetime | None
    settled_at: datetime.datetime


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetters:
    """What ended dead that day."""

    deliveries: int
    groups: tuple[DeadLetterGroup, ...]
    #: How many groups there are, those in `groups` included; and deliveries in those that are left out.
    total_groups: int
    other_deliveries: int
    #: The latest first.
    latest: tuple[DeadLetter, ...]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SlowSubscription:
    """One of the subscriptions with the longest p99 to ack; the slowest first. Few deliveries make no ranking."""

    subscription: str
    deliveries: int
    redelivery_rate: float | None
    time_to_ack: Durations


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogPoint:
    """What was unsettled at one time of the day: the last snapshot of an hour, or the day's end."""

    #: 0 to 23; 24 is the end of the day.
    hour_utc: int
    lag_messages: int
    #: Age of the oldest unsettled message.
    lag_s: float | None
    in_flight: int
    waiting: int
    pinned_bytes: int | None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogSeries:
    """One durable subscription over the day, in all its topics; the greatest peak of `lag_messages` first."""

    subscription: str
    #: By hour; an hour without a snapshot is missing.
    points: tuple[BacklogPoint, ...]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Unsettled:
    """What one reading left unsettled at the end of the day; most messages first, and only those that left some."""

    reading: Reading
    lag_messages: int
    lag_s: float | None
    in_flight: int
    waiting: int
    pinned_bytes: int | None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """What durable subscriptions had not settled, over the day and at its end."""

    #: All subscriptions together; an hour without a snapshot is missing. `pinned_bytes` is a sum over subscriptions,
    #: so what two of them pin counts twice.
    points: tuple[BacklogPoint, ...]
    series: tuple[BacklogSeries, ...]
    #: When the snapshot was taken that `unsettled` is from; None: there is none.
    unsettled_at: datetime.datetime | None
    #: False: the day has no closing snapshot, and its last one is taken instead.
    is_closing: bool
    unsettled: tuple[Unsettled, ...]
    #: How many readings left something, those in `unsettled` included; and the messages of those that are left out.
    total_unsettled_readings: int
    other_lag_messages: int


@final
class Measure(Enum):
    """What is compared with earlier days."""

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
    """How a value stands out."""

    HIGHER = "higher"
    LOWER = "lower"
    #: Had no deliveries on any of the earlier days.
    NEW = "new"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DayMeasures:
    """The measures of one whole day; None where a day has no deliveries, no acks or no snapshot."""

    date: datetime.date
    deliveries: int | None
    redelivery_rate: float | None
    dead: int | None
    p99_to_ack_s: float | None
    closing_lag_messages: int | None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A value that stands out against the earlier days, by the rule of `changes.py`; what stands out most is first."""

    scope: Scope
    #: Name of the topic or subscription; None for the day.
    name: str | None
    measure: Measure
    direction: Direction
    value: float
    #: Of the earlier days that have a value; None for what is new.
    median: float | None
    lowest: float | None
    highest: float | None
    #: The seven days before, oldest first; None where there is no value.
    previous: tuple[float | None, ...]
    #: How far from the median, in units of the usual spread; only for the order.
    score: float


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What the reader has to know before the numbers."""

    date: datetime.date
    #: Given by whoever asked for the report; the only time of the run in it.
    generated_at: datetime.datetime
    lake: str
    #: Up to when everything is in the lake; None: the lake does not say.
    complete_until: datetime.datetime | None
    #: Whether the whole date is. If not, later deliveries are missing here.
    is_complete: bool
    #: Records that stand for more than one delivery, because the ledger keeps a sample or a stretch; and for how many.
    weighted_records: int
    weighted_deliveries: int
    #: Records that have the same key as another one. There must be none; their deliveries are counted each time.
    duplicate_records: int
    #: Those of the seven dates before that the lake has.
    previous_dates: tuple[datetime.date, ...]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ReportContent:
    """The report of one date."""

    head: Head
    day: Figures
    #: The seven days before that are in the lake, and this one, last.
    history: tuple[DayMeasures, ...]
    changes: tuple[Change, ...]
    #: How many values stood out, those in `changes` included.
    total_changes: int
    hours: tuple[HourFigures, ...]
    topics: Table[TopicFigures]
    topic_hours: tuple[TopicHours, ...]
    subscriptions: Table[SubscriptionFigures]
    slowest: tuple[SlowSubscription, ...]
    readings: Table[ReadingFigures]
    reasons: tuple[Reason, ...]
    dead_letters: DeadLetters
    backlog: Backlog
