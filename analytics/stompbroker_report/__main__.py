"""The report as a plain program: `python -m stompbroker_report …` or `spark-submit …/stompbroker_report/__main__.py …`.

Takes arguments, returns an exit code. `stompbroker report` does the same with more comfort.
"""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

if __package__ in (None, ""):
    # Run as a file, Python searches this folder for modules; it has to search the one above.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from stompbroker_report.class_cache import class_cache
from stompbroker_report.errors import Cause, ReportError
from stompbroker_report.session import DEFAULT_MASTER, DEFAULT_MEMORY, require_spark

if TYPE_CHECKING:
    from collections.abc import Sequence

#: 2 is also argparse's code for wrong arguments.
EXIT_CODES = {
    Cause.NO_SPARK: 2,
    Cause.NO_JAVA: 2,
    Cause.NO_LAKE: 3,
    Cause.NO_DATE: 4,
    Cause.UNREADABLE_FILE: 5,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Compute the report that the arguments ask for; returns the exit code."""
    asked = _parser().parse_args(arguments)
    yesterday = datetime.now(UTC).date() - timedelta(days=1)
    first: date = asked.first or asked.date or yesterday
    last: date = asked.last or asked.date or max(first, yesterday)
    try:
        require_spark()
        from stompbroker_report.making import make_reports  # only now: needs pyspark

        with class_cache(_say, is_wanted=asked.class_cache) as cache:
            for content in make_reports(
                asked.lake,
                asked.out,
                first,
                last,
                master=asked.master,
                memory=asked.memory,
                class_cache=cache,
                show=lambda step, _done, _total: _say(step),
            ):
                print(f"{asked.out}/reports/dt={content.head.date}/report.html", flush=True)
    except ReportError as error:
        print(error, file=sys.stderr)
        return EXIT_CODES.get(error.cause, 1)
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="stompbroker_report", description="What became of every delivery.")
    parser.add_argument("--lake", required=True, help="directory or URI that the broker exports to")
    parser.add_argument("--out", required=True, help="directory or URI for marts and reports")
    parser.add_argument("--date", type=date.fromisoformat, help="YYYY-MM-DD, UTC (default: yesterday)")
    parser.add_argument("--from", dest="first", type=date.fromisoformat, help="first date, instead of --date")
    parser.add_argument("--to", dest="last", type=date.fromisoformat, help="last date; with --from")
    parser.add_argument("--master", default=DEFAULT_MASTER, help="local[N] or spark://HOST:PORT (default %(default)s)")
    parser.add_argument("--memory", default=DEFAULT_MEMORY, help="of Spark's driver (default %(default)s)")
    parser.add_argument(
        "--class-cache",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="make and use a cache in the user's cache directory with which Java starts sooner",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
