"""`stompbroker ledger export` while no broker runs: real processes, killed in the middle, on both engines."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from typing import TYPE_CHECKING, Final

import pytest

from stompbroker.config.data_directory import EXPORT, LOCK_NAME, hold
from tests.support.broker_process import running_broker, wait_until
from tests.support.patience import HARD_TIMEOUT_S
from tests.support.prepared_process import PYTHON, PreparedProcess, clean_environment, run_prepared

if TYPE_CHECKING:
    from pathlib import Path

    from tests.ledger.ledger_on_store import LedgerOnStore

#: Where the command can be killed, by which function it calls first then.
ENDS: Final = {
    "before anything is planned": "stompbroker.ledger.exports.Exports.plan",
    "when it is planned": "stompbroker.actors.exporter._run_process",
    "when the files are there": "stompbroker.ledger.exports.Exports.note_file",
    "when it is written down that they are": "stompbroker.ledger.exports.Exports.delete_portion",
    "when all is done": "stompbroker.storage.fence.Fence.note_closed",
}
_PATCHED: Final = """
import os, signal
from unittest import mock
from stompbroker.cli import control_client, main
with mock.patch({what!r}, {by}): main()
"""
#: Our records are old.
ENVIRONMENT: Final = clean_environment() | {"STOMPBROKER_LAKE_RETENTION_DAYS": "36500"}
_KILL: Final = "lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)"


@pytest.fixture
def stopped(on_store: LedgerOnStore) -> LedgerOnStore:
    """Nine records of two days, and no broker."""
    on_store.settle(3, 2)
    on_store.settle(4, day=20_000)
    on_store.close()
    (on_store.place.directory / LOCK_NAME).touch()
    return on_store


def options_for(on_store: LedgerOnStore) -> list[str]:
    place = on_store.place
    return ["--data", str(place.directory), *(["--database", place.database] if place.database else [])]


def run_export(
    on_store: LedgerOnStore, *more: str, patched: tuple[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    program = ["-m", "stompbroker"] if patched is None else ["-c", _PATCHED.format(what=patched[0], by=patched[1])]
    command = [*PYTHON, *program, "ledger", "export", *options_for(on_store), *more]
    done = run_prepared(command, environment=ENVIRONMENT)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def check_all_exported(on_store: LedgerOnStore) -> None:
    assert sorted(on_store.in_lake()) == on_store.settled
    assert on_store.in_store(also_exported=True) == []
    assert on_store.place.count("ledger_exports") == 0


def test_what_a_stopped_broker_has_left_goes_to_the_lake(stopped: LedgerOnStore) -> None:
    done = run_export(stopped, "--json")

    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["records"] == len(stopped.settled)
    assert sorted(answer["files"]) == stopped.files()
    assert answer["lake"] == str(stopped.lake)
    assert stopped.complete_until()[:23] == answer["complete_until"][:23]
    assert done.stderr == f"… no broker is running: exporting 9 records to {stopped.lake}\n"
    check_all_exported(stopped)
    again = run_export(stopped)
    assert again.stdout.startswith("0 records in 0 files. The lake ")


@pytest.mark.parametrize("end", ENDS)
def test_killed_it_is_repeated_and_each_record_is_in_the_lake_once(stopped: LedgerOnStore, end: str) -> None:
    assert run_export(stopped, patched=(ENDS[end], _KILL)).returncode == -signal.SIGKILL

    stopped.restart()
    stopped.settle(2)
    stopped.close()
    assert run_export(stopped).returncode == 0

    check_all_exported(stopped)


def test_killed_it_is_repeated_by_a_broker(stopped: LedgerOnStore) -> None:
    assert run_export(stopped, patched=(ENDS["when the files are there"], _KILL)).returncode == -signal.SIGKILL

    serve = ["serve", "--port", "0", "--http-port", "0", *options_for(stopped)]
    with PreparedProcess([*PYTHON, "-m", "stompbroker", *serve], env=ENVIRONMENT, stderr=subprocess.DEVNULL) as broker:
        try:
            wait_until(lambda: stopped.place.count("ledger_batches") == 0, "the broker repeats the export")
        finally:
            broker.kill()

    check_all_exported(stopped)


def test_a_lake_that_cannot_be_written_is_a_sentence_and_the_records_stay(stopped: LedgerOnStore) -> None:
    stopped.lake.touch()

    done = run_export(stopped)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[1].startswith(f"stompbroker: The lake {stopped.lake} cannot be written: ")
    assert done.stderr.endswith("The records stay in the store.\n")
    assert stopped.in_store() == stopped.settled


def test_a_store_of_an_older_release_is_not_migrated(stopped: LedgerOnStore) -> None:
    ((current,),) = stopped.place.query("SELECT version_num FROM alembic_version")
    stopped.place.query("UPDATE alembic_version SET version_num = '0001'")
    try:
        done = run_export(stopped)

        assert stopped.place.query("SELECT version_num FROM alembic_version") == [("0001",)]
    finally:  # the server's tables are those of all tests
        stopped.place.query(f"UPDATE alembic_version SET version_num = '{current}'")
    assert done.returncode == 1
    assert "was last migrated by an older release. Bring it up to date first: stompbroker migrate --data" in done.stderr
    assert stopped.files() == []


def test_a_broker_that_was_killed_still_has_its_store_checked_by_the_next_one(on_store: LedgerOnStore) -> None:
    on_store.close()
    on_store.place.query("UPDATE journal_state SET was_closed = false")
    (on_store.place.directory / LOCK_NAME).touch()

    assert run_export(on_store).returncode == 0

    assert on_store.place.query("SELECT was_closed FROM journal_state")[0][0] in (0, False)


def test_a_broker_that_starts_meanwhile_is_refused_and_told_why(tmp_path: Path) -> None:
    with hold(tmp_path / "data", EXPORT):
        done = run_prepared([*PYTHON, "-m", "stompbroker", "serve", "--port", "0", "--data", str(tmp_path / "data")])

    assert done.returncode == 2
    assert (
        f"is held by an export of its ledger, which ends by itself: process {os.getpid()} on " in done.stderr.decode()
    )


def test_a_broker_that_is_just_stopping_is_waited_for(stopped: LedgerOnStore) -> None:
    directory = stopped.place.directory
    command = [*PYTHON, "-m", "stompbroker", "ledger", "export", *options_for(stopped)]
    with hold(directory):
        process: PreparedProcess[bytes] = PreparedProcess(
            command, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        assert process.stderr is not None
        assert process.stderr.readline().decode().startswith(f"… waiting until {directory} is free")

    with process:
        assert process.wait(HARD_TIMEOUT_S) == 0
    check_all_exported(stopped)


def test_a_broker_that_hangs_is_a_sentence(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        broker.signal(signal.SIGSTOP)
        try:
            program = _PATCHED.format(what="stompbroker.cli.control_client.ANSWER_TIMEOUT_S", by="0.1")
            done = run_prepared([*PYTHON, "-c", program, "ledger", "export", "--data", str(broker.data)])
        finally:
            broker.signal(signal.SIGCONT)

    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.endswith(b"has not answered for 0.1 seconds; it seems to hang.\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_directory_of_another_user_is_left_alone(stopped: LedgerOnStore) -> None:
    os.chown(stopped.place.directory / LOCK_NAME, 12345, -1)

    done = run_export(stopped)

    assert done.returncode == 1
    assert "belongs to the user with the number 12345" in done.stderr
    assert stopped.in_store() == stopped.settled


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [("STOMPBROKER_LEDGER=false", "The settings say ledger = false"), ("STOMPBROKER_DATABASE=memory", '"memory"')],
)
def test_no_ledger_is_a_sentence(tmp_path: Path, setting: str, sentence: str) -> None:
    name, _, value = setting.partition("=")
    done = run_prepared(
        [*PYTHON, "-m", "stompbroker", "ledger", "export", "--data", str(tmp_path)],
        environment=clean_environment() | {name: value},
    )

    assert done.returncode == 1
    assert sentence in done.stderr.decode()


def test_a_server_whose_lake_would_be_in_a_directory_of_nobody_is_refused(stopped: LedgerOnStore) -> None:
    if stopped.place.is_sqlite:
        pytest.skip("there the directory has the database")
    (stopped.place.directory / LOCK_NAME).unlink()

    done = run_export(stopped)

    assert done.returncode == 1
    assert "No broker has ever run with the data directory" in done.stderr
    assert stopped.in_store() == stopped.settled
