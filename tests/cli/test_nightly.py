"""When the nightly report starts, and what a night that fails does to the next one."""

from __future__ import annotations

import signal
from datetime import UTC, datetime, time, timedelta
from typing import TYPE_CHECKING

import pytest

from stompbroker_report.nightly import has_report_of, next_start
from tests.support.patience import HARD_TIMEOUT_S

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Program

AT = time(0, 15)


@pytest.mark.parametrize(
    ("now", "due"),
    [
        (datetime(2026, 11, 15, 0, 14, 59, tzinfo=UTC), datetime(2026, 11, 15, 0, 15, tzinfo=UTC)),
        (datetime(2026, 11, 15, 0, 15, tzinfo=UTC), datetime(2026, 11, 16, 0, 15, tzinfo=UTC)),
        (datetime(2026, 12, 31, 23, 59, tzinfo=UTC), datetime(2027, 1, 1, 0, 15, tzinfo=UTC)),
    ],
)
def test_the_next_start_is_the_first_after_now(now: datetime, due: datetime) -> None:
    assert next_start(now, AT) == due


def test_a_report_that_lies_there_is_not_made_again(tmp_path: Path) -> None:
    day = datetime(2026, 11, 15, tzinfo=UTC)
    assert not has_report_of(day, str(tmp_path))

    folder = tmp_path / "reports" / "dt=2026-11-15"
    folder.mkdir(parents=True)
    (folder / "report.html").touch()

    assert has_report_of(day, str(tmp_path))
    assert not has_report_of(day + timedelta(days=1), str(tmp_path))
    assert has_report_of(day, "s3://bucket/reports")


def test_yesterdays_report_is_caught_up_on_and_a_failure_does_not_end_it(program: Program) -> None:
    # 00:00 is over at any time of the day, so what is missing is made at once; of an empty lake there is none.
    with program.start("report", "--nightly", "--at", "00:00", "--lake", "lake") as process:
        assert process.stderr is not None
        lines = [process.stderr.readline() for _ in range(3)]
        process.send_signal(signal.SIGTERM)
        process.wait(HARD_TIMEOUT_S)

    assert lines[0].startswith("stompbroker: There is nothing in the lake lake.")
    assert lines[1] == "stompbroker: There is no report tonight (exit code 3).\n"
    assert lines[2].startswith("stompbroker: The next report is made at ")
    assert lines[2].endswith(" 00:00 UTC.\n")
    assert process.returncode == 0
