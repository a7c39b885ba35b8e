"""The file of users is replaced as a whole, for its owner only."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from stompbroker.access import User, Users, UsersError, change_users, load_users

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def adding(*names: str) -> Callable[[Users], Users]:
    return lambda users: replace(users, users={**users.users, **dict.fromkeys(names, User())})


def test_it_is_made_with_its_directory_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "data" / "users.toml"

    change_users(path, adding("a"))

    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert load_users(path, is_needed=True).users == {"a": User()}


def test_it_becomes_private_also_if_it_was_not(tmp_path: Path) -> None:
    path = tmp_path / "users.toml"
    path.write_text("")
    path.chmod(0o644)

    change_users(path, adding("a"))

    assert path.stat().st_mode & 0o777 == 0o600


def test_a_change_that_makes_no_sense_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "users.toml"
    change_users(path, adding("a"))
    before = path.read_bytes()

    with pytest.raises(UsersError, match="With this change the file of users cannot be used"):
        change_users(path, adding("a.b"))

    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["users.toml"]


def test_what_a_killed_command_left_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / ".users.toml.new").write_text("half a fi")

    change_users(tmp_path / "users.toml", adding("a"))

    assert os.listdir(tmp_path) == ["users.toml"]


def test_behind_a_link_the_file_is_replaced_and_the_link_stays(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "users.toml"
    link.symlink_to(tmp_path / "elsewhere" / "users.toml")

    change_users(link, adding("a"))

    assert link.is_symlink()
    assert load_users(link, is_needed=True).users


def test_two_commands_at_the_same_time_both_count(tmp_path: Path) -> None:
    path = tmp_path / "users.toml"
    is_inside, may_go_on = threading.Event(), threading.Event()

    def slowly(users: Users) -> Users:
        is_inside.set()
        may_go_on.wait()
        return adding("slow")(users)

    slow = threading.Thread(target=change_users, args=(path, slowly))
    quick = threading.Thread(target=change_users, args=(path, adding("quick")))
    slow.start()
    is_inside.wait()
    quick.start()
    may_go_on.set()
    slow.join()
    quick.join()

    assert load_users(path, is_needed=True).users.keys() == {"slow", "quick"}


def test_a_file_that_is_not_there_has_no_users_unless_it_is_needed(tmp_path: Path) -> None:
    path = tmp_path / "users.toml"

    assert load_users(path, is_needed=False) == Users()
    with pytest.raises(UsersError, match="There is no file of users"):
        load_users(path, is_needed=True)


def test_what_cannot_be_read_or_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"\xff")

    with pytest.raises(UsersError, match="is not UTF-8"):
        load_users(tmp_path / "file", is_needed=False)
    with pytest.raises(UsersError, match="cannot be read: Is a directory"):
        load_users(tmp_path, is_needed=False)
    with pytest.raises(UsersError, match="cannot be written: "):
        change_users(tmp_path / "file" / "users.toml", adding("a"))
