"""`stompbroker migrate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from stompbroker.cli.migrate import migrate
from stompbroker.config.data_directory import hold

if TYPE_CHECKING:
    from tests.cli.conftest import Program, RunningBroker

SERVER = "postgresql+psycopg://u:secret@h/d"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[str, Path]]:
    """What storage was asked to migrate. It has applied two revisions the first time, and none after that."""
    calls: list[tuple[str, Path]] = []

    def apply_revisions(database: str, directory: Path) -> list[str]:
        calls.append((database, directory))
        return ["0001_create_tables", "0002_more"] if len(calls) == 1 else []

    monkeypatch.setattr("stompbroker.storage.migrate", apply_revisions, raising=False)
    monkeypatch.chdir(tmp_path)
    return calls


@pytest.mark.parametrize(
    ("database", "shown"), [("", "data/stompbroker.db"), (SERVER, SERVER.replace("secret", "***"))]
)
def test_it_says_what_it_did(
    asked: list[tuple[str, Path]], capsys: pytest.CaptureFixture[str], database: str, shown: str
) -> None:
    migrate(database=database)
    first = capsys.readouterr().out
    migrate(database=database)
    second = capsys.readouterr().out

    assert first == f"Brought {shown} to the newest version:\n  0001_create_tables\n  0002_more\n"
    assert second == f"Nothing to do: {shown} is at the newest version.\n"
    assert asked == [(database, Path("data"))] * 2


def test_a_server_does_not_need_the_data_directory(asked: list[tuple[str, Path]], tmp_path: Path) -> None:
    with hold(tmp_path / "data"):
        migrate(database=SERVER)

    assert len(asked) == 1


def test_memory_has_nothing_to_migrate(program: Program) -> None:
    done = program.run("migrate", "--database", "memory")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Nothing to do: ")
    assert not (program.directory / "data").exists()


def test_it_does_not_touch_the_file_under_a_running_broker(program: Program) -> None:
    with hold(program.directory / "data"):
        done = program.run("migrate")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("stompbroker: The data directory data is held by another broker: process ")


def test_settings_that_are_wrong_are_refused(program: Program) -> None:
    done = program.run("migrate", "--database", "mysql://u:secret@h/d")

    assert (done.returncode, done.stdout) == (2, "")
    assert '- database = "mysql://…" (flag --database): allowed is ' in done.stderr


# With the real storage


def test_a_new_file_is_made_and_then_there_is_nothing_to_do(program: Program) -> None:
    first = program.run("migrate", "--data", "d")
    second = program.run("migrate", "--data", "d")

    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout.startswith("Brought d/stompbroker.db to the newest version:\n  ")
    assert second.stdout == "Nothing to do: d/stompbroker.db is at the newest version.\n"
    assert (program.directory / "d" / "stompbroker.db").is_file()


def test_a_broker_has_migrated_its_own_file(own_broker: RunningBroker) -> None:
    own_broker.stop()

    assert own_broker.program.run("migrate").stdout.startswith("Nothing to do: ")


def test_a_server_that_is_not_there_is_a_sentence_without_the_password(program: Program) -> None:
    done = program.run("migrate", "--database", "postgresql+psycopg://u:secret@127.0.0.1:1/d")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("stompbroker: ")
    assert "secret" not in done.stderr
    assert "Traceback" not in done.stderr
