"""The broker as a process, started for one measurement and watched from outside.

Law: this is the only file that knows how stompbroker is started; everything else measures a `Target`. The broker gets a
fresh data directory and a free port, and has to end with exit code 0 when it is asked to: anything else is `Broken`.
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
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, final

import psutil

from benchmarks.broken import Broken

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.target import Target

_ANNOUNCED: Final = re.compile(rb"stomp://([^:\s]+):(\d+)")
_START_TIMEOUT_S: Final = 20.0
_STOP_TIMEOUT_S: Final = 15.0
_SHOWN_LOG_BYTES: Final = 1500


@contextmanager
def running_broker(settings: str) -> Iterator[Target]:
    """Run stompbroker with `settings` (TOML, may be empty) for the length of the block."""
    with tempfile.TemporaryDirectory(prefix="stompbroker-benchmark-") as directory:
        command = [sys.executable, "-m", "stompbroker", "serve", "--port", "0", "--data", str(Path(directory, "data"))]
        if settings:
            config = Path(directory, "broker.toml")
            config.write_text(settings)
            command += ["--config", str(config)]
        with running_process(command) as target:
            yield target


@contextmanager
def running_process(command: Sequence[str]) -> Iterator[Target]:
    """Run `command`, which says `stomp://HOST:PORT` on its standard output when it listens, and ends on SIGTERM."""
    with tempfile.TemporaryFile() as log, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log) as process:
        try:
            host, port = _wait_announced(process, log)
            yield BrokerProcess(process, log, host=host, port=port)
            _end_gracefully(process, log)
        finally:
            if process.poll() is None:
                process.kill()


@final
class BrokerProcess:
    """A `Target` that is a child of ours."""

    def __init__(self, process: subprocess.Popen[bytes], log: IO[bytes], *, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self._process = process
        self._log = log
        self._observed = psutil.Process(process.pid)

    def processor_s(self) -> float:
        self.raise_if_dead()
        used = self._observed.cpu_times()
        return used.user + used.system

    def resident_bytes(self) -> int:
        self.raise_if_dead()
        return self._observed.memory_info().rss

    def raise_if_dead(self) -> None:
        if self._process.poll() is not None:
            raise Broken(f"the broker died with exit code {self._process.returncode}{_end_of(self._log)}")


def _wait_announced(process: subprocess.Popen[bytes], log: IO[bytes]) -> tuple[str, int]:
    """Read the broker's output up to the line that says where it listens."""
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
    return found[1].decode(), int(found[2])


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
