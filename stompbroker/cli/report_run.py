"""One run of the report, seen from a terminal: the export before it, its steps, and what came of it.

Law: shows and translates; what is computed is `stompbroker_report`'s. Progress goes to stderr, where the pages lie to
stdout. What stops a report is a sentence and the exit code that belongs to it.
"""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, final

import typer

from stompbroker.cli.outcome import ExitCode
from stompbroker.cli.terminal import open_console, say
from stompbroker.cli.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import date
    from pathlib import Path

    from rich.progress import Progress

    from stompbroker_report.content import ReportContent

__all__ = ["ask_for_export", "delete_old", "make_report"]


def ask_for_export(data: Path) -> None:
    """Have the broker with this data directory write to the lake what it still holds. Without one, says so."""
    from functools import partial

    import trio

    from stompbroker.cli.control_client import EXPORT_TIMEOUT_S, ControlRefused, NoBroker, ask_broker

    try:
        trio.run(partial(ask_broker, data, "export_ledger", timeout_s=EXPORT_TIMEOUT_S))
    except NoBroker as error:
        _note(f"{error} The report has what is in the lake already.")
    except ControlRefused as error:
        _note(f"{error}. The report has what is in the lake already.")


def delete_old(out: str, first_kept: date) -> None:
    """Delete results of dates before that one. What cannot be deleted is said, and no reason not to report."""
    from stompbroker_report.errors import ReportError
    from stompbroker_report.sinks import delete_before

    try:
        deleted = delete_before(out, first_kept)
    except ReportError as error:
        _note(str(error))
        return
    if deleted:
        _note(f"deleted the results of {counted(len(deleted), 'date')} before {first_kept}", mark="…")


def make_report(lake: str, out: str, first: date, last: date, *, master: str, memory: str) -> None:
    """Compute and write the reports of these dates. Ends the program with an exit code if there are none."""
    from stompbroker_report.__main__ import EXIT_CODES
    from stompbroker_report.errors import ReportError

    try:
        contents = _computed(lake, out, first, last, master=master, memory=memory)
    except ReportError as error:
        _note(str(error))
        raise typer.Exit(EXIT_CODES.get(error.cause, ExitCode.FAILED)) from None
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    for content in contents:
        say(*_said(content, out))
        if not content.head.is_complete:
            _note(f"{content.head.date} is not complete: {_completeness(content)}")
    if len(contents) > 1:
        say(f"All of them: {out.rstrip('/')}/reports/index.html")


def _computed(lake: str, out: str, first: date, last: date, *, master: str, memory: str) -> list[ReportContent]:
    from stompbroker_report.lake import open_lake
    from stompbroker_report.session import spark_session

    # Spark takes seconds to start; that there is nothing to read can be said at once.
    days = (last - first).days + 1
    open_lake(lake).require([first + timedelta(days=day) for day in range(days)])
    with _progress() as progress:
        progress.begin("starting Spark")
        with spark_session(master, memory=memory) as spark:
            from stompbroker_report.job import STEPS, ReportRequest, run  # it needs what the session has looked for

            progress.expect(len(STEPS))
            request = ReportRequest(
                lake=lake, out=out, first_date=first, last_date=last, generated_at=datetime.now(UTC)
            )
            return run(spark, request, on_step=progress.begin)


@final
class _Steps:
    """What is being done: a bar on a terminal, lines elsewhere.

    The bar moves while Spark starts, which takes as long as it takes, and grows from step to step after that.
    """

    def __init__(self, bar: Progress | None) -> None:
        self._bar = bar
        self._task = None if bar is None else bar.add_task("", total=None)
        self._done = -1

    def expect(self, steps: int) -> None:
        """So many are still to come."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, total=steps)

    def begin(self, step: str) -> None:
        if self._bar is None or self._task is None:
            _note(step, mark="…")
        else:
            self._bar.update(self._task, completed=max(self._done, 0), description=step)
            self._done += 1


@contextmanager
def _progress() -> Iterator[_Steps]:
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = open_console(err=True)
    if not console.is_terminal:
        yield _Steps(None)
        return
    columns = (TimeElapsedColumn(), BarColumn(bar_width=30), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=console, transient=True) as progress:
        yield _Steps(progress)


def _said(content: ReportContent, out: str) -> Iterator[str]:
    head = content.head
    facts = [
        f"{content.day.deliveries:,} deliveries" if content.day.deliveries != 1 else "1 delivery",
        counted(content.day.outcomes.dead, "dead letter"),
        "1 thing stands out" if content.total_changes == 1 else f"{content.total_changes:,} things stand out",
    ]
    yield f"{head.date}: {', '.join(facts)}"
    yield f"  {out.rstrip('/')}/reports/dt={head.date}/report.html"


def _completeness(content: ReportContent) -> str:
    until = content.head.complete_until
    if until is None:
        return "the lake does not say up to when everything is in it."
    return f"the lake has everything up to {until:%Y-%m-%d %H:%M:%S} UTC."


def _note(text: str, *, mark: str = "stompbroker:") -> None:
    say(f"{mark} {text}", err=True)
