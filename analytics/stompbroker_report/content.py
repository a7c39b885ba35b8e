"""Everything that a report says: the shape of `report.json`, and what the HTML is drawn from.

Frozen values only: no Spark, no files, no wording. One `ReportContent` is one date (UTC, by `settled_at`). Every tuple
is bounded: a table holds its first rows in the order its docstring names, and `Table.other` adds up the rest.

Names carry the unit: `_s` seconds, `_bytes`, `_rate` 0 to 1, `_at` an instant in UTC, `hour_utc` 0 to 23. Numbers of
deliveries are weighted: a record that stands for several counts as several. None means unknown or not computable,
never 0.
"""

from __future__ import annotations

import datetime  # noqa: TC003 - read at run time, when a report is read back
from dataclasses import dataclass, field
from typing import Generic, TypeVar, final

from stompbroker_report.measures import Change, DayMeasures  # noqa: TC001 - likewise

RowT = TypeVar("RowT")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Durations:
    """How long something took for so many deliveries; all None if there were none."""

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
    #: Outcomes this report does not know: a newer broker wrote them.
    unknown: int


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptsBucket:
    """Deliveries that were sent at least `attempts_from` and at most `attempts_to` times (None: no upper bound)."""

    attempts_from: int
    attempts_to: int | None
    deliveries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What is said of an hour and of everything longer."""

    deliveries: int
    outcomes: Outcomes
    #: Sent more than once.
    redelivered: int
    #: NACK frames.
    nacks: int
    #: Bodies, each counted once per delivery, however often it was sent.
    body_bytes: int
    #: published_at to first_sent_at, of everything that was sent.
    time_to_first_delivery: Durations
    #: last_sent_at to settled_at, of what was acknowledged.
    time_to_ack: Durations


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Figures(Counts):
    """What is said of a day, a topic, a subscription or a reading."""

    #: Records of these deliveries in the ledger; fewer than `deliveries` where it keeps a sample.
    records: int
    #: Sent at least once.
    sent_deliveries: int
    #: redelivered / sent_deliveries; None if nothing was sent.
    redelivery_rate: float | None
    #: All sends together.
    attempts: int
    #: Always the same buckets, from 0 attempts up.
    attempts_distribution: tuple[AttemptsBucket, ...]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Table(Generic[RowT]):
    """The first rows of a mart, and the sum of the rest."""

    rows: tuple[RowT, ...]
    #: Rows in the mart, including those in `rows`.
    total_rows: int
    #: The omitted rows together, without durations; None if there are none.
    other: Figures | None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFigures:
    """One topic; most deliveries first."""

    topic: str
    #: Subscriptions that had deliveries from it.
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
class MemberFigures:
    """One member of a group or queue, by the name of its connection."""

    member: str
    deliveries: int
    #: Of what members of its group had.
    share_rate: float
    #: Dead-lettered or discarded when this member had failed last.
    failed: int
    #: Of its deliveries, those that were sent more than once, perhaps to other members before.
    redelivered: int


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFigures:
    """One group or queue, in all its topics; most deliveries first."""

    subscription: str
    #: Those that had at least one delivery, and what they had together.
    members: int
    deliveries: int
    #: 1 / members: what each would have had if they had shared evenly.
    even_share_rate: float
    largest_share_rate: float
    least_share_rate: float
    failed: int
    #: Settled without a member (expired, deleted), or by a broker that did not name it; not in `deliveries`.
    without_member: int
    #: The members with most deliveries, those first; of the busiest groups only.
    busiest: tuple[MemberFigures, ...]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """Groups and queues of which a record names a member."""

    rows: tuple[GroupFigures, ...] = ()
    #: Including those in `rows`.
    total_rows: int = 0


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class HourFigures(Counts):
    """One hour of the day; always 24 of them, from hour 0."""

    hour_utc: int


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TopicHours:
    """One topic's deliveries in each of the 24 hours; most deliveries first."""

    #: None: all other topics together; comes last.
    topic: str | None
    deliveries: tuple[int, ...]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why deliveries failed, by the last reason of each; most deliveries first."""

    #: None: all other reasons together; comes last.
    reason: str | None
    deliveries: int
    nacks: int
    #: Of these deliveries, how many were dead-lettered.
    dead: int
    #: How many readings had this reason, and which had it most; 0 and None for the other reasons together.
    readings: int
    most_in: Reading | None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterGroup:
    """Deliveries of one reading that were dead-lettered for one reason; most deliveries first."""

    reading: Reading
    reason: str | None
    deliveries: int
    first_at: datetime.datetime
    last_at: datetime.datetime


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """One dead-lettered delivery."""

    #: None if the record stands for a range of messages.
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
    """What was dead-lettered that day."""

    deliveries: int
    groups: tuple[DeadLetterGroup, ...]
    #: Groups in the mart, including those in `groups`; and the deliveries of the omitted ones.
    total_groups: int
    other_deliveries: int
    #: The latest first.
    latest: tuple[DeadLetter, ...]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SlowSubscription:
    """One of the subscriptions with the longest p99 to ack, slowest first; only those with enough acks are ranked."""

    subscription: str
    deliveries: int
    redelivery_rate: float | None
    time_to_ack: Durations


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """What was unsettled at one time."""

    lag_messages: int
    #: Age of the oldest unsettled message.
    lag_s: float | None
    in_flight: int
    waiting: int
    pinned_bytes: int | None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogPoint(Lag):
    """The last snapshot of an hour; hour 24 is the end of the day."""

    hour_utc: int


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogSeries:
    """One durable subscription over the day, all its topics together; highest peak of `lag_messages` first."""

    subscription: str
    #: By hour; an hour without a snapshot is missing.
    points: tuple[BacklogPoint, ...]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Unsettled(Lag):
    """What one reading left unsettled at the end of the day, if anything; most messages first."""

    reading: Reading


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """What durable subscriptions had not settled, over the day and at its end."""

    #: All subscriptions together; an hour without a snapshot is missing. Bytes pinned by two subscriptions count
    #: twice.
    points: tuple[BacklogPoint, ...]
    series: tuple[BacklogSeries, ...]
    #: When the snapshot behind `unsettled` was taken; None: there is none.
    unsettled_at: datetime.datetime | None
    #: False: the day has no closing snapshot, so its last one stands in.
    is_closing: bool
    unsettled: tuple[Unsettled, ...]
    #: Readings that left something, including those in `unsettled`; and the messages of the omitted ones.
    total_unsettled_readings: int
    other_lag_messages: int


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What the reader has to know before reading any number."""

    date: datetime.date
    #: Given by the caller: the only trace of when the report was made.
    generated_at: datetime.datetime
    lake: str
    #: Until when the lake is complete; None: it does not say.
    complete_until: datetime.datetime | None
    #: Whether that covers the whole date. If not, later deliveries are missing.
    is_complete: bool
    #: Records that stand for several deliveries (a sample or a range), and for how many.
    weighted_records: int
    weighted_deliveries: int
    #: Records with the key of another one. There must be none; each is counted.
    duplicate_records: int
    #: Those of the seven dates before that are in the lake.
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
    #: Values that stood out, including those in `changes`.
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
    #: Reports of older releases do not have it, and stay in the overview.
    groups: Groups = field(default_factory=Groups)

    @property
    def closing_lag(self) -> int | None:
        """Messages unsettled at the end of the day; None if there is no snapshot."""
        return self.history[-1].closing_lag_messages if self.history else None
