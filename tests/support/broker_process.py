"""The broker as its users have it: a process of its own, with a free port and a data directory, watched from outside.

Law: knows how the broker is started, asked and ended, and nothing of STOMP. Waiting is on what the process says or
does, bounded by HARD_TIMEOUT_S; nothing ever waits for that time to pass. Whatever happens, the process is gone at the
end of the block, and a failing test shows the end of its log.
"""

from __future__ import annotations

import json
import re
import resource
import signal
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, final
from urllib.parse import urlsplit

import psutil
import trio

from stompbroker.cli.control_client import connect
from stompbroker.cli.stats import MAX_ENTRIES, ask_for_statistics
from tests.support.patience import HARD_TIMEOUT_S
from tests.support.prepared_process import PYTHON, PreparedProcess, clean_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

#: How often a condition that nobody announces is looked at, in seconds.
LOOK_S: Final = 0.01

_READY: Final = re.compile(r"stomp://\[?([^\]\s]+?)\]?:(\d+)")
_SHOWN_LOG_LINES: Final = 20

Found = TypeVar("Found")


class Address(NamedTuple):
    host: str
    port: int


def wait_until(look: Callable[[], Found | None], what: str) -> Found:
    """Look until something true is found, and return that; `what` is what the test waited for in vain otherwise."""
    gives_up_at = time.monotonic() + HARD_TIMEOUT_S
    while not (found := look()):
        if time.monotonic() > gives_up_at:
            raise AssertionError(f"in vain for {HARD_TIMEOUT_S:g} s: {what}")
        time.sleep(LOOK_S)
    return found


@final
class BrokerProcess:
    """A broker that can be ended and started again on the same data."""

    def __init__(self, directory: Path, arguments: list[str], *, open_files: int | None = None) -> None:
        """Starts nothing yet. `directory` must exist; `open_files` bounds the descriptors the process may ever have."""
        self.data = directory / "data"
        # Files, not pipes: nobody has to read them for the broker to go on.
        self._output_path = directory / "output"
        self._log_path = directory / "log"
        self._command = [*PYTHON, "-m", "stompbroker", "serve", "--port", "0", "--http-port", "0"]
        self._command += ["--data", str(self.data), *arguments]
        self._open_files = open_files
        self._process: subprocess.Popen[bytes] | None = None
        #: Where it listens.
        self.address = Address("", 0)

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "the broker was never started"
        return self._process

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    # Life ------------------------------------------------------------------------------------------------------------

    def start(self, *, on_standby: bool = False) -> None:
        """Start it, and come back when it says that it is ready; or, on stand-by, that it waits."""
        assert not self.is_running
        with self._output_path.open("wb") as output, self._log_path.open("ab") as log:
            if self._open_files is None:
                self._process = PreparedProcess(
                    self._command, stdin=subprocess.DEVNULL, stdout=output, stderr=log, env=clean_environment()
                )
            else:
                # What is imported too late, when no descriptor is left, was imported before in a prepared one.
                self._process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=log,
                    env=clean_environment(),
                    preexec_fn=self._limit_open_files,
                )
        wait_until(lambda: self.output() or not self.is_running, "its first line")
        if on_standby:
            assert self.output(), f"it ended with exit code {self.process.returncode} and this:\n{self.end_of_log()}"
        else:
            self.wait_ready()

    def wait_ready(self) -> None:
        """Until it serves, which on stand-by may take long."""
        wait_until(lambda: _READY.search(self._output_path.read_text()) or not self.is_running, "where it listens")
        ready = _READY.search(self._output_path.read_text())
        assert ready, f"it ended with exit code {self.process.poll()} and this:\n{self.end_of_log()}"
        self.address = Address(ready[1], int(ready[2]))

    def restart(self) -> None:
        """Start it again after `stop` or `kill`, on the same data; its address is another."""
        self.start()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait_ended(self) -> int:
        """Its exit code."""
        try:
            return self.process.wait(HARD_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it has not ended within {HARD_TIMEOUT_S:g} s:\n{self.end_of_log()}") from None

    def stop(self) -> None:
        """Ask it to end; it has to, with exit code 0 and without having logged a mistake of ours."""
        self.signal(signal.SIGTERM)
        assert self.wait_ended() == 0, self.end_of_log()
        assert "Traceback" not in self.log(), self.end_of_log()

    def kill(self) -> None:
        """As if the machine had taken it away."""
        self.process.kill()
        self.wait_ended()

    def clean_up(self) -> None:
        if self.is_running:
            self.kill()

    # Looking at it ---------------------------------------------------------------------------------------------------

    def output(self) -> list[str]:
        """The lines it has printed since it was last started."""
        return self._output_path.read_text().splitlines()

    def log(self) -> str:
        return self._log_path.read_text()

    def events(self, name: str) -> list[dict[str, Any]]:
        """The log's entries of this name."""
        entries = [json.loads(line) for line in self.log().splitlines() if line.startswith("{")]
        return [entry for entry in entries if entry["event"] == name]

    def endpoint(self, scheme: str, path: str = "") -> str:
        """The first address at which it listens for this, with the actual port."""
        endpoints: list[str] = self.events("broker is starting")[-1]["listening"]
        return next(each for each in endpoints if each.startswith(f"{scheme}://") and each.endswith(path))

    def address_of(self, scheme: str) -> Address:
        found = urlsplit(self.endpoint(scheme))
        assert found.hostname is not None
        assert found.port is not None
        return Address(found.hostname, found.port)

    def wait_logged(self, name: str) -> dict[str, Any]:
        """The first entry of this name."""
        return wait_until(lambda: self.events(name), f"{name!r} in the log")[0]

    def end_of_log(self) -> str:
        return "\n".join(self.log().splitlines()[-_SHOWN_LOG_LINES:])

    def statistics(self) -> Any:
        """What `stats --json` tells. Not from within trio."""
        return trio.run(_ask, self.data)

    def processor_s(self) -> float:
        """Processor time it has used, in seconds."""
        return sum(used.user + used.system for used in (each.cpu_times() for each in self.family()))

    def resident_bytes(self) -> int:
        return psutil.Process(self.process.pid).memory_info().rss

    def family(self) -> list[psutil.Process]:
        """The process and those that it has forked or started."""
        first = psutil.Process(self.process.pid)
        return [first, *first.children(recursive=True)]

    # Parts -----------------------------------------------------------------------------------------------------------

    def _limit_open_files(self) -> None:
        assert self._open_files is not None
        resource.setrlimit(resource.RLIMIT_NOFILE, (self._open_files, self._open_files))


async def _ask(data: Path) -> Any:
    async with connect(data) as control:
        return await ask_for_statistics(control, MAX_ENTRIES)


@contextmanager
def running_broker(
    directory: Path, *, config: str | None = None, open_files: int | None = None, **settings: object
) -> Iterator[BrokerProcess]:
    """A broker with these settings (`--set`) and this TOML (`--config`); stopped at the end unless the block did it."""
    arguments = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    if config is not None:
        (directory / "broker.toml").write_text(config)
        arguments += ["--config", str(directory / "broker.toml")]
    broker = BrokerProcess(directory, arguments, open_files=open_files)
    try:
        broker.start()
        yield broker
        if broker.is_running:
            broker.stop()
    except BaseException as error:
        error.add_note(f"The end of the broker's log:\n{broker.end_of_log()}")
        raise
    finally:
        broker.clean_up()
