"""`stompbroker report`: what became of a day's deliveries, as a page, as data and as tables.

Law: `stompbroker_report` computes, and is there only with the extra; this file reads the arguments, has a running
broker export first, and shows progress on stderr and results on stdout. Each failure has an exit code of its own.
"""

import signal
import subprocess
import sys
import time as machine_time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn, TypeAlias

import typer

from stompbroker.cli.options import ConfigOption
from stompbroker.cli.outcome import ExitCode
from stompbroker.cli.terminal import complain, open_console, say
from stompbroker.cli.wording import counted
from stompbroker.errors import OperatorError

if TYPE_CHECKING:
    from stompbroker_report.content import ReportContent

#: Dates of one run. All of them go through Spark in one pass.
MAX_DATES = 366

#: With --nightly, the longest time between two looks at the clock, in seconds: machines sleep and clocks are set.
LOOK_S = 60.0

#: The modules that the extra installs.
_EXTRA = ("pyspark", "matplotlib", "markupsafe")

#: Told which step begins, and how many of how many are done, where that is known.
ShowStep: TypeAlias = Callable[[str, int, int | None], None]


DayOption = Annotated[
    str | None, typer.Option("--date", metavar="DATE", help="YYYY-MM-DD, in UTC.", show_default="yesterday")
]
FirstOption = Annotated[
    str | None, typer.Option("--from", metavar="DATE", help="First of several dates, one page each.")
]
LastOption = Annotated[str | None, typer.Option("--to", metavar="DATE", help="Last of them.", show_default="yesterday")]
BrokerOption = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="Data directory of a broker, which is asked to export first.",
        show_default="from the settings, ./data",
    ),
]
LakeOption = Annotated[
    str | None,
    typer.Option("--lake", metavar="PATH", help="A lake without its broker: a directory, or an address as s3://…"),
]
OutOption = Annotated[
    str | None,
    typer.Option(
        "--out",
        metavar="DIR",
        help="Where reports/ and marts/ are written.",
        show_default="the data directory; with --lake the working directory",
    ),
]
MasterOption = Annotated[
    str, typer.Option("--master", metavar="MASTER", help="Where Spark runs: local[2], or spark://HOST:PORT.")
]
MemoryOption = Annotated[str, typer.Option("--memory", metavar="SIZE", help="Memory of Spark's driver, as 2g or 800m.")]
KeepOption = Annotated[
    int | None,
    typer.Option(
        "--keep",
        min=1,
        max=36_500,
        metavar="DAYS",
        help="Delete reports and marts of dates that are older.",
        show_default="lake_retention_days of the settings; with --lake nothing is deleted",
    ),
]
NightlyOption = Annotated[
    bool, typer.Option("--nightly", help="Go on running, and report each night on the day before.")
]
AtOption = Annotated[str, typer.Option("--at", metavar="HH:MM", help="With --nightly, when, in UTC.")]


def report(
    day: DayOption = None,
    first: FirstOption = None,
    last: LastOption = None,
    data: BrokerOption = None,
    lake: LakeOption = None,
    out: OutOption = None,
    master: MasterOption = "local[*]",
    memory: MemoryOption = "2g",
    keep: KeepOption = None,
    nightly: NightlyOption = False,
    at: AtOption = "00:15",
    config: ConfigOption = None,
) -> None:
    """Report what became of every delivery that was settled on a day.

    Needs Spark: pip install 'stompbroker\\[analytics]'. Exit codes: 1 it failed, 2 arguments, settings or extra,
    3 the lake is empty, 4 the lake has nothing of that date, 5 a file in it is torn or foreign.

    Examples:

    $ stompbroker report
    $ stompbroker report --date 2026-11-15 --data /var/lib/stompbroker
    $ stompbroker report --from 2026-11-01 --to 2026-11-15 --lake s3://bucket/lake --out /srv/reports
    $ stompbroker report --nightly --at 00:15 --master spark://spark-master:7077
    """
    dates = _read_dates(day, first, last)
    starts_at = _read_time(at)
    if data is not None and lake is not None:
        raise typer.BadParameter("name the broker's directory or a lake, not both", param_hint="--lake")
    if nightly and (day, first, last) != (None, None, None):
        raise typer.BadParameter("reports on the day before each time, so it takes no dates", param_hint="--nightly")
    _require_extra()

    from stompbroker.config import load

    settings = load(config, flags={"data": data})
    source = settings.lake_place if lake is None else lake
    target = out if out is not None else "." if lake is not None else str(settings.data)

    if nightly:
        _report_every_night([argument for argument in sys.argv[1:] if argument != "--nightly"], starts_at, target)
    if lake is None:
        _export(settings.data)
        keep = keep or settings.lake_retention_days
    if keep is not None:
        _delete_before(target, datetime.now(UTC).date() - timedelta(days=keep))
    first_date, last_date = dates or (_yesterday(), _yesterday())
    _make_report(source, target, first_date, last_date, master=master, memory=memory)


def _yesterday() -> date:
    return datetime.now(UTC).date() - timedelta(days=1)


def _read_dates(day: str | None, first: str | None, last: str | None) -> tuple[date, date] | None:
    """The first and the last date; None if no date is given."""
    if day is not None:
        if first is not None or last is not None:
            raise typer.BadParameter("name one date, or the first and the last", param_hint="--date")
        only = _read_date(day, "--date")
        return only, only
    if first is None:
        if last is not None:
            raise typer.BadParameter("needs --from", param_hint="--to")
        return None
    begin = _read_date(first, "--from")
    end = _yesterday() if last is None else _read_date(last, "--to")
    if begin > end:
        raise typer.BadParameter(f"{begin} is later than {end}", param_hint="--from")
    if (end - begin).days >= MAX_DATES:
        raise typer.BadParameter(f"{begin} to {end} are more than {MAX_DATES} dates", param_hint="--from")
    return begin, end


def _read_date(text: str, parameter: str) -> date:
    try:
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).date()
    except ValueError:
        raise typer.BadParameter(f'"{text}" is not a date such as 2026-11-15', param_hint=parameter) from None


def _read_time(text: str) -> time:
    try:
        return datetime.strptime(text, "%H:%M").replace(tzinfo=UTC).time()
    except ValueError:
        raise typer.BadParameter(f'"{text}" is not a time such as 00:15', param_hint="--at") from None


def _require_extra() -> None:
    from importlib.util import find_spec

    missing = [name for name in _EXTRA if find_spec(name) is None]
    if missing:
        raise OperatorError(
            f"The report needs {' and '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed: "
            "pip install 'stompbroker[analytics]'"
        )


# One run -------------------------------------------------------------------------------------------------------------


def _export(data: Path) -> None:
    """Have the broker with this data directory export to the lake what it still holds."""
    import trio

    from stompbroker.cli.control_client import ControlRefused, NoBroker, ask

    try:
        trio.run(ask, data, "export_ledger")
    except (NoBroker, ControlRefused) as error:
        _note(f"{str(error).rstrip('.')}. The report has what is in the lake already.")


def _delete_before(out: str, first_kept: date) -> None:
    """Delete results of earlier dates. A failure to delete is shown and does not stop the report."""
    from stompbroker_report.errors import ReportError
    from stompbroker_report.sinks import delete_before

    try:
        deleted = delete_before(out, first_kept)
    except ReportError as error:
        _note(str(error))
        return
    if deleted:
        _note(f"deleted the results of {counted(len(deleted), 'date')} before {first_kept}", mark="…")


def _make_report(lake: str, out: str, first: date, last: date, *, master: str, memory: str) -> None:
    """Compute and write the reports of these dates. A failure ends the program with its exit code."""
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


def _computed(lake: str, out: str, first: date, last: date, *, master: str, memory: str) -> "list[ReportContent]":
    from stompbroker_report.lake import open_lake
    from stompbroker_report.session import spark_session

    # Before Spark, which takes seconds to start: an empty lake can be reported at once.
    days = (last - first).days + 1
    open_lake(lake).require([first + timedelta(days=day) for day in range(days)])
    with _progress() as show:
        show("starting Spark", 0, None)
        with spark_session(master, memory=memory) as spark:
            # Imported here: it needs the Spark that the session has found.
            from stompbroker_report.job import STEPS, ReportRequest, run

            request = ReportRequest(
                lake=lake, out=out, first_date=first, last_date=last, generated_at=datetime.now(UTC)
            )
            return run(spark, request, on_step=lambda step: show(step, STEPS.index(step), len(STEPS)))


@contextmanager
def _progress() -> Iterator[ShowStep]:
    """A bar on a terminal, lines elsewhere."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = open_console(err=True)
    if not console.is_terminal:
        yield lambda step, _done, _total: _note(step, mark="…")
        return
    columns = (TimeElapsedColumn(), BarColumn(bar_width=30), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda step, done, total: bar.update(task, description=step, completed=done, total=total)


def _said(content: "ReportContent", out: str) -> Iterator[str]:
    head = content.head
    facts = [
        f"{content.day.deliveries:,} deliveries" if content.day.deliveries != 1 else "1 delivery",
        counted(content.day.outcomes.dead, "dead letter"),
        "1 thing stands out" if content.total_changes == 1 else f"{content.total_changes:,} things stand out",
    ]
    yield f"{head.date}: {', '.join(facts)}"
    yield f"  {out.rstrip('/')}/reports/dt={head.date}/report.html"


def _completeness(content: "ReportContent") -> str:
    until = content.head.complete_until
    if until is None:
        return "the lake does not say up to when everything is in it."
    return f"the lake has everything up to {until:%Y-%m-%d %H:%M:%S} UTC."


def _note(text: str, *, mark: str = "stompbroker:") -> None:
    say(f"{mark} {text}", err=True)


# Every night ---------------------------------------------------------------------------------------------------------


def _report_every_night(arguments: Sequence[str], at: time, out: str) -> NoReturn:
    """Run `stompbroker` with these arguments each day at that time in UTC, until SIGTERM or Ctrl-C.

    If that time has passed today and yesterday's report is missing, because the machine was off, run it at once too.
    Each run is a process of its own: nothing of Spark stays in memory, and a failure does not touch the next night.
    """
    # The first process of a container gets only the signals that it handles.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        now = datetime.now(UTC)
        if now.time() >= at and not has_report_of(now - timedelta(days=1), out):
            _report_once(arguments)
        while True:
            due = next_start(datetime.now(UTC), at)
            say(f"The next report is made at {due:%Y-%m-%d %H:%M} UTC.", err=True)
            _wait_until(due)
            _report_once(arguments)
    except KeyboardInterrupt:
        sys.exit(0)


def next_start(now: datetime, at: time) -> datetime:
    """The first instant after `now` at that time of the day."""
    today = datetime.combine(now.date(), at, UTC)
    return today if today > now else today + timedelta(days=1)


def has_report_of(day: datetime, out: str) -> bool:
    """Whether the report exists. For an object store, which is not asked, the answer is yes."""
    return "://" in out or (Path(out) / "reports" / f"dt={day:%Y-%m-%d}" / "report.html").exists()


def _wait_until(due: datetime) -> None:
    while (left_s := (due - datetime.now(UTC)).total_seconds()) > 0:
        machine_time.sleep(min(left_s, LOOK_S))


def _report_once(arguments: Sequence[str]) -> None:
    done = subprocess.run([sys.executable, "-m", "stompbroker", *arguments], check=False)
    if done.returncode:
        complain(f"There is no report tonight (exit code {done.returncode}).")
