"""An authenticator on a real file of users, with hashes that cost next to nothing."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from stompbroker.access import AccessSettings, Authenticator, Credentials, LoginRefused, hash_password
from stompbroker.clock import Clock

if TYPE_CHECKING:
    from pathlib import Path

    from stompbroker.access import Grant

MEMORY = 64 * 1024


@cache
def hashed(password: str) -> str:
    return hash_password(password, memory_bytes=MEMORY, passes=1)


def entry(name: str, password: str | None = None, **values: object) -> str:
    """A table of the file."""
    given = values | ({"password": hashed(password)} if password is not None else {})
    return "\n".join([f"[users.{name}]", *(f"{key} = {value!r}" for key, value in given.items()), ""])


@dataclass(frozen=True, slots=True)
class Gate:
    """`settings` are those of `AccessSettings`."""

    authenticator: Authenticator
    clock: Clock
    path: Path

    @staticmethod
    def at(directory: Path, *entries: str, **settings: Any) -> Gate:
        """With these tables as its file, or without a file."""
        path = directory / "users.toml"
        if entries:
            path.write_text("\n".join(entries))
        clock = Clock()
        given = {"password_memory": MEMORY, "password_passes": 1} | settings
        return Gate(Authenticator(AccessSettings(users_path=path, **given), clock), clock, path)

    def rewrite(self, *entries: str) -> None:
        self.path.write_text("\n".join(entries))
        self.authenticator.reload()

    async def let_in(self, login: str | None = None, passcode: str | None = None, **shown: Any) -> Grant:
        return await self.authenticator.check(as_shown(login, passcode, **shown))

    async def refuse(self, login: str | None = None, passcode: str | None = None, **shown: Any) -> LoginRefused:
        with pytest.raises(LoginRefused) as refused:
            await self.authenticator.check(as_shown(login, passcode, **shown))
        return refused.value


def as_shown(login: str | None = None, passcode: str | None = None, *, address: str = "", **more: Any) -> Credentials:
    return Credentials(login=login, passcode=passcode, address=address or "192.0.2.1", **more)
