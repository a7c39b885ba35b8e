"""The program as a person runs it: real processes (prepared ones), a real broker, an empty working directory."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio

from tests.support.patience import HARD_TIMEOUT_S
from tests.support.prepared_process import PYTHON, PreparedProcess, clean_environment, run_prepared
from tests.support.scripted_peer import Peer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


#: As the script that is installed does it.
PROGRAM = [*PYTHON, "-c", "from stompbroker.cli import main; main()"]


@dataclass(frozen=True, slots=True)
class Program:
    """Starts `stompbroker` in one working directory, with one environment."""

    directory: Path
    environment: dict[str, str]

    def run(self, *arguments: str, given: str | bytes = b"", **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        done = run_prepared(
            [*PROGRAM, *arguments],
            given=given.encode() if isinstance(given, str) else given,
            directory=self.directory,
            environment=self.environment | environment,
        )
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())

    @contextmanager
    def start(self, *arguments: str, **streams: Any) -> Iterator[subprocess.Popen[str]]:
        """A command that goes on; it is killed at the end of the block if it still does."""
        with PreparedProcess(
            [*PROGRAM, *arguments],
            cwd=self.directory,
            env=self.environment,
            text=True,
            **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams,
        ) as process:
            try:
                yield process
            finally:
                process.kill()


def program_in(directory: Path) -> Program:
    # Wide, so that no line a test looks for is wrapped, and without colours.
    return Program(directory, clean_environment() | {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return program_in(tmp_path)


@dataclass(frozen=True, slots=True)
class RunningBroker:
    """A broker in a process of its own, and commands that are sent to it."""

    program: Program
    process: subprocess.Popen[str]
    port: int
    data: Path

    @property
    def address(self) -> list[str]:
        # Both, because then the command need not read the settings, and starts in half the time.
        return ["--host", "127.0.0.1", "--port", str(self.port)]

    def run(self, command: str, *arguments: str, given: str | bytes = b"") -> subprocess.CompletedProcess[str]:
        return self.program.run(command, *self.address, *arguments, given=given)

    @contextmanager
    def subscriber(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """A `subscribe` that has its subscription."""
        with self.program.start("subscribe", *self.address, *arguments) as process:
            assert process.stderr is not None
            line = process.stderr.readline()
            assert line.startswith("Subscribed to "), line + process.stderr.read()
            yield process

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Ask it to end, and wait until it has."""
        self.process.send_signal(number)
        self.process.wait(HARD_TIMEOUT_S)

    def statistics(self) -> Any:
        done = self.program.run("stats", "--data", str(self.data), "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@contextmanager
def running_broker(program: Program, *arguments: str) -> Iterator[RunningBroker]:
    data = program.directory / "data"
    with (program.directory / "log").open("wb") as log:
        with program.start(
            "serve", "--port", "0", "--http-port", "0", "--data", str(data), *arguments, stderr=log
        ) as process:
            assert process.stdout is not None
            first = process.stdout.readline()
            ready = re.search(r"stomp://127\.0\.0\.1:(\d+)", first)
            assert ready, first + Path(log.name).read_text()
            broker = RunningBroker(program, process, int(ready[1]), data)
            yield broker
            if process.returncode is None:
                broker.stop()
            assert process.returncode == 0, Path(log.name).read_text()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """One for all tests of a file: only for those who neither stop it nor count what goes on in it."""
    with running_broker(program_in(tmp_path_factory.mktemp("shared"))) as running:
        yield running


@pytest.fixture
def own_broker(program: Program) -> Iterator[RunningBroker]:
    with running_broker(program) as running:
        yield running


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        peer = Peer(listener)
        yield peer
        await peer.aclose()
