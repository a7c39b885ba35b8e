"""`report.html`: what became of a day's deliveries, on one page; and the list of all such pages.

Pure functions from content to a page that needs no script, no other file and no network. First come completeness, key
numbers, changes, dead letters, slow subscribers and backlog; then plots and tables to look things up in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from stompbroker_report import page_summary, page_tables, page_troubles
from stompbroker_report.page_parts import (
    NOTHING,
    banner,
    chip,
    document,
    joined,
    name,
    names,
    numbers,
    panel,
    section,
    table,
    to_the_second,
)
from stompbroker_report.readable_numbers import count, duration, share

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from stompbroker_report.content import Head, ReportContent


def page(content: ReportContent) -> str:
    """The report of one date. The same content gives the same bytes."""
    parts = [_head(content.head), *_banners(content), page_summary.tiles(content), *_sections(content)]
    title = f"Deliveries on {content.head.date.isoformat()}"
    return document(title=title, body=joined(filter(None, [*parts, _foot(content.head)])))


def _sections(content: ReportContent) -> Iterator[Markup]:
    yield section("What stands out", page_summary.changes(content))
    if content.day.deliveries:
        yield section("Dead letters", *page_troubles.dead_letters(content))
        yield section("Slowest subscribers", page_troubles.slowest(content))
    # A day without any settled delivery may well have a backlog.
    yield section("Backlog", page_troubles.backlog(content))
    if content.day.deliveries:
        yield section("The day in hours", page_tables.hours(content))
        yield section("How it ended", page_tables.endings(content), page_troubles.reasons(content))
        yield section("Groups and queues", *page_tables.groups(content))
        yield section("Topics", page_tables.topics(content))
        yield section("Subscriptions", page_tables.subscriptions(content))
        yield section("Topic by subscription", page_tables.readings(content))
    yield section("The days before", page_tables.history(content.history))


def index(contents: Iterable[ReportContent]) -> str:
    """The list of all reports, each in `dt=DATE/report.html` beside it; newest first."""
    newest_first = sorted(contents, key=lambda content: content.head.date, reverse=True)
    columns = (
        *names("date"),
        *numbers("stands out", "deliveries", "redelivered", "dead letters", "p99 time to ack", "unsettled at the end"),
    )
    rows = [
        (
            Markup('<a href="dt={0}/report.html">{0}</a> {1}{2}').format(
                content.head.date.isoformat(),
                f"{content.head.date:%a}",
                NOTHING if content.head.is_complete else Markup(" ") + chip("not complete", "warn"),
            ),
            count(content.total_changes),
            count(content.day.deliveries),
            share(content.day.redelivery_rate),
            count(content.day.outcomes.dead),
            duration(content.day.time_to_ack.p99_s),
            count(content.closing_lag),
        )
        for content in newest_first
    ]
    head = Markup("<header><h1>Deliveries, day by day</h1>{}</header>").format(
        Markup('<p class="muted small">A day is a day in UTC, by when a delivery was settled.</p>')
    )
    return document(title="Deliveries, day by day", body=joined([head, panel("Reports", table(columns, rows))]))


def _head(head: Head) -> Markup:
    return Markup("<header>\n<h1>Deliveries on {}</h1>\n{}\n</header>").format(
        f"{head.date:%A}, {head.date.day} {head.date:%B %Y}",
        Markup(
            '<p class="muted small">Settled on that day, all times in UTC. Made {} from <code>{}</code>.</p>'
        ).format(to_the_second(head.generated_at), name(head.lake)),
    )


def _banners(content: ReportContent) -> Iterator[Markup]:
    """Whether the date is complete, and everything else that makes the numbers uncertain."""
    head = content.head
    if head.is_complete:
        yield banner("good", "This date is complete: the report has everything that was settled on it.")
    elif head.complete_until is None:
        yield banner("warn", "It is not known whether this date is complete: the lake does not say until when it is.")
    else:
        yield banner(
            "warn",
            "This date is not complete: only what was settled before "
            f"{to_the_second(head.complete_until)} is certain to be in the report. Make it again later.",
        )
    if head.duplicate_records:
        yield banner(
            "bad",
            f"{count(head.duplicate_records)} records are in the lake more than once, and each copy is counted. "
            "Somebody has copied files within the lake, or it is a bug.",
        )
    if content.day.outcomes.unknown:
        yield banner(
            "warn",
            f"{count(content.day.outcomes.unknown)} deliveries ended in a way that this report does not know: "
            "the broker that wrote them is newer.",
        )


def _foot(head: Head) -> Markup:
    return Markup(
        "<footer>Redelivered: the share of sent deliveries that were sent more than once. Time to ack: from the last "
        "send to the acknowledgement. A dash: not known. The same as data: <code>report.json</code> beside this page, "
        "and the marts of {}.</footer>"
    ).format(head.date.isoformat())
