"""Makes the reports of some dates, and says in a few lines what is in each; for both programs."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from importlib import import_module
from threading import Thread
from typing import TYPE_CHECKING

from stompbroker_report.lake import open_lake
from stompbroker_report.measures import earlier_dates
from stompbroker_report.session import spark_session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from stompbroker_report.class_cache import ClassCache
    from stompbroker_report.content import ReportContent

    #: Told which step begins, and how many of how many are done, where that is known.
    ShowStep = Callable[[str, int, int | None], None]


def make_reports(
    lake: str,
    out: str,
    first: date,
    last: date,
    *,
    master: str,
    memory: str,
    class_cache: ClassCache | None,
    show: ShowStep,
) -> list[ReportContent]:
    """Raises ReportError."""
    dates = [first + timedelta(days=day) for day in range((last - first).days + 1)]
    # Before Spark, which takes seconds to start: an empty lake can be reported at once.
    found = open_lake(lake)
    found.require(dates)
    lake_bytes = sum(found.bytes_by_date[day] for day in {*dates, *earlier_dates(first)} & found.bytes_by_date.keys())
    # Plots take a second to load, in which Java starts.
    Thread(target=import_module, args=("stompbroker_report.page",), daemon=True).start()
    show("starting Spark", 0, None)
    with spark_session(master, memory=memory, lake_bytes=lake_bytes, class_cache=class_cache) as spark:
        # Imported here: it needs the Spark that the session has found.
        from stompbroker_report.job import STEPS, ReportRequest, run

        request = ReportRequest(lake=lake, out=out, first_date=first, last_date=last, generated_at=datetime.now(UTC))
        return run(spark, request, on_step=lambda step: show(step, STEPS.index(step), len(STEPS)))


def summary(content: ReportContent, out: str) -> Iterator[str]:
    """What stands in one report, and where it is."""
    day, changes = content.day, content.total_changes
    facts = [
        "1 delivery" if day.deliveries == 1 else f"{day.deliveries:,} deliveries",
        "1 dead letter" if day.outcomes.dead == 1 else f"{day.outcomes.dead:,} dead letters",
        "1 thing stands out" if changes == 1 else f"{changes:,} things stand out",
    ]
    yield f"{content.head.date}: {', '.join(facts)}"
    yield f"  {out.rstrip('/')}/reports/dt={content.head.date}/report.html"


def reservation(content: ReportContent) -> str | None:
    """A sentence if something of the date is still missing."""
    head = content.head
    if head.is_complete:
        return None
    if head.complete_until is None:
        return f"{head.date} is not complete: the lake does not say up to when everything is in it."
    until = f"{head.complete_until:%Y-%m-%d %H:%M:%S} UTC"
    return f"{head.date} is not complete: the lake has everything up to {until}."
