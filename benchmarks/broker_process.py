"""The broker as a process, started for one measurement and watched from outside.

The only file that knows how stompbroker is started; everything else measures a `Target`, or looks at one as its
operator would (`operating`, `stored`). The broker gets an empty data directory and a free port, and must end with exit
code 0 on SIGTERM: anything else is `Broken`.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, TypeVar, final

import psutil

from benchmarks.address import Address
from benchmarks.broken import Broken
from benchmarks.disk_directory import disk_directory
from benchmarks.flow_roles import STOMP_ROLES
from benchmarks.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


_ANNOUNCED: Final = re.compile(rb"stomp://([^:\s]+):(\d+)")
_START_TIMEOUT_S: Final = 20.0
_STOP_TIMEOUT_S: Final = 15.0
_SHOWN_LOG_BYTES: Final = 1500
#: Seconds for which a memory sample is reused.
_LOOK_S: Final = 0.2
#: What a broker still does once it is ready counts for no scenario: we wait until it has used no processor time for so
#: long, but not for ever, in seconds. The kernel counts in hundredths.
_QUIET_S: Final = 0.1
_QUIET_TIMEOUT_S: Final = 5.0

T = TypeVar("T")


@contextmanager
def running_broker(
    settings: str, *, arguments: Sequence[str] = (), has_first_client: bool = False
) -> Iterator[BrokerProcess]:
    """Run stompbroker with `settings` (TOML, may be empty) for the length of the block.

    With a first client, which needs no login, a start lasts until that is CONNECTED, as with the peers.
    """
    with disk_directory("stompbroker-benchmark-") as directory:
        data = directory / "data"
        ports = ["--port", "0", "--http-port", "0"]
        command = [sys.executable, "-m", "stompbroker", "serve", *ports, "--data", str(data), *arguments]
        if settings:
            config = Path(directory, "broker.toml")
            config.write_text(settings)
            command += ["--config", str(config)]
        with running_process(command, data, has_first_client=has_first_client) as target:
            yield target


@contextmanager
def running_process(command: Sequence[str], data: Path, *, has_first_client: bool = False) -> Iterator[BrokerProcess]:
    """Run `command`, which prints `stomp://HOST:PORT` when it listens, keeps its files in `data`, and ends on
    SIGTERM."""
    with tempfile.TemporaryFile() as log:
        broker = BrokerProcess(command, data, log, has_first_client=has_first_client)
        try:
            broker.start()
            yield broker
            broker.end()
        finally:
            broker.clean_up()


@final
class BrokerProcess:
    """A `Target` that is a child process, or several in turn."""

    roles = STOMP_ROLES

    def __init__(self, command: Sequence[str], data: Path, log: IO[bytes], *, has_first_client: bool = False) -> None:
        """Starts nothing yet."""
        self.data = data
        self.address = Address("", 0)
        self.started_in_s = 0.0
        self._command = command
        self._log = log
        self._has_first_client = has_first_client
        self._process: subprocess.Popen[bytes] | None = None
        self._family: tuple[psutil.Process, ...] = ()
        #: Time and value of the last memory sample.
        self._looked_at = 0.0
        self._resident_bytes = 0

    # Life ------------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        started_at = time.monotonic()
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=self._log)
        self.address = _wait_announced(self._process, self._log)
        if self._has_first_client:
            with Session.open(self.address) as first_client:
                first_client.leave()
        self.started_in_s = time.monotonic() - started_at
        first = psutil.Process(self._process.pid)
        self._family = (first, *first.children(recursive=True))
        self._looked_at = 0.0
        self._wait_quiet()

    def _wait_quiet(self) -> None:
        gives_up_at = time.monotonic() + _QUIET_TIMEOUT_S
        used_s = -1.0
        while self._is_busy(used_s) and time.monotonic() < gives_up_at:
            used_s = self.processor_s()
            time.sleep(_QUIET_S)

    def _is_busy(self, used_s: float) -> bool:
        """Whether it has used more processor time than this, or waits for a processor."""
        return self.processor_s() > used_s or psutil.STATUS_RUNNING in self._asked_of_family(psutil.Process.status)

    def end(self) -> None:
        """Ask it to end; it must, with exit code 0."""
        _end_gracefully(self._running(), self._log)
        self.clean_up()

    def restart(self, *, is_killed: bool = False) -> None:
        self.raise_if_dead()
        if not is_killed:
            self.end()
        self.clean_up()
        self.start()

    def clean_up(self) -> None:
        if self._process is not None:
            with self._process as process:
                process.kill()  # does nothing to one that has ended
            self._process = None

    # Looking at it ---------------------------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        return self._running().pid

    def processor_s(self) -> float:
        self.raise_if_dead()
        return sum(used.user + used.system for used in self._asked_of_family(psutil.Process.cpu_times))

    def resident_bytes(self) -> int:
        """Called many times a second but rarely sampled: the kernel walks through all pages for it."""
        self.raise_if_dead()
        now = time.monotonic()
        if now >= self._looked_at + _LOOK_S:
            self._looked_at = now
            # Memory that a fork shares with its parent is not counted twice.
            self._resident_bytes = sum(memory.pss for memory in self._asked_of_family(psutil.Process.memory_full_info))
        return self._resident_bytes

    def _asked_of_family(self, ask: Callable[[psutil.Process], T]) -> list[T]:
        """The process and the children that it had when it was ready, if they still run."""
        answers = []
        for process in self._family:
            with suppress(psutil.NoSuchProcess):
                answers.append(ask(process))
        return answers

    def raise_if_dead(self) -> None:
        if self._running().poll() is not None:
            raise Broken(f"the broker died with exit code {self._running().returncode}{_end_of(self._log)}")

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "the broker was not started"
        return self._process


def _wait_announced(process: subprocess.Popen[bytes], log: IO[bytes]) -> Address:
    """Read the broker's output up to the line with its address."""
    assert process.stdout is not None
    gives_up_at = time.monotonic() + _START_TIMEOUT_S
    printed = b""
    while (found := _ANNOUNCED.search(printed)) is None or b"\n" not in printed[found.end() :]:
        readable, _, _ = select.select([process.stdout], [], [], max(0.0, gives_up_at - time.monotonic()))
        if not readable:
            raise Broken(f"the broker did not say where it listens within {_START_TIMEOUT_S:g} s{_end_of(log)}")
        chunk = process.stdout.read1()  # type: ignore[attr-defined]
        if not chunk:
            raise Broken(f"the broker ended with exit code {process.wait()} before it listened{_end_of(log)}")
        printed += chunk
    return Address(found[1].decode(), int(found[2]))


def _end_gracefully(process: subprocess.Popen[bytes], log: IO[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        exit_code = process.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise Broken(f"the broker did not end within {_STOP_TIMEOUT_S:g} s of SIGTERM{_end_of(log)}") from None
    if exit_code != 0:
        raise Broken(f"the broker ended with exit code {exit_code}{_end_of(log)}")


def _end_of(log: IO[bytes]) -> str:
    # Not `seek`: the broker writes through the same file position.
    length = os.fstat(log.fileno()).st_size
    text = os.pread(log.fileno(), _SHOWN_LOG_BYTES, max(0, length - _SHOWN_LOG_BYTES)).decode(errors="replace").strip()
    return f"; the end of its log:\n{text}" if text else ", without a word"
