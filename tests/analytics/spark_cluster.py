"""A Spark cluster as its users have it: a master and two workers, processes of their own, on loopback.

Law: knows how they are started, asked and ended, and nothing of reports. Waiting is on what the master says, bounded by
HARD_TIMEOUT_S. Ports are free ones that the master itself has taken, so that other clusters do not matter. However the
block ends, every process in it is gone: each has a session of its own, with the executors that it starts.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
import urllib.request
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

from stompbroker_report.spark_class import environment, program
from tests.support.patience import HARD_TIMEOUT_S
from tests.support.quick_spark import JAVA_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

#: For every Java, also those that a worker starts.
QUICK_JAVA: Final = {"JDK_JAVA_OPTIONS": JAVA_OPTIONS}

LOOK_S: Final = 0.05

_HOST: Final = "127.0.0.1"
_DEPLOY: Final = "org.apache.spark.deploy"

#: What the master logs when it listens, for others and for browsers.
_LISTENS: Final = re.compile(
    rf"Starting Spark master at (?P<address>spark://{re.escape(_HOST)}:\d+)\n"
    r".*Bound MasterWebUI to .* started at http://[^:]+:(?P<web_port>\d+)\n",
    re.DOTALL,
)

#: What the master says about itself and its workers.
State = dict[str, Any]
Found = TypeVar("Found")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What a test can do with it."""

    #: For `--master`.
    address: str
    workers: list[subprocess.Popen[bytes]]
    _web_port: int

    def wait_until(self, what: str, is_so: Callable[[State], bool]) -> None:
        """The master has to say so."""
        _wait_for(self._web_port, what, is_so)

    def kill_a_worker(self) -> None:
        """With all that it runs, as a machine that loses its power does; returns when the master knows."""
        _kill(self.workers[0])
        self.wait_until(
            "the master has lost a worker",
            lambda state: sorted(worker["state"] for worker in state["workers"]) == ["ALIVE", "DEAD"],
        )


@contextmanager
def running_cluster(directory: Path) -> Iterator[Cluster]:
    """Two workers of one core each, which register while a job may already begin; logs are in the directory."""
    with ExitStack() as processes:
        # Without its second listener, which has a port of its own.
        only_this = {"SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false"}
        ports = ("--port", "0", "--webui-port", "0")
        processes.enter_context(_running(directory, "master", "master.Master", *ports, variables=only_this))
        # Who comes before it listens tries again only after five to fifteen seconds.
        listens = _wait_for_log(directory / "master.log")
        size = ("--cores", "1", "--memory", "1g", "--webui-port", "0")
        workers = [
            processes.enter_context(
                _running(
                    directory, name, "worker.Worker", *size, "--work-dir", str(directory / name), listens["address"]
                )
            )
            for name in ("worker-1", "worker-2")
        ]
        yield Cluster(address=listens["address"], workers=workers, _web_port=int(listens["web_port"]))


@contextmanager
def _running(
    directory: Path, name: str, java_class: str, *arguments: str, variables: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    own = {"SPARK_LOCAL_IP": _HOST, "SPARK_DAEMON_MEMORY": "256m", **(variables or {})}
    with (directory / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [program(), f"{_DEPLOY}.{java_class}", "--host", _HOST, *arguments],
            env={**os.environ, **environment(), **QUICK_JAVA, **own},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait_for(web_port: int, what: str, is_so: Callable[[State], bool]) -> None:
    def answer() -> State | None:
        with urllib.request.urlopen(f"http://{_HOST}:{web_port}/json/") as said:
            state: State = json.load(said)
        return state if is_so(state) else None

    _look_until(what, answer)


def _wait_for_log(log: Path) -> re.Match[str]:
    """Where the master listens."""
    return _look_until("the master listens", lambda: _LISTENS.search(log.read_text(errors="replace")))


def _look_until(what: str, look: Callable[[], Found | None]) -> Found:
    """What it finds in the end."""
    gives_up_at = time.monotonic() + HARD_TIMEOUT_S
    while (found := look()) is None:
        if time.monotonic() > gives_up_at:
            raise AssertionError(f"in vain for {HARD_TIMEOUT_S:g} s: {what}")
        time.sleep(LOOK_S)
    return found
