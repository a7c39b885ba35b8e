"""Options and exit codes, and one real run that is too short to say anything."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from benchmarks.broken import Broken
from benchmarks.broker_process import running_broker
from benchmarks.measurement import Measurement
from benchmarks.scaling.command_line import main, measured, parse
from benchmarks.scaling.long_run import LongRun
from benchmarks.scaling.results import LongRunFound, from_json, to_json
from benchmarks.scaling.series import SERIES
from tests.benchmarks.scaling.made_growth import RUN, growth, slices

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.target import Target


@contextmanager
def no_broker(settings: str) -> Iterator[Target]:
    raise Broken("it died")
    yield


def test_without_options_everything_is_measured_in_three_rounds_and_two_minutes() -> None:
    options = parse([])

    assert options.series == SERIES
    assert options.long_run == LongRun(minutes=2.0)
    assert options.page.rounds == 3


def test_quick_has_the_same_points_in_less_time() -> None:
    options = parse(["--quick"])

    assert options.page.rounds == 1
    assert options.long_run == LongRun(minutes=0.2)
    for quick, full in zip(options.series, SERIES, strict=True):
        assert [point.name for point in quick.points] == [point.name for point in full.points]
        assert all(point.scenario.duration_s == 0.5 for point in quick.points)


def test_only_what_is_named_is_measured_and_minutes_win_over_quick() -> None:
    options = parse(["--quick", "--only", "bodies", "long-run", "--minutes", "60"])

    assert [series.name for series in options.series] == ["bodies"]
    assert options.long_run == LongRun(minutes=60.0)
    assert parse(["--only", "topics"]).long_run is None


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--only", "nonsense"], "nonsense"),
        (["--minutes", "0"], "no length of a run"),
        (["--minutes", "nan"], "no length of a run"),
        (["--rounds", "0"], "1 is the least"),
    ],
)
def test_a_mistake_ends_with_code_two_and_says_what_it_is(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(arguments)

    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err


def test_names_of_points_are_unique() -> None:
    names = [point.name for series in SERIES for point in series.points]

    assert len(set(names)) == len(names)


def test_what_is_read_from_the_file_is_what_was_written() -> None:
    made = growth(LongRunFound(run=RUN, slices=slices(50.0, 51.0)))

    assert from_json(to_json(made)) == made
    assert from_json(to_json(growth())) == growth()


def test_a_page_is_made_anew_from_a_file_without_measuring(tmp_path: Path) -> None:
    (tmp_path / "growth.json").write_text(to_json(replace(growth(), long_run=None)))
    page, pictures = tmp_path / "there" / "page.md", tmp_path / "pictures"

    main(
        ["--from", str(tmp_path / "growth.json"), "--out", str(page), "--plots", str(pictures)],
        open_target=no_broker,
    )

    assert "![scaling-bodies](../pictures/scaling-bodies.svg)" in page.read_text()


def test_a_broken_broker_is_said_and_ends_with_code_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"

    exit_code = main(
        ["--quick", "--only", "subscribers", "long-run", "--out", str(page), "--plots", str(tmp_path)],
        open_target=no_broker,
    )

    assert exit_code == 1
    assert "BROKEN  subscribers-200, round 1: it died" in capsys.readouterr().err
    assert page.read_text().count("**BROKEN**: it died") == 7


def test_points_and_slices_come_from_a_real_broker() -> None:
    options = parse(["--only", "topics", "--rounds", "1"])
    (topics,) = options.series
    brief = replace(topics.points[1], scenario=replace(topics.points[1].scenario, duration_s=0.05))
    run = LongRun(minutes=0.01, messages_per_s=400, timed_per_s=200)

    found = measured(replace(options, series=(replace(topics, points=(brief,)),), long_run=run), running_broker)

    assert [outcome.scenario for outcome in found.series.outcomes] == ["topics-10"]
    assert isinstance(found.series.outcomes[0].found, Measurement)
    assert isinstance(found.long_run, LongRunFound)
    assert 1 <= len(found.long_run.slices) <= run.slices  # a busy machine may miss a border
