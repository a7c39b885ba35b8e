"""`stompbroker ledger`, against a scripted control socket, a real broker, and none."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from tests.cli.failing_subscriber import make_letters
from tests.cli.scripted_answers import Refused, scripted_answers

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Program, RunningBroker

ANSWER = {
    "lake": "/data/lake",
    "files": ["deliveries/dt=2026-11-16/a.parquet", "backlog/dt=2026-11-16/b\x1b.parquet"],
    "records": 1234,
    "complete_until": "2026-11-16T17:34:09.690+00:00",
}


@pytest.fixture
def data(program: Program) -> Path:
    """Where the settings' default finds it."""
    return program.directory / "data"


@pytest.mark.parametrize("command", ["", "export"])
def test_the_help_of_every_command_has_examples(program: Program, command: str) -> None:
    done = program.run("ledger", *command.split(), "--help")

    assert done.returncode == 0
    assert f"stompbroker ledger {command}" in done.stdout.split("Examples:")[1]


def test_neither_a_broker_nor_a_store_is_a_sentence_and_nothing_is_made(program: Program) -> None:
    done = program.run("ledger", "export")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("stompbroker: No broker is running with the data directory data, and none has ")
    assert list(program.directory.iterdir()) == []


def test_the_files_and_how_far_the_lake_is_complete_are_told(program: Program, data: Path) -> None:
    with scripted_answers(data, lambda _method, **_params: ANSWER) as control:
        done = program.run("ledger", "export")

    assert control.calls == [("overview", {}), ("export_ledger", {})]
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "deliveries/dt=2026-11-16/a.parquet\n"
        "backlog/dt=2026-11-16/b\\x1b.parquet\n"
        "1,234 records in 2 files. The lake /data/lake is complete until 2026-11-16 17:34:09 UTC.\n"
    )


def test_programs_get_json(program: Program, data: Path) -> None:
    with scripted_answers(data, lambda _method, **_params: ANSWER):
        done = program.run("ledger", "export", "--json")

    assert json.loads(done.stdout) == ANSWER


def test_a_lake_that_cannot_be_written_is_a_sentence(program: Program, data: Path) -> None:
    def refuse(method: str, **_params: Any) -> Any:
        if method == "overview":
            return {}
        raise Refused("The lake cannot be written at /data/lake: No space left on device.")

    with scripted_answers(data, refuse):
        done = program.run("ledger", "export")

    assert done.returncode == 1
    assert done.stderr == (
        "stompbroker: The broker refuses: The lake cannot be written at /data/lake: No space left on device.\n"
    )


def test_a_real_broker_brings_what_was_settled_to_the_lake(own_broker: RunningBroker) -> None:
    make_letters(own_broker, [b"one", b"two"])

    answer = json.loads(own_broker.program.run("ledger", "export", "--json").stdout)

    (path,) = answer["files"]
    found = pq.ParquetFile(own_broker.program.directory / "data" / "lake" / path).read().to_pylist()
    assert [row["outcome"] for row in found] == ["dead", "dead"]
    assert answer["records"] == 2
    again = own_broker.program.run("ledger", "export")
    assert again.stdout.startswith("0 records in 0 files. The lake ")
