"""Contents of reports, made by hand: what pages and pictures are tested with, without Spark.

Law: values alone, the same every time. Every function makes something that a job could have made, and takes what a
test wants otherwise.

It is long because there is a value for each part of a report.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

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
from stompbroker_report.measures import Change, DayMeasures, Direction, Measure, Scope

DATE = date(2026, 11, 15)

#: A name that would end an element, run a script, turn the direction of the text, and be a formula.
HOSTILE = "</td><script>alert(1)</script>\"'&$x_1$\u202e%s{0}"

_NO_DURATIONS = Durations(deliveries=0, p50_s=None, p95_s=None, p99_s=None, max_s=None)


def at(hour_utc: float) -> datetime:
    return datetime(DATE.year, DATE.month, DATE.day, tzinfo=UTC) + timedelta(hours=hour_utc)


def durations(p50_s: float, deliveries: int = 1000) -> Durations:
    return Durations(deliveries=deliveries, p50_s=p50_s, p95_s=p50_s * 6, p99_s=p50_s * 20, max_s=p50_s * 90)


def outcomes(**numbers: int) -> Outcomes:
    nothing = dict.fromkeys(Outcomes.__dataclass_fields__, 0)
    return Outcomes(**nothing | numbers)


def distribution(*numbers: int) -> tuple[AttemptsBucket, ...]:
    bounds = ((0, 0), (1, 1), (2, 2), (3, 3), (4, 5), (6, 10), (11, None))
    padded = [*numbers, *[0] * (len(bounds) - len(numbers))]
    return tuple(
        AttemptsBucket(attempts_from=first, attempts_to=last, deliveries=number)
        for (first, last), number in zip(bounds, padded, strict=True)
    )


def figures(acked: int = 0, *, ack_s: float = 0.035, **more: int) -> Figures:
    """So many acknowledged deliveries, of which a few took more than one send; and others as named."""
    ended = outcomes(acked=acked, **more)
    total = sum(getattr(ended, one) for one in Outcomes.__dataclass_fields__)
    again = acked // 50
    return Figures(
        deliveries=total,
        records=total,
        outcomes=ended,
        sent_deliveries=total,
        redelivered=again,
        redelivery_rate=again / total if total else None,
        nacks=again * 2,
        attempts=total + again * 2,
        attempts_distribution=distribution(0, total - again, again // 2, again // 4, again - again // 2 - again // 4),
        body_bytes=total * 740,
        time_to_first_delivery=durations(0.0012, total) if total else _NO_DURATIONS,
        time_to_ack=durations(ack_s, acked) if acked else _NO_DURATIONS,
    )


def hour(number: int, **ended: int) -> HourFigures:
    counted = outcomes(**ended)
    return HourFigures(
        hour_utc=number,
        deliveries=sum(ended.values()),
        outcomes=counted,
        redelivered=0,
        nacks=0,
        body_bytes=0,
        time_to_first_delivery=_NO_DURATIONS,
        time_to_ack=_NO_DURATIONS,
    )


def slow(subscription: str, p50_s: float) -> SlowSubscription:
    return SlowSubscription(
        subscription=subscription, deliveries=12_345, redelivery_rate=0.0213, time_to_ack=durations(p50_s, 12_000)
    )


def head(**more: Any) -> Head:
    made = Head(
        date=DATE,
        generated_at=datetime(2026, 11, 16, 0, 15, tzinfo=UTC),
        lake="/var/lib/stompbroker/lake",
        complete_until=datetime(2026, 11, 16, 0, 10, tzinfo=UTC),
        is_complete=True,
        weighted_records=0,
        weighted_deliveries=0,
        duplicate_records=0,
        previous_dates=tuple(DATE - timedelta(days=days) for days in range(7, 0, -1)),
    )
    return replace(made, **more)


def empty_day(**more: Any) -> ReportContent:
    """No broker ran, or nothing was published."""
    nothing = figures()
    made = ReportContent(
        head=head(previous_dates=()),
        day=nothing,
        history=(_measures(DATE, None),),
        changes=(),
        total_changes=0,
        hours=tuple(hour(number) for number in range(24)),
        topics=Table(rows=(), total_rows=0, other=None),
        topic_hours=(),
        subscriptions=Table(rows=(), total_rows=0, other=None),
        slowest=(),
        readings=Table(rows=(), total_rows=0, other=None),
        reasons=(),
        dead_letters=DeadLetters(deliveries=0, groups=(), total_groups=0, other_deliveries=0, latest=()),
        backlog=Backlog(
            points=(),
            series=(),
            unsettled_at=None,
            is_closing=False,
            unsettled=(),
            total_unsettled_readings=0,
            other_lag_messages=0,
        ),
    )
    return replace(made, **more)


def quiet_day(topic: str = "orders", subscription: str = "billing/invoices") -> ReportContent:
    """One topic with one subscription; everything was acknowledged, in one hour."""
    counted = figures(1200)
    points = tuple(_point(number, 0) for number in range(25))
    return empty_day(
        head=head(),
        day=counted,
        history=tuple(_measures(DATE - timedelta(days=days), 1100 + days) for days in range(7, -1, -1)),
        hours=tuple(hour(number, acked=1200 if number == 9 else 0) for number in range(24)),
        topics=Table(rows=(TopicFigures(topic=topic, subscriptions=1, figures=counted),), total_rows=1, other=None),
        topic_hours=(TopicHours(topic=topic, deliveries=tuple(1200 if number == 9 else 0 for number in range(24))),),
        subscriptions=Table(
            rows=(SubscriptionFigures(subscription=subscription, is_durable=True, topics=1, figures=counted),),
            total_rows=1,
            other=None,
        ),
        slowest=(slow(subscription, 0.012),),
        readings=Table(
            rows=(ReadingFigures(reading=_reading(topic, subscription), is_durable=True, figures=counted),),
            total_rows=1,
            other=None,
        ),
        backlog=Backlog(
            points=points,
            series=(BacklogSeries(subscription=subscription, points=points),),
            unsettled_at=at(24),
            is_closing=True,
            unsettled=(),
            total_unsettled_readings=0,
            other_lag_messages=0,
        ),
    )


def busy_day() -> ReportContent:
    """Something of everything: many topics, every outcome, dead letters, a backlog, and values that stand out."""
    topics = ["orders.created", "orders.cancelled", "prices.eu", "prices.us", "audit", HOSTILE, "metrics.host.cpu", "x"]
    subscriptions = [
        "billing/invoices",
        "search/indexer-of-all-products-in-the-catalogue",
        "warehouse/picking",
        "mail/confirmations",
        f"stranger/{HOSTILE}",
        "dash @ prices.>",
        "n" * 300,
        "audit/archive",
    ]
    numbers = [412_345, 187_002, 96_120, 54_321, 20_100, 4_210, 903, 12]
    shape = [max(1, round(20 + 18 * (1 - abs(number - 14) / 14))) for number in range(24)]
    by_topic = tuple(
        TopicHours(topic=topic, deliveries=tuple(total * one // sum(shape) for one in shape))
        for topic, total in zip([*topics[:6], None], numbers[:7], strict=True)
    )
    hours = tuple(
        hour(
            number,
            acked=one * 900,
            sent=one * 320,
            expired=one * 9,
            dead=one * (60 if number == 14 else 1),
            dropped=one,
        )
        for number, one in enumerate(shape)
    )
    day = figures(
        540_000,
        sent=190_000,
        dead=1_204,
        discarded=320,
        expired=6_120,
        evicted=44,
        dropped=890,
        unsubscribed=31,
        skipped=5,
    )
    rows = list(zip(topics, subscriptions, numbers, strict=True))
    return empty_day(
        head=head(weighted_records=12_000, weighted_deliveries=190_000),
        day=day,
        history=(
            *(_measures(DATE - timedelta(days=days), 640_000 + days * 9_000) for days in range(7, 0, -1)),
            DayMeasures(
                date=DATE,
                deliveries=day.deliveries,
                redelivery_rate=0.0341,
                dead=1_204,
                p99_to_ack_s=2.4,
                closing_lag_messages=61_530,
            ),
        ),
        changes=_changes(),
        total_changes=15,
        hours=hours,
        topics=Table(
            rows=tuple(
                TopicFigures(topic=topic, subscriptions=number % 5 + 1, figures=figures(number, dead=number // 900))
                for topic, _, number in rows
            ),
            total_rows=140,
            other=figures(5_120),
        ),
        topic_hours=by_topic,
        subscriptions=Table(
            rows=tuple(
                SubscriptionFigures(
                    subscription=one,
                    is_durable="@" not in one,
                    topics=number % 7 + 1,
                    figures=figures(number, ack_s=0.004 * place + 0.002, sent=number // 10, dead=number // 700),
                )
                for place, (_, one, number) in enumerate(rows)
            ),
            total_rows=len(rows),
            other=None,
        ),
        slowest=tuple(
            slow(one, seconds)
            for one, seconds in zip(subscriptions, (3.2, 0.84, 0.41, 0.12, 0.035, 0.021, 0.004, 0.0007), strict=True)
        ),
        readings=Table(
            rows=tuple(
                ReadingFigures(reading=_reading(topic, one), is_durable=True, figures=figures(number))
                for topic, one, number in rows
            ),
            total_rows=412,
            other=figures(9_000),
        ),
        reasons=tuple(
            Reason(reason=text, deliveries=number, nacks=number * 3, dead=number // 3, readings=2, most_in=where)
            for text, number, where in (
                (
                    "connection to the ledger database timed out after 30 s",
                    2_400,
                    _reading(topics[0], subscriptions[0]),
                ),
                ("ack deadline exceeded", 812, _reading(topics[2], subscriptions[2])),
                (HOSTILE, 97, _reading(HOSTILE, subscriptions[4])),
                ("", 12, _reading(topics[1], subscriptions[1])),
                (None, 40, None),
            )
        ),
        dead_letters=_dead_letters(topics, subscriptions),
        backlog=_backlog(topics, subscriptions),
        groups=_groups(),
    )


def _dead_letters(topics: list[str], subscriptions: list[str]) -> DeadLetters:
    reasons = ["connection to the ledger database timed out after 30 s", None, HOSTILE]
    return DeadLetters(
        deliveries=1_204,
        groups=tuple(
            DeadLetterGroup(
                reading=_reading(topic, subscription),
                reason=reason,
                deliveries=number,
                first_at=at(13.52),
                last_at=at(14.98),
            )
            for topic, subscription, reason, number in zip(
                topics[3:6], subscriptions[:3], reasons, (1_100, 61, 3), strict=True
            )
        ),
        total_groups=9,
        other_deliveries=40,
        latest=tuple(
            DeadLetter(
                message_id=f"5f0c9a3e-4-{120_700 + number}" if number else None,
                reading=_reading(topics[number], subscriptions[number]),
                offset=number,
                attempts=10,
                reason=None,
                published_at=at(12.9) if number else None,
                settled_at=at(14.98 - number / 100),
            )
            for number in range(5)
        ),
    )


def _groups() -> Groups:
    def group(name: str, deliveries: int, members: int, busiest: tuple[MemberFigures, ...]) -> GroupFigures:
        return GroupFigures(
            subscription=name,
            members=members,
            deliveries=deliveries,
            even_share_rate=1 / members,
            largest_share_rate=0.5,
            least_share_rate=0.0004,
            failed=31,
            without_member=1_200,
            busiest=busiest,
        )

    def member(name: str, deliveries: int, failed: int = 0) -> MemberFigures:
        return MemberFigures(
            member=name,
            deliveries=deliveries,
            share_rate=deliveries / 90_000,
            failed=failed,
            redelivered=deliveries // 100,
        )

    workers = tuple(member(f"worker-{number}", 45_000 // number // number, 31 // number**3) for number in range(1, 9))
    jobs = (
        *workers,
        member(HOSTILE, 10_000),
        member("n" * 300, 90_000 - 400 - 10_000 - sum(one.deliveries for one in workers)),
    )
    return Groups(
        rows=(
            group("/queue/jobs", 90_000, 12, jobs),
            group(f"group:{HOSTILE} @ orders.>", 90_000, 2, (member("one", 60_000), member("two", 30_000))),
            group("group:" + "n" * 255 + " @ prices.eu", 90_000, 1, (member("5f0c9a3e-4-1207", 90_000),)),
            group("group:audit @ audit", 60, 3, ()),
        ),
        total_rows=9,
    )


def _backlog(topics: list[str], subscriptions: list[str]) -> Backlog:
    def lags(base: int, number: int) -> int:
        return base * max(0, number - 10) ** 2 // 4 if number < 15 else base * max(0, 26 - number)

    present = [number for number in range(25) if number not in (4, 5)]
    series = tuple(
        BacklogSeries(subscription=one, points=tuple(_point(number, lags(base, number)) for number in present))
        for one, base in zip(subscriptions, (24_000, 5_200, 900, 210, 33, 4, 1, 0), strict=True)
    )
    return Backlog(
        points=tuple(
            _point(number, sum(lags(base, number) for base in (24_000, 5_200, 900, 210))) for number in present
        ),
        series=series,
        unsettled_at=at(24),
        is_closing=True,
        unsettled=tuple(
            Unsettled(
                reading=_reading(topic, one),
                lag_messages=number,
                lag_s=number * 1.7,
                in_flight=min(number, 1_000),
                waiting=number // 9,
                pinned_bytes=None if number < 100 else number * 812,
            )
            for topic, one, number in zip(
                topics[:6], subscriptions[:6], (48_000, 10_400, 1_800, 420, 66, 8), strict=True
            )
        ),
        total_unsettled_readings=8,
        other_lag_messages=6,
    )


def _changes() -> tuple[Change, ...]:
    def change(scope: Scope, name: str | None, measure: Measure, value: float, *previous: float | None) -> Change:
        known = sorted(one for one in previous if one is not None)
        middle = known[len(known) // 2] if known else None
        direction = Direction.NEW if middle is None else Direction.HIGHER if value > middle else Direction.LOWER
        return Change(
            scope=scope,
            name=name,
            measure=measure,
            direction=direction,
            value=value,
            median=middle,
            lowest=known[0] if known else None,
            highest=known[-1] if known else None,
            previous=previous,
            score=9.0,
        )

    return (
        change(Scope.DAY, None, Measure.DEAD, 1_204, 12, 9, 0, 14, None, 11, 10),
        change(Scope.SUBSCRIPTION, "billing/invoices", Measure.P99_TO_ACK_S, 64.0, 1.1, 1.4, 0.9, 1.2, 1.1, 1.0, 1.3),
        change(Scope.TOPIC, HOSTILE, Measure.REDELIVERY_RATE, 0.341, 0.011, 0.012, 0.014, 0.009, 0.011, 0.01, 0.012),
        change(Scope.SUBSCRIPTION, "n" * 300, Measure.CLOSING_LAG, 48_000, 0, 0, 0, 0, 0, 0, 0),
        change(Scope.TOPIC, "prices.us", Measure.DELIVERIES, 54_321, *[110_000 + day for day in range(7)]),
        change(Scope.TOPIC, "metrics.host.cpu", Measure.DELIVERIES, 903, *[None] * 7),
    )


def _measures(day: date, deliveries: int | None) -> DayMeasures:
    is_empty = deliveries is None
    return DayMeasures(
        date=day,
        deliveries=deliveries,
        redelivery_rate=None if is_empty else 0.0123,
        dead=None if is_empty else 11,
        p99_to_ack_s=None if is_empty else 0.84,
        closing_lag_messages=None if is_empty else 40,
    )


def _point(hour_utc: int, lag: int) -> BacklogPoint:
    return BacklogPoint(
        hour_utc=hour_utc, lag_messages=lag, lag_s=lag / 10, in_flight=min(lag, 100), waiting=0, pinned_bytes=lag * 700
    )


def _reading(topic: str, subscription: str) -> Reading:
    return Reading(topic=topic, subscription=subscription)
