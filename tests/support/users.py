"""Files of users for tests, with passwords that are quick to check."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stompbroker.access import Right, User, change_users, hash_password

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from stompbroker.access import Users

PASSWORD = "correct horse"


def quick_hash(password: str = PASSWORD) -> str:
    return hash_password(password, memory_bytes=64 * 1024, passes=1)


def add_user(
    path: Path,
    name: str,
    *,
    read: Sequence[str] = (),
    write: Sequence[str] = (),
    manage: Sequence[str] = (),
    roles: Sequence[str] = (),
    password: str | None = PASSWORD,
    certificate: str | None = None,
    limits: Mapping[str, int] | None = None,
) -> None:
    """Add or replace a user."""
    patterns = {Right.READ: tuple(read), Right.WRITE: tuple(write), Right.MANAGE: tuple(manage)}
    user = User(
        password=None if password is None else quick_hash(password),
        roles=tuple(roles),
        patterns=patterns,
        certificate=certificate,
        limits=limits or {},
    )

    def change(users: Users) -> Users:
        return type(users)({**users.users, name: user}, users.roles)

    change_users(path, change)


def remove_user(path: Path, name: str) -> None:
    change_users(path, lambda users: type(users)({key: user for key, user in users.users.items() if key != name}))
