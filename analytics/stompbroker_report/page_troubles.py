"""The part of a report's page about problems: dead letters, slow subscribers, backlog, reasons.

Pure functions from content to HTML. A table says how many rows it omits, and a sentence replaces an empty one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from markupsafe import Markup

from stompbroker_report import plots
from stompbroker_report.page_parts import (
    NOTHING,
    beside,
    name,
    names,
    numbers,
    panel,
    picture,
    quoted,
    sentence,
    table,
    texts,
    to_the_second,
)
from stompbroker_report.readable_numbers import UNKNOWN, count, duration, size

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import date, datetime

    from stompbroker_report.content import Backlog, Reading, ReportContent

#: Rows of a table on the page; `report.json` has more, and the marts have all.
MAX_ROWS: Final = 20
MAX_LATEST: Final = 6


def dead_letters(content: ReportContent) -> Iterator[Markup]:
    dead = content.dead_letters
    if not dead.deliveries:
        yield panel("None", sentence("No delivery used up its attempts."))
        return
    columns = (*names("subscription and topic"), *texts("reason"), *numbers("dead letters", "first", "last"))
    groups = dead.groups[:MAX_ROWS]
    rows = [
        (
            _reading(group.reading),
            quoted(group.reason),
            count(group.deliveries),
            f"{group.first_at:%H:%M:%S}",
            f"{group.last_at:%H:%M:%S}",
        )
        for group in groups
    ]
    left_out = dead.deliveries - sum(group.deliveries for group in groups)
    rest = (f"{count(dead.total_groups - len(groups))} more", "", count(left_out), "", "") if left_out else ()
    yield panel(f"By subscriber and reason: {count(dead.deliveries)}", table(columns, rows, rest=rest))
    yield _latest(content)


def _latest(content: ReportContent) -> Markup:
    columns = (*names("message id"), *texts("for"), *numbers("times sent", "published", "died"))
    rows = [
        (
            UNKNOWN if letter.message_id is None else Markup("<code>{}</code>").format(name(letter.message_id)),
            _reading(letter.reading),
            count(letter.attempts),
            UNKNOWN if letter.published_at is None else _time_or_date(letter.published_at, content.head.date),
            f"{letter.settled_at:%H:%M:%S}",
        )
        for letter in content.dead_letters.latest[:MAX_LATEST]
    ]
    hint = Markup(
        '<p class="muted small"><code>stompbroker trace MESSAGE-ID</code> says what a running broker knows of one.</p>'
    )
    return panel("The latest", table(columns, rows), hint)


def slowest(content: ReportContent) -> Markup:
    columns = (*names("subscription"), *numbers("acks", "p50", "p95", "p99", "max"))
    rows = [
        (
            name(one.subscription),
            count(one.time_to_ack.deliveries),
            duration(one.time_to_ack.p50_s),
            duration(one.time_to_ack.p95_s),
            duration(one.time_to_ack.p99_s),
            duration(one.time_to_ack.max_s),
        )
        for one in content.slowest
    ]
    if not rows:
        return panel("Time to ack", sentence("No subscription acknowledged enough to be ranked."))
    drawn = picture(
        "Time to ack, the slowest first", plots.time_to_ack(content.slowest), otherwise="All of it took no time at all."
    )
    return beside(drawn, panel("The same in numbers", table(columns, rows)))


def backlog(content: ReportContent) -> Markup:
    kept = content.backlog
    drawn = picture(
        "Unsettled messages over the day",
        plots.backlog_over_the_day(kept),
        otherwise="There is no snapshot of this day: it had no durable subscription, or no broker ran.",
    )
    if kept.unsettled_at is None:
        return drawn
    when = "at the end of the day" if kept.is_closing else f"at {to_the_second(kept.unsettled_at)}, the last snapshot"
    return beside(drawn, panel(f"Left unsettled {when}", _unsettled(kept)))


def _unsettled(kept: Backlog) -> Markup:
    if not kept.unsettled:
        return sentence("Nothing: every durable subscription had caught up.")
    shown = kept.unsettled[:MAX_ROWS]
    left_out = kept.other_lag_messages + sum(one.lag_messages for one in kept.unsettled[MAX_ROWS:])
    missing = kept.total_unsettled_readings - len(shown)
    rest = (f"{count(missing)} more", count(left_out), "", "", "", "") if missing else ()
    columns = (*names("subscription and topic"), *numbers("messages", "oldest", "in flight", "waiting", "kept for it"))
    rows = [
        (
            _reading(one.reading),
            count(one.lag_messages),
            duration(one.lag_s),
            count(one.in_flight),
            count(one.waiting),
            size(one.pinned_bytes),
        )
        for one in shown
    ]
    return table(columns, rows, rest=rest)


def reasons(content: ReportContent) -> Markup:
    if not content.reasons:
        return NOTHING
    columns = (*names("reason"), *numbers("deliveries", "NACKs", "dead"), *texts("most in"))
    rows = [
        (
            Markup('<span class="muted">all other reasons</span>') if one.reason is None else quoted(one.reason),
            count(one.deliveries),
            count(one.nacks),
            count(one.dead),
            UNKNOWN if one.most_in is None else _reading(one.most_in),
        )
        for one in content.reasons
    ]
    return panel("Why deliveries failed, by their last reason", table(columns, rows))


def _reading(reading: Reading) -> Markup:
    return Markup('{} <span class="muted">of {}</span>').format(name(reading.subscription), name(reading.topic))


def _time_or_date(instant: datetime, day: date) -> str:
    """Only the time if it was on the day of the report."""
    return f"{instant:%H:%M:%S}" if instant.date() == day else to_the_second(instant)
