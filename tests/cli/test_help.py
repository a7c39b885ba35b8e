"""What one sees first."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from stompbroker import __version__
from stompbroker.build import BUILD

if TYPE_CHECKING:
    from tests.cli.conftest import Program

COMMANDS = [
    "serve",
    "publish",
    "subscribe",
    "stats",
    "config",
    "migrate",
    "report",
    "spotty",
    "subscriptions",
    "last-values",
]


def test_help_lists_every_command_and_how_to_begin(program: Program) -> None:
    done = program.run("--help")

    assert done.returncode == 0
    for command in COMMANDS:
        assert f" {command} " in done.stdout
    assert "$ stompbroker serve" in done.stdout


@pytest.mark.parametrize("command", [*COMMANDS, "subscriptions rm", "last-values show", "last-values remove"])
def test_the_help_of_every_command_has_examples(program: Program, command: str) -> None:
    done = program.run(*command.split(), "--help")

    assert done.returncode == 0
    assert "Examples:" in done.stdout
    assert f"stompbroker {command}" in done.stdout.split("Examples:")[1]


def test_the_version_is_shown(program: Program) -> None:
    assert program.run("--version").stdout == f"stompbroker {__version__} ({BUILD})\n"


def test_a_misspelt_command_is_an_operators_mistake(program: Program) -> None:
    done = program.run("pubish")

    assert done.returncode == 2
    assert "publish" in done.stderr


def test_help_imports_neither_trio_nor_pydantic() -> None:
    script = "import sys; from stompbroker.cli import application; application.make_application(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    loaded = set(done.stdout.split())

    assert "stompbroker.cli.serve" in loaded
    assert not loaded & {
        "trio",
        "pydantic",
        "structlog",
        "rich.table",
        "sqlalchemy",
        "stompbroker.stomp",
        "stompbroker.config",
    }
