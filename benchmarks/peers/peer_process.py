"""A peer as a process group, started for a few measurements and watched from outside.

It is ready when it answers; its use of resources is summed over the processes that it has by then. It is stopped with
SIGTERM, and killed with all its processes if that does not help. How it ends is not judged. It inherits only the path
and the limits of our environment.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import IO, TYPE_CHECKING, Final, final

import psutil

from benchmarks.broken import Broken
from benchmarks.flow_roles import STOMP_ROLES, FlowRoles
from benchmarks.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from benchmarks.address import Address

_START_TIMEOUT_S: Final = 60.0
_STOP_TIMEOUT_S: Final = 20.0
#: Seconds between two checks whether it answers, and the resolution of start-up times.
_POLL_S: Final = 0.01
_SHOWN_LOG_BYTES: Final = 1500


def answers_stomp(address: Address) -> bool:
    try:
        with Session.open(address) as session:
            session.leave()
    except Broken:
        return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How a peer is started."""

    command: tuple[str, ...]
    #: Where it will listen.
    address: Address
    #: Its own directory on a disk, and its working directory.
    data: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    answers: Callable[[Address], bool] = answers_stomp
    roles: FlowRoles = STOMP_ROLES


@contextmanager
def running_peer(launch: Launch) -> Iterator[PeerProcess]:
    with tempfile.TemporaryFile() as log:
        peer = PeerProcess(launch, log)
        try:
            peer.start()
            yield peer
            peer.end()
        finally:
            peer.clean_up()


@final
class PeerProcess:
    """A `Target` that is a process group, or several in turn."""

    def __init__(self, launch: Launch, log: IO[bytes]) -> None:
        """Starts nothing yet."""
        self.address = launch.address
        self.data = launch.data
        self.roles = launch.roles
        self.started_in_s = 0.0
        self._launch = launch
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._observed: tuple[psutil.Process, ...] = ()

    # Life ------------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        started_at = time.monotonic()
        self._process = subprocess.Popen(
            self._launch.command,
            cwd=self.data,
            env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **self._launch.environment},
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )
        self._wait_answer(started_at + _START_TIMEOUT_S)
        self.started_in_s = time.monotonic() - started_at
        first = psutil.Process(self._process.pid)
        self._observed = (first, *first.children(recursive=True))

    def end(self) -> None:
        process = self._running()
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_TIMEOUT_S)
        self.clean_up()

    def restart(self, *, is_killed: bool = False) -> None:
        self.raise_if_dead()
        if not is_killed:
            self.end()
        self.clean_up()
        self.start()

    def clean_up(self) -> None:
        """Leave nothing behind, whatever state it is in."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
            psutil.wait_procs(self._observed, timeout=_STOP_TIMEOUT_S)

    def _wait_answer(self, gives_up_at: float) -> None:
        asked = replace(self.address, answer_timeout_s=_START_TIMEOUT_S)
        while not self._launch.answers(asked):
            self.raise_if_dead()
            if time.monotonic() > gives_up_at:
                raise Broken(f"it did not answer at {self.address} within {_START_TIMEOUT_S:g} s{self._end_of_log()}")
            time.sleep(_POLL_S)

    # Looking at it ---------------------------------------------------------------------------------------------------

    def processor_s(self) -> float:
        self.raise_if_dead()
        return sum(used.user + used.system for used in (each.cpu_times() for each in self._alive()))

    def resident_bytes(self) -> int:
        self.raise_if_dead()
        # Memory that processes share is not counted twice, as with ours.
        return sum(each.memory_full_info().pss for each in self._alive())

    def raise_if_dead(self) -> None:
        if self._running().poll() is not None:
            raise Broken(f"it ended with exit code {self._running().returncode}{self._end_of_log()}")

    def _alive(self) -> list[psutil.Process]:
        return [each for each in self._observed if each.is_running()]

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "it was not started"
        return self._process

    def _end_of_log(self) -> str:
        # Not `seek`: the peer writes through the same file position.
        length = os.fstat(self._log.fileno()).st_size
        read = os.pread(self._log.fileno(), _SHOWN_LOG_BYTES, max(0, length - _SHOWN_LOG_BYTES))
        text = read.decode(errors="replace").strip()
        return f"; the end of its log:\n{text}" if text else ", without a word"
