"""Options and exit codes."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from benchmarks.broken import Broken
from benchmarks.command_line import main, parse
from benchmarks.scenarios import HEAVY_ROUNDS, SCENARIOS, FreshStart, StartUp, Throughput, rounds_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.target import Target


@contextmanager
def no_broker(settings: str) -> Iterator[Target]:
    raise Broken("it died")
    yield


def test_without_options_everything_is_measured_in_five_rounds() -> None:
    options = parse([])

    assert options.scenarios == SCENARIOS
    assert options.rounds == 5
    assert options.json_file is None


def test_scenarios_can_be_chosen_in_one_option_or_several_and_run_in_their_own_order() -> None:
    options = parse(["--scenario", "receipts", "latency", "--scenario", "topic-1-to-1"])

    assert [scenario.name for scenario in options.scenarios] == ["topic-1-to-1", "receipts", "latency"]


def test_quick_is_one_round_of_shorter_measurements() -> None:
    options = parse(["--quick"])

    assert options.rounds == 1
    for quick, full in zip(options.scenarios, SCENARIOS, strict=True):
        assert quick.name == full.name
        assert type(quick) is type(full)
        sizes = ("connections", "messages", "many", "duration_s")
        smaller = [size for size in sizes if getattr(quick, size, 0) < getattr(full, size, 0)]
        assert smaller or isinstance(full, FreshStart)  # which has no size
        assert all(f"{getattr(quick, size):,}" in quick.title for size in smaller if size != "duration_s")


def test_what_takes_minutes_is_measured_in_fewer_rounds() -> None:
    rounds = {scenario.name: rounds_of(scenario, 5) for scenario in SCENARIOS}

    assert rounds["durable-start"] == rounds["durable-store-size"] == rounds["collecting"] == HEAVY_ROUNDS
    assert rounds["durable-backlog"] == 5
    assert rounds_of(StartUp(name="a", title="a", messages=1), 1) == 1


def test_rounds_win_over_quick() -> None:
    assert parse(["--quick", "--rounds", "3"]).rounds == 3


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--scenario", "nonsense"], "nonsense"),
        (["--rounds", "0"], "1 is the least"),
        (["--rounds", "many"], "many"),
        (["surprise"], "surprise"),
    ],
)
def test_a_mistake_ends_with_code_two_and_says_what_it_is(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(arguments)

    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err


def test_names_are_unique_and_the_titles_tell_scenarios_apart() -> None:
    assert len({scenario.name for scenario in SCENARIOS}) == len(SCENARIOS)
    assert len({scenario.title for scenario in SCENARIOS}) == len(SCENARIOS)
    assert isinstance(SCENARIOS[0], Throughput)


def test_a_broken_broker_is_reported_in_every_round_and_ends_with_code_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    json_file = tmp_path / "results.json"

    exit_code = main(
        ["--scenario", "receipts", "--rounds", "2", "--json", str(json_file)],
        open_target=no_broker,
    )

    printed = capsys.readouterr()
    assert exit_code == 1
    assert "BROKEN  receipts, round 1: it died" in printed.out
    assert "BROKEN  receipts, round 2: it died" in printed.out
    assert "2 of 2: round 2 of 2" in printed.err
    written = json.loads(json_file.read_text())
    assert written["scenarios"] == []
    assert [broken["round"] for broken in written["broken"]] == [1, 2]
