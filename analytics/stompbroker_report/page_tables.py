"""The part of a report's page to look things up in: hours, outcomes, topics, subscriptions, earlier days.

Law: pure; from the content to HTML. A table has the rows with most deliveries, and says how many it leaves out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from markupsafe import Markup

from stompbroker_report import plots
from stompbroker_report.measures import MEASURES
from stompbroker_report.page_parts import (
    NOTHING,
    Column,
    beside,
    chip,
    name,
    panel,
    picture,
    sentence,
    side_by_side,
    table,
)
from stompbroker_report.palette import OUTCOMES
from stompbroker_report.readable_numbers import UNKNOWN, count, duration, share, size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stompbroker_report.content import (
        DayMeasures,
        Figures,
        ReadingFigures,
        ReportContent,
        SubscriptionFigures,
        Table,
        TopicFigures,
    )

__all__ = ["endings", "history", "hours", "readings", "subscriptions", "topics"]

#: Rows of a table that a person looks at. `report.json` has more, and the marts have all.
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
        (Column(title="outcome", is_number=False, is_name=True), Column(title="deliveries"), Column(title="share")),
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


_FIGURES: Final = (
    Column(title="deliveries"),
    Column(title="acked or sent"),
    Column(title="dead"),
    Column(title="ended otherwise"),
    Column(title="redelivered"),
    Column(title="first send p50"),
    Column(title="first send p99"),
    Column(title="ack p50"),
    Column(title="ack p99"),
    Column(title="bodies"),
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


def topics(content: ReportContent) -> Markup:
    rows = [
        (name(row.topic), count(row.subscriptions), *_figures(row.figures)) for row in content.topics.rows[:MAX_ROWS]
    ]
    columns = (Column(title="topic", is_number=False, is_name=True), Column(title="subscriptions"), *_FIGURES)
    left_out = [row.figures.deliveries for row in content.topics.rows[MAX_ROWS:]]
    return _figures_panel(columns, rows, content.topics, left_out, nouns=("topic", "topics"))


def subscriptions(content: ReportContent) -> Markup:
    rows = [
        (_with_durability(row.subscription, row.is_durable), count(row.topics), *_figures(row.figures))
        for row in content.subscriptions.rows[:MAX_ROWS]
    ]
    columns = (Column(title="subscription", is_number=False, is_name=True), Column(title="topics"), *_FIGURES)
    left_out = [row.figures.deliveries for row in content.subscriptions.rows[MAX_ROWS:]]
    return _figures_panel(columns, rows, content.subscriptions, left_out, nouns=("subscription", "subscriptions"))


def readings(content: ReportContent) -> Markup:
    rows = [
        (name(row.reading.topic), name(row.reading.subscription), *_figures(row.figures))
        for row in content.readings.rows[:MAX_ROWS]
    ]
    columns = (
        Column(title="topic", is_number=False, is_name=True),
        Column(title="subscription", is_number=False, is_name=True),
        *_FIGURES,
    )
    left_out = [row.figures.deliveries for row in content.readings.rows[MAX_ROWS:]]
    return _figures_panel(columns, rows, content.readings, left_out, nouns=("pair", "pairs"))


def _figures_panel(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str | Markup]],
    source: Table[TopicFigures] | Table[SubscriptionFigures] | Table[ReadingFigures],
    left_out: Sequence[int],
    *,
    nouns: tuple[str, str],
) -> Markup:
    if not rows:
        return panel("None", sentence("Nothing was settled on this day."))
    missing = source.total_rows - len(rows)
    noun = nouns[source.total_rows > 1]
    title = f"The {count(len(rows))} with most deliveries, of " if missing else ""
    title += f"{count(source.total_rows)} {noun}"
    deliveries = sum(left_out) + (source.other.deliveries if source.other else 0)
    more = (
        sentence(f"The other {count(missing)} have {count(deliveries)} deliveries; the marts have all.")
        if missing
        else NOTHING
    )
    return panel(title, table(columns, rows), more)


def history(history: Sequence[DayMeasures]) -> Markup:
    columns = (
        Column(title="date", is_number=False, is_name=True),
        *(Column(title=called) for called, _ in MEASURES.values()),
    )
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
