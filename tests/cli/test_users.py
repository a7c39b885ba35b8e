"""`stompbroker users`: who may log in, and what they may do."""

from __future__ import annotations

import json
import stat
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import pytest

from stompbroker.access import load_users
from stompbroker.cli.outcome import CommandFailed
from stompbroker.cli.users import _ask_for_password
from tests.support.users import PASSWORD

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Program

#: Hashing takes the least that is allowed.
QUICK = {"STOMPBROKER_PASSWORD_MEMORY": "8 MiB", "STOMPBROKER_PASSWORD_PASSES": "1"}


@pytest.fixture
def users(program: Program) -> Path:
    """The file, with alice in it."""
    done = program.run("users", "add", "alice", "--read", "a.>", "--role", "viewer", given=f"{PASSWORD}\n", **QUICK)
    assert (done.returncode, done.stderr) == (0, "")
    return program.directory / "data" / "users.toml"


def test_a_user_is_added_with_a_password_from_standard_input(program: Program) -> None:
    done = program.run(
        *("users", "add", "bob", "--data", "elsewhere", "--read", "in.{user}.>", "--read", "DLQ.>"),
        *("--write", "out.*", "--manage", "queue:jobs", "--role", "operator"),
        given=f"{PASSWORD}\nand another line",
        **QUICK,
    )

    path = program.directory / "elsewhere" / "users.toml"
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "Added bob to elsewhere/users.toml. A running broker takes that up within seconds.\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert PASSWORD not in path.read_text()
    listed = json.loads(program.run("users", "list", "--data", "elsewhere", "--json").stdout)
    assert listed == {
        "total": 1,
        "users": [
            {
                "user": "bob",
                "has_password": True,
                "certificate": None,
                "roles": ["operator"],
                "read": ["in.{user}.>", "DLQ.>"],
                "write": ["out.*"],
                "manage": ["queue:jobs"],
            }
        ],
    }


@pytest.mark.parametrize(
    ("typed", "outcome"),
    [([PASSWORD, PASSWORD], nullcontext()), ([PASSWORD, "other"], pytest.raises(CommandFailed, match="not the same"))],
)
def test_on_a_terminal_the_password_is_asked_for_twice(
    monkeypatch: pytest.MonkeyPatch, typed: list[str], outcome: AbstractContextManager[object]
) -> None:
    questions: list[str] = []

    def getpass(question: str) -> str:
        questions.append(question)
        return typed[len(questions) - 1]

    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("getpass.getpass", getpass)

    with outcome:
        assert _ask_for_password("alice") == PASSWORD

    assert questions == ["Password for alice: ", "The same again: "]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["bob"], "A password has at least 8 characters; nothing was changed."),
        (["a/b"], '"a/b" cannot be a user: a name has 1 to 64 characters'),
        (["bob", "--no-password", "--role", "boss"], 'there is no role "boss"; there are viewer, operator'),
        (["bob", "--no-password", "--read", "a.{user}x"], "read: {user} must be a segment of its own"),
        (["bob", "--no-password", "--write", "/queue/*"], "[users.bob]: write: "),
        (["bob", "--no-password", "--certificate", "billing"], 'must be a subject such as "CN=billing,O=Example"'),
        (["alice", "--no-password"], "There is a user alice already; --force replaces it, `users passwd` only its"),
    ],
)
def test_what_cannot_be_is_refused_with_a_reason(
    program: Program, users: Path, arguments: list[str], words: str
) -> None:
    before = users.read_text()

    done = program.run("users", "add", *arguments, given="short\n")

    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert users.read_text() == before


def test_a_certificate_can_stand_for_a_password(program: Program, users: Path) -> None:
    assert program.run("users", "add", "bob", "--certificate", "CN=bob, O=Ex", "--no-password").returncode == 0
    again = program.run("users", "add", "eve", "--certificate", "CN=bob,O=Ex", "--no-password")

    listed = program.run("users", "list").stdout.splitlines()
    assert [line.split()[:2] for line in listed[1:]] == [["alice", "password"], ["bob", "certificate"]]
    assert load_users(users, is_needed=True).users["bob"].certificate == "CN=bob,O=Ex"
    assert again.returncode == 2
    assert "certificate is also that of bob" in again.stderr


def test_force_replaces_a_user(program: Program, users: Path) -> None:
    assert program.run("users", "add", "alice", "--force", "--no-password", "--write", "b").returncode == 0

    (alice,) = json.loads(program.run("users", "list", "--json").stdout)["users"]
    assert (alice["has_password"], alice["roles"], alice["read"], alice["write"]) == (False, [], [], ["b"])


def test_a_password_is_changed_and_nothing_else(program: Program, users: Path) -> None:
    before = load_users(users, is_needed=True).users["alice"]

    done = program.run("users", "passwd", "alice", given="another one\n", **QUICK)

    after = load_users(users, is_needed=True).users["alice"]
    assert done.stdout.startswith("Changed the password of alice in data/users.toml.")
    assert after.password != before.password
    assert (after.roles, dict(after.patterns)) == (before.roles, dict(before.patterns))


def test_a_user_is_removed(program: Program, users: Path) -> None:
    done = program.run("users", "rm", "alice")

    assert done.stdout.startswith("Removed alice from data/users.toml.")
    assert program.run("users", "list").stdout.startswith("There are no users in data/users.toml. Add one with: ")


@pytest.mark.parametrize("command", ["rm", "passwd"])
def test_a_user_that_is_not_there_is_named(program: Program, users: Path, command: str) -> None:
    done = program.run("users", command, "bob", given=f"{PASSWORD}\n")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "stompbroker: There is no user bob; `stompbroker users list` shows them.\n"


def test_the_file_of_the_settings_is_used(program: Program) -> None:
    (program.directory / "stompbroker.toml").write_text('users_file = "who.toml"')

    assert program.run("users", "add", "alice", "--no-password").returncode == 0

    assert (program.directory / "who.toml").exists()


def test_a_file_that_cannot_be_used_is_not_replaced(program: Program, users: Path) -> None:
    users.write_text("[users.alice]\npasword = 1\n")

    done = program.run("users", "add", "bob", "--no-password")

    assert done.returncode == 2
    assert "unknown key" in done.stderr
    assert "pasword" in users.read_text()
