"""`stompbroker report`: what it is asked, and what it says when there is no report.

A whole run with Spark is in `tests/end_to_end/test_ledger.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import date
from typing import TYPE_CHECKING

import pytest

from stompbroker_report.generate import generate_lake
from tests.cli.scripted_answers import Refused, scripted_answers
from tests.support.patience import SPARK_TIMEOUT_S

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from tests.cli.conftest import Program


DATE = date(2026, 11, 15)


def test_the_help_has_examples_and_says_the_exit_codes(program: Program) -> None:
    done = program.run("report", "--help")

    assert done.returncode == 0
    assert "$ stompbroker report --from 2026-11-01" in done.stdout.split("Examples:")[1]
    assert "pip install 'stompbroker[analytics]'" in done.stdout
    assert "5 a file in it is torn or foreign" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("--date 2026-02-30", '--date: "2026-02-30" is not a date such as 2026-11-15'),
        ("--date yesterday", '--date: "yesterday" is not a date such as 2026-11-15'),
        ("--to 2026-01-01", "--to: needs --from"),
        ("--from 2026-02-01 --to 2026-01-31", "--from: 2026-02-01 is later than 2026-01-31"),
        ("--from 2999-01-01", "--from: 2999-01-01 is later than"),
        ("--from 2020-01-01 --to 2026-01-31", "are more than 366 dates"),
        ("--date 2026-02-01 --from 2026-01-31", "--date: name one date, or the first and the last"),
        ("--data data --lake lake", "--lake: name the broker's directory or a lake, not both"),
        ("--nightly --date 2026-02-01", "--nightly: reports on the day before each time, so it takes no dates"),
        ("--nightly --at 24:00", '--at: "24:00" is not a time such as 00:15'),
    ],
)
def test_arguments_that_make_no_sense_are_a_sentence(program: Program, arguments: str, sentence: str) -> None:
    done = program.run("report", *arguments.split())

    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in " ".join(done.stderr.split())


@pytest.mark.parametrize("missing", ["pyspark", "matplotlib", "markupsafe"])
def test_without_the_extra_it_says_how_to_get_it(program: Program, missing: str) -> None:
    script = f"import sys; sys.modules[{missing!r}] = None; from stompbroker.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script, "report"],
        cwd=program.directory,
        env=program.environment,
        capture_output=True,
        text=True,
        timeout=SPARK_TIMEOUT_S,
        check=False,
    )

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"stompbroker: The report needs {missing}, which is not installed: pip install 'stompbroker[analytics]'\n"
    )


def test_an_empty_lake_is_a_sentence_before_spark_is_started(program: Program) -> None:
    (program.directory / "lake").mkdir()

    for lake in ("lake", "nowhere"):
        done = program.run("report", "--lake", lake)

        assert (done.returncode, done.stdout) == (3, "")
        assert done.stderr.startswith(f"stompbroker: There is nothing in the lake {lake}.")
        assert "starting Spark" not in done.stderr


def test_a_lake_at_an_address_that_cannot_be_is_a_sentence(program: Program) -> None:
    done = program.run("report", "--lake", "gopher://example/lake")

    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("stompbroker: The lake gopher://example/lake cannot be read: ")
    assert done.stderr.count("\n") == 1


def test_without_a_broker_it_says_so_and_goes_on(program: Program) -> None:
    done = program.run("report")

    assert done.returncode == 3
    first, second = done.stderr.splitlines()
    assert first.startswith("stompbroker: No broker is running with the data directory data, and none has stored ")
    assert first.endswith("The report has what is in the lake already.")
    assert second.startswith("stompbroker: There is nothing in the lake ")
    assert f"{program.directory}/data/lake." in second


def test_a_running_broker_is_asked_to_export_first(program: Program) -> None:
    data = program.directory / "elsewhere"

    with scripted_answers(data, lambda _: {}) as control:
        done = program.run("report", "--data", str(data))

    assert control.calls == [("overview", {}), ("export_ledger", {})]
    assert done.returncode == 3
    assert done.stderr.startswith(f"stompbroker: There is nothing in the lake {data}/lake.")


def test_a_broker_that_cannot_export_is_a_sentence_and_the_report_goes_on(program: Program) -> None:
    def refuse(_: str) -> dict[str, Any]:
        raise Refused("the disk is full")

    with scripted_answers(program.directory / "data", refuse):
        done = program.run("report")

    assert done.returncode == 3
    first, second = done.stderr.splitlines()
    assert first.startswith("stompbroker: The broker refuses: the disk is full.")
    assert second.startswith("stompbroker: There is nothing in the lake ")


def test_the_lake_of_the_settings_is_taken(program: Program) -> None:
    done = program.run("report", STOMPBROKER_LAKE="/nowhere/at/all")

    assert "There is nothing in the lake /nowhere/at/all." in done.stderr


def damaged(lake: Path) -> Path:
    (file, *_) = sorted((lake / "deliveries" / f"dt={DATE}").glob("*.parquet"))
    os.truncate(file, file.stat().st_size // 2)
    return file


def foreign(lake: Path) -> Path:
    file = lake / "deliveries" / f"dt={DATE}" / "holiday.parquet"
    file.write_bytes(b"a picture of a beach")
    return file


@pytest.mark.parametrize("spoil", [damaged, foreign])
def test_a_torn_or_foreign_file_is_named_in_a_sentence(program: Program, spoil: Any) -> None:
    generate_lake(program.directory / "lake", last_date=DATE, days=1, deliveries=500)
    file = spoil(program.directory / "lake")

    done = program.run("report", "--lake", "lake", "--date", str(DATE))

    assert (done.returncode, done.stdout) == (5, "")
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith(f"stompbroker: {file} is not ")


def test_a_date_that_the_lake_does_not_have_is_a_sentence(program: Program) -> None:
    generate_lake(program.directory / "lake", last_date=DATE, days=1, deliveries=500)

    done = program.run("report", "--lake", "lake", "--date", "2026-11-01")

    assert (done.returncode, done.stdout) == (4, "")
    assert "has nothing for 2026-11-01" in done.stderr.splitlines()[-1]
