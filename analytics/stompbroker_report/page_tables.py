"""The reference part of a report's page: hours, outcomes, topics, subscriptions, earlier days.

Pure functions from content to HTML. A table shows the rows with most deliveries and says how many it omits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from markupsafe import Markup

from stompbroker_report import plots
from stompbroker_report.measures import MEASURES
from stompbroker_report.page_parts import (
    NOTHING,
    beside,
    chip,
    name,
    names,
    numbers,
    panel,
    picture,
    sentence,
    side_by_side,
    table,
)
from stompbroker_report.palette import OUTCOMES
from stompbroker_report.readable_numbers import UNKNOWN, count, duration, share, size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from stompbroker_report.content import Figures, GroupFigures, ReportContent, Table
    from stompbroker_report.measures import DayMeasures
    from stompbroker_report.page_parts import Column

#: Rows of a table on the page; `report.json` has more, and the marts have all.
MAX_ROWS: Final = 20


def hours(content: ReportContent) -> Markup:
    otherwise = "Nothing was settled on this day."
    by_outcome = picture("Deliveries by outcome", plots.deliveries_by_outcome(content.hours), otherwise=otherwise)
    by_topic = picture("Deliveries by topic", plots.deliveries_by_topic(content.topic_hours), otherwise=otherwise)
    return side_by_side(by_outcome, by_topic)


def endings(content: ReportContent) -> Markup:
    day = content.day
    drawn = picture(
        "Times sent", plots.attempts(day.attempts_distribution), otherwise="Nothing was settled on this day."
    )
    by_outcome = [
        (outcome, count(number), share(number / day.deliveries))
        for outcome in OUTCOMES
        if (number := getattr(day.outcomes, outcome))
    ]
    outcomes = table(
        (*names("outcome"), *numbers("deliveries", "share")),
        by_outcome,
    )
    facts = sentence(
        f"{count(day.attempts)} sends and {count(day.nacks)} NACKs for {count(day.sent_deliveries)} deliveries; "
        f"bodies of {size(day.body_bytes)}. From publication to the first send: half within "
        f"{duration(day.time_to_first_delivery.p50_s)}, 99 % within {duration(day.time_to_first_delivery.p99_s)}."
    )
    scaled = (
        sentence(
            f"{count(content.head.weighted_records)} of {count(day.records)} records stand for several deliveries, "
            f"{count(content.head.weighted_deliveries)} together: where the ledger keeps a sample, numbers are scaled."
        )
        if content.head.weighted_records
        else NOTHING
    )
    return beside(drawn, panel("Outcomes", outcomes, facts, scaled))


_FIGURES: Final = numbers(
    "deliveries",
    "acked or sent",
    "dead",
    "ended otherwise",
    "redelivered",
    "first send p50",
    "first send p99",
    "ack p50",
    "ack p99",
    "bodies",
)


def _figures(figures: Figures) -> tuple[str, ...]:
    arrived = figures.outcomes.acked + figures.outcomes.sent
    return (
        count(figures.deliveries),
        share(arrived / figures.deliveries) if figures.deliveries else UNKNOWN,
        count(figures.outcomes.dead),
        count(figures.deliveries - arrived - figures.outcomes.dead),
        share(figures.redelivery_rate),
        duration(figures.time_to_first_delivery.p50_s),
        duration(figures.time_to_first_delivery.p99_s),
        duration(figures.time_to_ack.p50_s),
        duration(figures.time_to_ack.p99_s),
        size(figures.body_bytes),
    )


def groups(content: ReportContent) -> Iterator[Markup]:
    """How evenly members shared; nothing if there were none."""
    found = content.groups
    if not found.rows:
        return
    shown = found.rows[:MAX_ROWS]
    columns = (
        *names("group or queue"),
        *numbers("deliveries", "members", "even share", "busiest had", "least had", "failed", "without a member"),
    )
    rows = [
        (
            name(one.subscription),
            count(one.deliveries),
            count(one.members),
            share(one.even_share_rate),
            share(one.largest_share_rate),
            share(one.least_share_rate),
            count(one.failed),
            count(one.without_member),
        )
        for one in shown
    ]
    missing = found.total_rows - len(shown)
    more = sentence(f"{count(missing)} more have fewer deliveries; the marts have all.") if missing else NOTHING
    meant = sentence(
        "A member counts if it had a delivery: it acknowledged it, was sent it in auto mode, or failed with it last. "
        "Failed: dead letters and discarded ones. Without a member: nobody had it in the end, or the broker that wrote "
        "the record does not name members."
    )
    title = f"{count(found.total_rows)} {'groups and queues' if found.total_rows > 1 else 'group or queue'}"
    yield panel(
        f"The {count(len(shown))} with most deliveries, of {title}" if missing else title,
        table(columns, rows),
        more,
        meant,
    )
    yield side_by_side(*(_members(one) for one in shown if one.busiest))


def _members(group: GroupFigures) -> Markup:
    columns = (*names("member"), *numbers("deliveries", "share", "failed", "redelivered"))
    rows = [
        (
            name(one.member),
            count(one.deliveries),
            share(one.share_rate),
            count(one.failed),
            share(one.redelivered / one.deliveries),
        )
        for one in group.busiest
    ]
    left_out = group.members - len(rows)
    deliveries = group.deliveries - sum(one.deliveries for one in group.busiest)
    rest = (f"{count(left_out)} more", count(deliveries), share(deliveries / group.deliveries), "", "")
    return panel(name(group.subscription), table(columns, rows, rest=rest if left_out else ()))


def topics(content: ReportContent) -> Markup:
    columns = (*names("topic"), *numbers("subscriptions"))
    return _figures_panel(
        content.topics, columns, lambda row: (name(row.topic), count(row.subscriptions)), nouns=("topic", "topics")
    )


def subscriptions(content: ReportContent) -> Markup:
    return _figures_panel(
        content.subscriptions,
        (*names("subscription"), *numbers("topics")),
        lambda row: (_with_durability(row.subscription, row.is_durable), count(row.topics)),
        nouns=("subscription", "subscriptions"),
    )


def readings(content: ReportContent) -> Markup:
    return _figures_panel(
        content.readings,
        names("topic", "subscription"),
        lambda row: (name(row.reading.topic), name(row.reading.subscription)),
        nouns=("pair", "pairs"),
    )


class _HasFigures(Protocol):
    @property
    def figures(self) -> Figures: ...


RowT = TypeVar("RowT", bound=_HasFigures)


def _figures_panel(
    source: Table[RowT],
    columns: Sequence[Column],
    first_cells: Callable[[RowT], tuple[str | Markup, ...]],
    *,
    nouns: tuple[str, str],
) -> Markup:
    """The first rows, each with `first_cells` before its figures, and a sentence about the others."""
    if not source.rows:
        return panel("None", sentence("Nothing was settled on this day."))
    shown, others = source.rows[:MAX_ROWS], source.rows[MAX_ROWS:]
    title = f"{count(source.total_rows)} {nouns[source.total_rows > 1]}"
    more = NOTHING
    if missing := source.total_rows - len(shown):
        title = f"The {count(len(shown))} with most deliveries, of {title}"
        deliveries = sum(row.figures.deliveries for row in others) + (source.other.deliveries if source.other else 0)
        more = sentence(f"The other {count(missing)} have {count(deliveries)} deliveries; the marts have all.")
    cells = [(*first_cells(row), *_figures(row.figures)) for row in shown]
    return panel(title, table((*columns, *_FIGURES), cells), more)


def history(history: Sequence[DayMeasures]) -> Markup:
    columns = (*names("date"), *numbers(*(called for called, _ in MEASURES.values())))
    rows = [
        (
            f"{one.date.isoformat()} {one.date:%a}",
            *(written(getattr(one, measure.value)) for measure, (_, written) in MEASURES.items()),
        )
        for one in reversed(history)
    ]
    return panel("Newest first", table(columns, rows))


def _with_durability(subscription: str, is_durable: bool) -> Markup:
    return name(subscription) if is_durable else name(subscription) + Markup(" ") + chip("transient")
