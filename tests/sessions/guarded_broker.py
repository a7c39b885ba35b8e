"""A broker that asks for login. Its users are alice, who may use prices, and bob, who may do everything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support.broker_under_test import running_broker
from tests.support.users import PASSWORD, add_user

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from tests.support.broker_under_test import BrokerUnderTest, Client

#: The key of its tokens.
SECRET = "a secret of at least thirty-two bytes"


def make_users(directory: Path) -> Path:
    path = directory / "users.toml"
    add_user(path, "alice", read=["prices.>"], write=["prices.*"])
    add_user(path, "bob", read=[">"], write=[">"])
    return path


def replace_in(users: Path, old: str, new: str) -> None:
    text = users.read_text()
    assert old in text
    users.write_text(text.replace(old, new))


def broker_with(users: Path, **settings: Any) -> AbstractAsyncContextManager[BrokerUnderTest]:
    return running_broker(users_file=str(users), **settings)


async def log_in(broker: BrokerUnderTest, user: str = "alice", password: str = PASSWORD, **headers: Any) -> Client:
    return await broker.client(login=user, passcode=password, **headers)
