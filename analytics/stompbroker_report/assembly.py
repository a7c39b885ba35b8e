"""From the rows that Spark gives to what the report says of one date.

Law: plain rows in, `ReportContent` out; no Spark. Nothing is measured here, only put together; what a table leaves out
is the whole minus what it shows.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any, Final, final

from stompbroker_report.content import (
    AttemptsBucket,
    Backlog,
    BacklogPoint,
    BacklogSeries,
    Change,
    DayMeasures,
    DeadLetter,
    DeadLetterGroup,
    DeadLetters,
    Direction,
    Durations,
    Figures,
    Head,
    HourFigures,
    Measure,
    Outcomes,
    Reading,
    ReadingFigures,
    Reason,
    ReportContent,
    Scope,
    SlowSubscription,
    SubscriptionFigures,
    Table,
    TopicFigures,
    TopicHours,
    Unsettled,
)
from stompbroker_report.excerpts import SERIES
from stompbroker_report.lake_schema import OUTCOMES
from stompbroker_report.schemas import ATTEMPTS_BUCKETS, DURATIONS, MARTS, attempts_column

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from datetime import date, datetime

    from stompbroker_report.excerpts import Excerpt, Row

__all__ = ["DateFacts", "content_of", "history_of"]

_HOURS: Final = range(24)
_NO_PERCENTILES: Final[Row] = {f"{name}_{part}_s": None for name in DURATIONS for part in ("p50", "p95", "p99", "max")}
#: Columns of `Figures` that can be added and subtracted.
_SUMS: Final = [
    name
    for name in MARTS["readings"].names
    if name not in ("dt", "topic", "subscription", "is_durable", "redelivery_rate") and name not in _NO_PERCENTILES
]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DateFacts:
    """What is known of a date without computing anything."""

    day: date
    generated_at: datetime
    lake: str
    complete_until: datetime | None
    is_complete: bool
    #: Those of the seven before that the lake has, oldest first.
    previous_dates: tuple[date, ...]


def content_of(facts: DateFacts, excerpts: Mapping[str, Excerpt], history: Mapping[date, DayMeasures]) -> ReportContent:
    """The report of one date; `excerpts` are those of `excerpts_of`, `history` has at least the previous dates."""
    day = next(iter(excerpts["days"].rows), _NO_DELIVERIES)
    topics, subscriptions, readings = (excerpts[name] for name in ("topics", "subscriptions", "readings"))
    return ReportContent(
        head=_head(facts, day),
        day=_figures(day),
        history=tuple(history[date] for date in (*facts.previous_dates, facts.day)),
        changes=tuple(map(_change, excerpts["changes"].rows)),
        total_changes=excerpts["changes"].total_rows,
        hours=_hours(excerpts["hours"].rows),
        topics=Table(rows=tuple(map(_topic, topics.rows)), total_rows=topics.total_rows, other=_other(day, topics)),
        topic_hours=_topic_hours(excerpts["hours"].rows, excerpts["topic_hours"].rows),
        subscriptions=Table(
            rows=tuple(map(_subscription, subscriptions.rows)),
            total_rows=subscriptions.total_rows,
            other=_other(day, subscriptions),
        ),
        slowest=tuple(map(_slow, excerpts["slowest"].rows)),
        readings=Table(
            rows=tuple(map(_reading_figures, readings.rows)),
            total_rows=readings.total_rows,
            other=_other(day, readings),
        ),
        reasons=_reasons(excerpts["reasons"]),
        dead_letters=_dead_letters(excerpts["dead_letters"], excerpts["latest_dead_letters"]),
        backlog=_backlog(excerpts),
    )


def history_of(days: Iterable[Row], backlog_hours: Iterable[Row], dates: Iterable[date]) -> dict[date, DayMeasures]:
    """Of each date; rows are of the marts of these names, of all of them."""
    figures = {row["dt"]: row for row in days}
    at_end: dict[date, Row] = {}
    for row in sorted(backlog_hours, key=lambda row: int(row["hour_utc"])):
        at_end[row["dt"]] = row
    return {
        day: DayMeasures(
            date=day,
            deliveries=row["deliveries"],
            redelivery_rate=row["redelivery_rate"],
            dead=row["outcome_dead"],
            p99_to_ack_s=row["time_to_ack_p99_s"],
            closing_lag_messages=at_end[day]["lag_messages"] if day in at_end else None,
        )
        for day in dates
        for row in [figures.get(day, _NO_DELIVERIES)]
    }


def _head(facts: DateFacts, day: Row) -> Head:
    return Head(
        date=facts.day,
        generated_at=facts.generated_at,
        lake=facts.lake,
        complete_until=facts.complete_until,
        is_complete=facts.is_complete,
        weighted_records=day["weighted_records"],
        weighted_deliveries=day["weighted_deliveries"],
        duplicate_records=day["duplicate_records"],
        previous_dates=facts.previous_dates,
    )


def _figures(row: Row) -> Figures:
    return Figures(
        deliveries=row["deliveries"],
        records=row["records"],
        outcomes=_outcomes(row),
        sent_deliveries=row["sent_deliveries"],
        redelivered=row["redelivered"],
        redelivery_rate=row["redelivery_rate"],
        nacks=row["nacks"],
        attempts=row["attempts"],
        attempts_distribution=tuple(
            AttemptsBucket(attempts_from=bucket[0], attempts_to=bucket[1], deliveries=row[attempts_column(*bucket)])
            for bucket in ATTEMPTS_BUCKETS
        ),
        body_bytes=row["body_bytes"],
        time_to_first_delivery=_durations(row, "time_to_first_delivery"),
        time_to_ack=_durations(row, "time_to_ack"),
    )


def _outcomes(row: Row) -> Outcomes:
    return Outcomes(**{word: row[f"outcome_{word}"] for word in (*OUTCOMES, "unknown")})


def _durations(row: Row, name: str) -> Durations:
    return Durations(
        deliveries=row[f"{name}_deliveries"],
        p50_s=row[f"{name}_p50_s"],
        p95_s=row[f"{name}_p95_s"],
        p99_s=row[f"{name}_p99_s"],
        max_s=row[f"{name}_max_s"],
    )


def _other(whole: Row, excerpt: Excerpt) -> Figures | None:
    """What the rows that are not shown say together: sums, and no percentiles, which do not subtract."""
    if excerpt.total_rows <= len(excerpt.rows):
        return None
    rest: Row = {name: whole[name] - sum(row[name] for row in excerpt.rows) for name in _SUMS}
    rest["redelivery_rate"] = rest["redelivered"] / rest["sent_deliveries"] if rest["sent_deliveries"] else None
    return _figures(rest | _NO_PERCENTILES)


def _nothing(columns: Iterable[str]) -> Row:
    """A row of figures in which nothing happened."""
    return {name: None if name.endswith(("_s", "_rate")) else 0 for name in columns}


_NO_DELIVERIES: Final = _nothing(MARTS["days"].names)
_NO_HOUR: Final = _nothing(MARTS["hours"].names)


def _topic(row: Row) -> TopicFigures:
    return TopicFigures(topic=row["topic"], subscriptions=row["subscriptions"], figures=_figures(row))


def _subscription(row: Row) -> SubscriptionFigures:
    return SubscriptionFigures(
        subscription=row["subscription"], is_durable=row["is_durable"], topics=row["topics"], figures=_figures(row)
    )


def _reading(row: Row) -> Reading:
    return Reading(topic=row["topic"], subscription=row["subscription"])


def _reading_figures(row: Row) -> ReadingFigures:
    return ReadingFigures(reading=_reading(row), is_durable=row["is_durable"], figures=_figures(row))


def _slow(row: Row) -> SlowSubscription:
    return SlowSubscription(
        subscription=row["subscription"],
        deliveries=row["deliveries"],
        redelivery_rate=row["redelivery_rate"],
        time_to_ack=_durations(row, "time_to_ack"),
    )


def _hours(rows: Collection[Row]) -> tuple[HourFigures, ...]:
    by_hour = {row["hour_utc"]: row for row in rows}
    return tuple(_hour(hour, by_hour.get(hour, _NO_HOUR)) for hour in _HOURS)


def _hour(hour: int, row: Row) -> HourFigures:
    return HourFigures(
        hour_utc=hour,
        deliveries=row["deliveries"],
        outcomes=_outcomes(row),
        redelivered=row["redelivered"],
        nacks=row["nacks"],
        body_bytes=row["body_bytes"],
        time_to_first_delivery=_durations(row, "time_to_first_delivery"),
        time_to_ack=_durations(row, "time_to_ack"),
    )


def _topic_hours(all_hours: Collection[Row], rows: Collection[Row]) -> tuple[TopicHours, ...]:
    by_topic: dict[str, list[int]] = defaultdict(lambda: [0 for _ in _HOURS])
    others = [0 for _ in _HOURS]
    for row in all_hours:
        others[row["hour_utc"]] += row["deliveries"]
    for row in rows:
        by_topic[row["topic"]][row["hour_utc"]] += row["deliveries"]
        others[row["hour_utc"]] -= row["deliveries"]
    named = sorted(by_topic.items(), key=lambda item: (-sum(item[1]), item[0]))
    shown = [TopicHours(topic=topic, deliveries=tuple(deliveries)) for topic, deliveries in named]
    return (*shown, TopicHours(topic=None, deliveries=tuple(others))) if any(others) else tuple(shown)


def _reasons(excerpt: Excerpt) -> tuple[Reason, ...]:
    shown = [
        Reason(
            reason=row["reason"],
            deliveries=row["deliveries"],
            nacks=row["nacks"],
            dead=row["dead"],
            readings=row["readings"],
            most_in=_reading(row),
        )
        for row in excerpt.rows
    ]
    if excerpt.total_rows <= len(shown):
        return tuple(shown)
    rest = {name: total - sum(row[name] for row in excerpt.rows) for name, total in excerpt.totals.items()}
    return (*shown, Reason(reason=None, readings=0, most_in=None, **rest))


def _dead_letters(groups: Excerpt, latest: Excerpt) -> DeadLetters:
    deliveries = groups.totals["deliveries"]
    return DeadLetters(
        deliveries=deliveries,
        groups=tuple(
            DeadLetterGroup(
                reading=_reading(row),
                reason=row["reason"],
                deliveries=row["deliveries"],
                first_at=_utc(row["first_at"]),
                last_at=_utc(row["last_at"]),
            )
            for row in groups.rows
        ),
        total_groups=groups.total_rows,
        other_deliveries=deliveries - sum(row["deliveries"] for row in groups.rows),
        latest=tuple(
            DeadLetter(
                message_id=row["message_id"],
                reading=_reading(row),
                offset=row["offset"],
                attempts=row["attempts"],
                reason=row["reason"],
                published_at=None if row["published_at"] is None else _utc(row["published_at"]),
                settled_at=_utc(row["settled_at"]),
            )
            for row in latest.rows
        ),
    )


def _backlog(excerpts: Mapping[str, Excerpt]) -> Backlog:
    hours, left = excerpts["backlog_hours"].rows, excerpts["unsettled"]
    return Backlog(
        points=tuple(map(_point, hours)),
        series=_series(excerpts["backlog"].rows),
        unsettled_at=_utc(hours[-1]["taken_at"]) if hours else None,
        is_closing=bool(hours and hours[-1]["is_closing"]),
        unsettled=tuple(Unsettled(reading=_reading(row), **_snapshot(row)) for row in left.rows),
        total_unsettled_readings=left.total_rows,
        other_lag_messages=left.totals["lag_messages"] - sum(row["lag_messages"] for row in left.rows),
    )


def _point(row: Row) -> BacklogPoint:
    return BacklogPoint(hour_utc=row["hour_utc"], **_snapshot(row))


def _series(rows: Iterable[Row]) -> tuple[BacklogSeries, ...]:
    """In the order of the rows, which is by subscription and then by hour."""
    by_subscription = groupby(rows, key=lambda row: str(row["subscription"]))
    series = (
        BacklogSeries(subscription=subscription, points=tuple(map(_point, points)))
        for subscription, points in by_subscription
    )
    # Where a subscription has fewer hours, the rows go on to one more, maybe not to its end.
    return tuple(islice(series, SERIES))


def _snapshot(row: Row) -> dict[str, Any]:
    return {name: row[name] for name in ("lag_messages", "lag_s", "in_flight", "waiting", "pinned_bytes")}


def _change(row: Row) -> Change:
    return Change(
        scope=Scope(row["scope"]),
        name=row["name"],
        measure=Measure(row["measure"]),
        direction=Direction(row["direction"]),
        value=row["value"],
        median=row["median"],
        lowest=row["lowest"],
        highest=row["highest"],
        previous=tuple(row["previous"]),
        score=row["score"],
    )


def _utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC)
