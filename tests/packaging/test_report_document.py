"""What `docs/report.md` says of options, tables and exit codes is so."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from stompbroker_report.__main__ import EXIT_CODES
from stompbroker_report.schemas import MARTS
from tests.packaging.test_compose import UsageError, parse

DOCUMENT = (Path(__file__).parents[2] / "docs" / "report.md").read_text()


def commands() -> list[str]:
    lines = re.findall(r"(?m)(?:^    |\* +|ExecStart=|`)\S*\bstompbroker (report\b[^#`\n]*)", DOCUMENT)
    return list(dict.fromkeys(line.strip() for line in lines))


@pytest.mark.parametrize("line", commands())
def test_every_command_can_be_typed(line: str) -> None:
    parse(shlex.split(line))


def test_commands_are_found_and_a_wrong_one_would_be() -> None:
    assert len(commands()) >= 6
    with pytest.raises(UsageError):
        parse(["report", "--lakes", "x"])


def test_every_option_in_the_table_exists() -> None:
    table = DOCUMENT.partition("| option |")[2].partition("\n\n")[0]

    for option in re.findall(r"`(--[a-z]+)`", table):
        parse(["report", option] if option == "--nightly" else ["report", option, "1"])


def test_every_table_is_named() -> None:
    table = DOCUMENT.partition("| table | a row is |\n|---|---|\n")[2].partition("\n\n")[0]

    named = [name for line in table.splitlines() for name in re.findall(r"`(\w+)`", line.split("|")[1])]
    assert sorted(named) == sorted(MARTS)


def test_every_exit_code_is_explained() -> None:
    table = DOCUMENT.partition("## Exit codes")[2]

    assert {int(code) for code in re.findall(r"(?m)^\| (\d+) \|", table)} == {0, 1, 130, *EXIT_CODES.values()}
