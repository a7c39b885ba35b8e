"""`stompbroker report`: what became of a day's deliveries, as a page, as data and as tables.

Law: `stompbroker_report` computes, and is there only with the extra; this file reads the arguments, has what
is settled exported first, and shows progress on stderr and results on stdout. Each failure has an exit code of its own.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stompbroker.cli.ledger import bring_to_lake
from stompbroker.cli.options import ConfigOption, DatabaseOption
from stompbroker.cli.outcome import ExitCode, sentences
from stompbroker.cli.terminal import open_console, say
from stompbroker.cli.wording import counted
from stompbroker.errors import OperatorError

if TYPE_CHECKING:
    from stompbroker.config import Settings
    from stompbroker_report.making import ShowStep

#: Dates of one run. All of them go through Spark in one pass.
MAX_DATES = 366
#: The modules that the extra installs.
_EXTRA = ("pyspark", "matplotlib", "markupsafe")


def report(
    day: Annotated[
        str | None, typer.Option("--date", metavar="DATE", help="YYYY-MM-DD, in UTC.", show_default="yesterday")
    ] = None,
    first: Annotated[
        str | None, typer.Option("--from", metavar="DATE", help="First of several dates, one page each.")
    ] = None,
    last: Annotated[
        str | None, typer.Option("--to", metavar="DATE", help="Last of them.", show_default="yesterday")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Data directory of a broker; what it has not yet exported is exported first.",
            show_default="from the settings, ./data",
        ),
    ] = None,
    database: DatabaseOption = None,
    lake: Annotated[
        str | None, typer.Option(metavar="PATH", help="A lake without its broker: a directory, or an address as s3://…")
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Where reports/ and marts/ are written.",
            show_default="the data directory; with --lake the working directory",
        ),
    ] = None,
    master: Annotated[
        str, typer.Option(metavar="MASTER", help="Where Spark runs: local[2], or spark://HOST:PORT.")
    ] = "local[*]",
    memory: Annotated[str, typer.Option(metavar="SIZE", help="Memory of Spark's driver, as 2g or 800m.")] = "2g",
    keep: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=36_500,
            metavar="DAYS",
            help="Delete reports and marts of dates that are older.",
            show_default="lake_retention_days of the settings; with --lake nothing is deleted",
        ),
    ] = None,
    class_cache: Annotated[
        bool,
        typer.Option(
            "--class-cache/--no-class-cache",
            help="Have the first report make a cache of 210 MB, with which Java starts sooner.",
        ),
    ] = True,
    nightly: Annotated[
        bool, typer.Option("--nightly", help="Go on running, and report each night on the day before.")
    ] = False,
    at: Annotated[str, typer.Option(metavar="HH:MM", help="With --nightly, when, in UTC.")] = "00:15",
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
    if (data, database) != (None, None) and lake is not None:
        raise typer.BadParameter("name the broker's directory or a lake, not both", param_hint="--lake")
    if nightly and (day, first, last) != (None, None, None):
        raise typer.BadParameter("reports on the day before each time, so it takes no dates", param_hint="--nightly")
    _require_extra()

    from stompbroker.config import load

    settings = load(config, flags={"data": data, "database": database})
    source = settings.lake_place if lake is None else lake
    target = out if out is not None else "." if lake is not None else str(settings.data)

    if nightly:
        from stompbroker_report.nightly import report_every_night

        arguments = [argument for argument in sys.argv[1:] if argument != "--nightly"]
        report_every_night([sys.executable, "-m", "stompbroker", *arguments], starts_at, target, _note)
    if lake is None:
        _export(settings)
        keep = keep or settings.lake_retention_days
    if keep is not None:
        _delete_before(target, datetime.now(UTC).date() - timedelta(days=keep))
    first_date, last_date = dates or (_yesterday(), _yesterday())
    _make_report(source, target, first_date, last_date, master=master, memory=memory, has_class_cache=class_cache)


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


def _export(settings: "Settings") -> None:
    """Bring to the lake what is settled, by the broker if it runs. A failure is shown and does not stop the report."""
    import trio

    try:
        trio.run(bring_to_lake, settings, lambda step: _note(step, mark="…"))
    except* OperatorError as group:
        for sentence in sentences(group):
            _note(f"{sentence.rstrip('.')}. The report has what is in the lake already.")
    except* KeyboardInterrupt:
        raise typer.Exit(ExitCode.INTERRUPTED) from None


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


def _make_report(
    lake: str, out: str, first: date, last: date, *, master: str, memory: str, has_class_cache: bool
) -> None:
    """Compute and write the reports of these dates. A failure ends the program with its exit code."""
    from stompbroker_report.__main__ import EXIT_CODES
    from stompbroker_report.class_cache import class_cache
    from stompbroker_report.errors import ReportError
    from stompbroker_report.making import make_reports, reservation, summary

    with class_cache(lambda step: _note(step, mark="…"), is_wanted=has_class_cache) as cache:
        try:
            with _progress() as show:
                contents = make_reports(
                    lake, out, first, last, master=master, memory=memory, class_cache=cache, show=show
                )
        except ReportError as error:
            _note(str(error))
            raise typer.Exit(EXIT_CODES.get(error.cause, ExitCode.FAILED)) from None
        except KeyboardInterrupt:
            raise typer.Exit(ExitCode.INTERRUPTED) from None
        for content in contents:
            say(*summary(content, out))
            if (incomplete := reservation(content)) is not None:
                _note(incomplete)
        if len(contents) > 1:
            say(f"All of them: {out.rstrip('/')}/reports/index.html")


@contextmanager
def _progress() -> "Iterator[ShowStep]":
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


def _note(text: str, *, mark: str = "stompbroker:") -> None:
    say(f"{mark} {text}", err=True)
