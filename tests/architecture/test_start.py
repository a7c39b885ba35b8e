"""What `stompbroker serve` imports and asks its store before it is ready, by count: a guard of its time and memory.

A start takes 0.5 ms of processor time and 60 KiB for each module. Whoever needs another one raises a bound here, or
imports it where it is used: docs/performance.md says what that has brought.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from tests.support.patience import HARD_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT: Final = Path(__file__).parents[2]
#: Modules, when the writing process is forked and when the broker is ready; and statements of a start on a store that
#: is current, those that set up connections included. A few more than there are.
AT_FORK, WHEN_READY, STATEMENTS = 148, 730, 80
#: Only for the first export, a migration, a server, a client of the management endpoint, a bridge, TLS or a login.
NEVER: Final = (
    "alembic", "argon2", "cryptography", "hypercorn", "jwt", "mako", "numpy", "prometheus_client", "psycopg", "pyarrow",
    "pygments", "rich", "sqlalchemy.dialects.postgresql", "starlette", "stompbroker.client", "websockets",
)  # fmt: skip
NOT_AT_FORK: Final = ("sqlalchemy", "structlog", "stompbroker.config", "stompbroker.delivery", "trio", "typer")

#: Serves until it is ready, and writes what it has seen.
PROGRAM: Final = """
import json, os, signal, sqlite3, sys
directory, found = sys.argv[1:]
sys.argv[1:] = ["serve", "--port", "0", "--http-port", "0", "--data", directory]
from stompbroker.cli import main

at_fork, statements = [], []
fork, connect = os.fork, sqlite3.connect

def noting_fork():
    at_fork.extend(sys.modules)
    process = fork()
    if process:
        from stompbroker.cli.serve import serve
        serve.__globals__["announce"] = write_down
    return process

def noting_connect(*arguments, **more):
    connection = connect(*arguments, **more)
    connection.set_trace_callback(statements.append)
    return connection

def write_down(*_, **__):
    with open(found, "w") as file:
        json.dump([at_fork, list(sys.modules), statements], file)
    os.kill(os.getpid(), signal.SIGTERM)

os.fork, sqlite3.connect = noting_fork, noting_connect
main()
"""


class Start(NamedTuple):
    at_fork: list[str]
    when_ready: list[str]
    statements: list[str]


def start(directory: Path) -> Start:
    found = directory / "found.json"
    command = [sys.executable, "-c", PROGRAM, str(directory / "data"), str(found)]
    subprocess.run(command, check=True, cwd=ROOT, timeout=HARD_TIMEOUT_S, capture_output=True)
    return Start(*json.loads(found.read_text()))


@pytest.fixture(scope="module")
def starts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Start, Start]:
    """The first one of a directory, and the second."""
    directory = tmp_path_factory.mktemp("start")
    return start(directory), start(directory)


def among(modules: Iterable[str], unwanted: tuple[str, ...]) -> list[str]:
    return [each for each in modules if f"{each}.".startswith(tuple(f"{name}." for name in unwanted))]


@pytest.mark.parametrize("number", [0, 1], ids=["first start", "second start"])
def test_a_start_imports_only_what_every_broker_needs(starts: tuple[Start, Start], number: int) -> None:
    modules = starts[number].when_ready

    assert among(modules, NEVER) == []
    assert WHEN_READY - 40 < len(modules) <= WHEN_READY


def test_the_writing_process_is_forked_before_most_is_imported(starts: tuple[Start, Start]) -> None:
    modules = starts[1].at_fork

    assert among(modules, NOT_AT_FORK) == []
    assert AT_FORK - 40 < len(modules) <= AT_FORK


def test_a_start_on_a_current_store_asks_little(starts: tuple[Start, Start]) -> None:
    statements = starts[1].statements

    assert STATEMENTS - 20 < len(statements) <= STATEMENTS, "\n".join(statements)


def test_what_is_unwanted_is_found() -> None:
    assert among(["rich", "richer", "rich.text", "typer"], NEVER) == ["rich", "rich.text"]
