"""Turns the rows of the marts into what the report says of one date.

Plain rows in, `ReportContent` out; no Spark. Nothing is measured here: what a table omits is the whole minus what it
shows.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, fields
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

from stompbroker_report.content import (
    AttemptsBucket,
    Backlog,
    BacklogPoint,
    BacklogSeries,
    DeadLetter,
    DeadLetterGroup,
    DeadLetters,
    Durations,
    Figures,
    GroupFigures,
    Groups,
    Head,
    HourFigures,
    MemberFigures,
    Outcomes,
    Reading,
    ReadingFigures,
    Reason,
    ReportContent,
    SlowSubscription,
    SubscriptionFigures,
    Table,
    TopicFigures,
    TopicHours,
    Unsettled,
)
from stompbroker_report.excerpts import SERIES
from stompbroker_report.lake_schema import OUTCOMES
from stompbroker_report.measures import Change, DayMeasures, Direction, Measure, Scope
from stompbroker_report.schemas import ATTEMPTS_BUCKETS, DURATIONS, MARTS, attempts_column

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from datetime import date, datetime

    from stompbroker_report.excerpts import Excerpt
    from stompbroker_report.sinks import Row

T = TypeVar("T")

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
    #: Those of the seven before that are in the lake, oldest first.
    previous_dates: tuple[date, ...]


def content_of(facts: DateFacts, excerpts: Mapping[str, Excerpt], history: Mapping[date, DayMeasures]) -> ReportContent:
    """The report of one date, from what `excerpts_of` gives; `history` has at least the previous dates."""
    day = next(iter(excerpts["days"].rows), _NO_DELIVERIES)

    def table(name: str, row_of: Callable[[Row], T]) -> Table[T]:
        excerpt = excerpts[name]
        rows = tuple(map(row_of, excerpt.rows))
        return Table(rows=rows, total_rows=excerpt.total_rows, other=_other(day, excerpt))

    return ReportContent(
        head=_head(facts, day),
        day=_figures(day),
        history=tuple(history[date] for date in (*facts.previous_dates, facts.day)),
        changes=tuple(map(_change, excerpts["changes"].rows)),
        total_changes=excerpts["changes"].total_rows,
        hours=_hours(excerpts["hours"].rows),
        topics=table("topics", lambda row: _from_row(TopicFigures, row, figures=_figures(row))),
        topic_hours=_topic_hours(excerpts["hours"].rows, excerpts["topic_hours"].rows),
        subscriptions=table("subscriptions", lambda row: _from_row(SubscriptionFigures, row, figures=_figures(row))),
        slowest=tuple(
            _from_row(SlowSubscription, row, time_to_ack=_durations(row, "time_to_ack"))
            for row in excerpts["slowest"].rows
        ),
        readings=table(
            "readings", lambda row: _from_row(ReadingFigures, row, reading=_reading(row), figures=_figures(row))
        ),
        reasons=_reasons(excerpts["reasons"]),
        dead_letters=_dead_letters(excerpts["dead_letters"], excerpts["latest_dead_letters"]),
        backlog=_backlog(excerpts),
        groups=_groups(excerpts["groups"], excerpts["members"]),
    )


def history_of(days: Iterable[Row], backlog_hours: Iterable[Row], dates: Iterable[date]) -> dict[date, DayMeasures]:
    """The measures of each date, from all rows of the marts `days` and `backlog_hours`."""
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


def _from_row(kind: type[T], row: Row, **others: Any) -> T:
    """A dataclass whose fields are the row's columns of the same names, and `others`."""
    own = [field.name for field in fields(kind) if field.name not in others]  # type: ignore[arg-type]
    return kind(**{name: row[name] for name in own}, **others)


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
    distribution = tuple(
        AttemptsBucket(attempts_from=bucket[0], attempts_to=bucket[1], deliveries=row[attempts_column(*bucket)])
        for bucket in ATTEMPTS_BUCKETS
    )
    return _from_row(Figures, row, attempts_distribution=distribution, **_outcomes_and_durations(row))


def _outcomes_and_durations(row: Row) -> dict[str, Any]:
    outcomes = Outcomes(**{word: row[f"outcome_{word}"] for word in (*OUTCOMES, "unknown")})
    return {"outcomes": outcomes, **{name: _durations(row, name) for name in DURATIONS}}


def _durations(row: Row, name: str) -> Durations:
    return Durations(**{field.name: row[f"{name}_{field.name}"] for field in fields(Durations)})


def _other(whole: Row, excerpt: Excerpt) -> Figures | None:
    """The omitted rows together: sums without percentiles, which cannot be subtracted."""
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


def _reading(row: Row) -> Reading:
    return _from_row(Reading, row)


def _hours(rows: Collection[Row]) -> tuple[HourFigures, ...]:
    by_hour = {row["hour_utc"]: row for row in rows}
    in_order = [by_hour.get(hour, _NO_HOUR | {"hour_utc": hour}) for hour in _HOURS]
    return tuple(_from_row(HourFigures, row, **_outcomes_and_durations(row)) for row in in_order)


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
    shown = tuple(_from_row(Reason, row, most_in=_reading(row)) for row in excerpt.rows)
    if excerpt.total_rows <= len(shown):
        return shown
    rest = {name: total - sum(row[name] for row in excerpt.rows) for name, total in excerpt.totals.items()}
    return (*shown, Reason(reason=None, readings=0, most_in=None, **rest))


def _dead_letters(groups: Excerpt, latest: Excerpt) -> DeadLetters:
    deliveries = groups.totals["deliveries"]
    return DeadLetters(
        deliveries=deliveries,
        groups=tuple(_from_row(DeadLetterGroup, row, reading=_reading(row)) for row in groups.rows),
        total_groups=groups.total_rows,
        other_deliveries=deliveries - sum(row["deliveries"] for row in groups.rows),
        latest=tuple(_from_row(DeadLetter, row, reading=_reading(row)) for row in latest.rows),
    )


def _groups(groups: Excerpt, members: Excerpt) -> Groups:
    busiest: dict[str, list[MemberFigures]] = defaultdict(list)
    for row in members.rows:
        busiest[row["subscription"]].append(_from_row(MemberFigures, row))
    return Groups(
        rows=tuple(
            GroupFigures(
                subscription=row["subscription"],
                members=row["group_members"],
                deliveries=row["group_deliveries"],
                even_share_rate=1 / row["group_members"],
                largest_share_rate=row["share_rate"],
                least_share_rate=row["group_least_share_rate"],
                failed=row["group_failed"],
                without_member=row["group_without_member"],
                busiest=tuple(busiest.get(row["subscription"], ())),
            )
            for row in groups.rows
        ),
        total_rows=groups.total_rows,
    )


def _backlog(excerpts: Mapping[str, Excerpt]) -> Backlog:
    hours, left = excerpts["backlog_hours"].rows, excerpts["unsettled"]
    return Backlog(
        points=_points(hours),
        series=_series(excerpts["backlog"].rows),
        unsettled_at=hours[-1]["taken_at"] if hours else None,
        is_closing=bool(hours and hours[-1]["is_closing"]),
        unsettled=tuple(_from_row(Unsettled, row, reading=_reading(row)) for row in left.rows),
        total_unsettled_readings=left.total_rows,
        other_lag_messages=left.totals["lag_messages"] - sum(row["lag_messages"] for row in left.rows),
    )


def _points(rows: Iterable[Row]) -> tuple[BacklogPoint, ...]:
    return tuple(_from_row(BacklogPoint, row) for row in rows)


def _series(rows: Iterable[Row]) -> tuple[BacklogSeries, ...]:
    """In the order of the rows: by subscription, then by hour."""
    by_subscription = groupby(rows, key=lambda row: str(row["subscription"]))
    series = (BacklogSeries(subscription=name, points=_points(points)) for name, points in by_subscription)
    # If a subscription has fewer hours, the rows reach into one more, perhaps not to its end.
    return tuple(islice(series, SERIES))


def _change(row: Row) -> Change:
    return _from_row(
        Change,
        row,
        scope=Scope(row["scope"]),
        measure=Measure(row["measure"]),
        direction=Direction(row["direction"]),
        previous=tuple(row["previous"]),
    )
