"""`stompbroker report`: what became of a day's deliveries, as a page, as data and as tables.

Law: reads what is asked for, has a running broker export what it still holds, and leaves the rest to
`stompbroker_report`, which is there only with the extra. Every way in which there is no report is a sentence and an
exit code of its own.
"""

import sys
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Annotated

import typer

from stompbroker.cli.options import ConfigOption

__all__ = ["report"]

#: Dates of one run. All of them go through Spark in one pass.
MAX_DATES = 366

#: What the extra brings, by the names under which it is imported.
_EXTRA = ("pyspark", "matplotlib", "markupsafe")


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

    settings = load(config, flags={} if data is None else {"data": data})
    source = settings.lake_place if lake is None else lake
    target = out if out is not None else "." if lake is not None else str(settings.data)

    if nightly:
        from stompbroker.cli.nightly import report_every_night

        arguments = [argument for argument in sys.argv[1:] if argument != "--nightly"]
        report_every_night(arguments, starts_at, target)
        return

    from stompbroker.cli.report_run import ask_for_export, delete_old, make_report

    if lake is None:
        ask_for_export(settings.data)
        keep = keep or settings.lake_retention_days
    if keep is not None:
        delete_old(target, datetime.now(UTC).date() - timedelta(days=keep))
    first_date, last_date = dates or (_yesterday(), _yesterday())
    make_report(source, target, first_date, last_date, master=master, memory=memory)


def _yesterday() -> date:
    return datetime.now(UTC).date() - timedelta(days=1)


def _read_dates(day: str | None, first: str | None, last: str | None) -> tuple[date, date] | None:
    """The first and the last date; None where none is named."""
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

    from stompbroker.errors import OperatorError

    missing = [name for name in _EXTRA if find_spec(name) is None]
    if missing:
        raise OperatorError(
            f"The report needs {' and '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed: "
            "pip install 'stompbroker[analytics]'"
        )
