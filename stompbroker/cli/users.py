"""`stompbroker users`: who may log in, and what they may do.

Law: changes the file of users only; a running broker notices that by itself. A password is never an argument, which
other users of the machine can see.
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stompbroker.cli.options import ConfigOption, DataOption, JsonOption, require_utf8
from stompbroker.cli.outcome import CommandFailed
from stompbroker.cli.terminal import print_uncut, say, say_json, table_of

if TYPE_CHECKING:
    from stompbroker.access import User, Users
    from stompbroker.config import Settings

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The user's name.")]
ReadOption = Annotated[
    list[str] | None, typer.Option(metavar="PATTERN", help="Topics to subscribe to; can be repeated.")
]
WriteOption = Annotated[
    list[str] | None, typer.Option(metavar="PATTERN", help="Topics to publish to; can be repeated.")
]
ManageOption = Annotated[
    list[str] | None, typer.Option(metavar="PATTERN", help="Topics to purge and the like; can be repeated.")
]
RoleOption = Annotated[
    list[str] | None,
    typer.Option(metavar="ROLE", help="viewer, operator, bridge, or a role of the file; can be repeated."),
]
SubjectOption = Annotated[
    str | None, typer.Option(metavar="SUBJECT", help='Its certificate\'s subject, such as "CN=billing,O=Example".')
]
NoPasswordOption = Annotated[bool, typer.Option("--no-password", help="Let it log in by certificate or token only.")]
_TAKEN_UP = "A running broker takes that up within seconds."

commands = typer.Typer(rich_markup_mode="rich", no_args_is_help=True)


@commands.callback()
def _about() -> None:
    """Who may log in, and what they may do.

    As soon as there is a user, login is required. The users are in users.toml in the data directory, unless the
    setting users_file says otherwise. A running broker takes up changes within seconds.

    Examples:

    $ stompbroker users add alice --write "orders.>" --read "orders.>"
    $ stompbroker users list
    """


@commands.command("add")
def _add(
    name: NameArgument,
    data: DataOption = None,
    read: ReadOption = None,
    write: WriteOption = None,
    manage: ManageOption = None,
    role: RoleOption = None,
    certificate: SubjectOption = None,
    no_password: NoPasswordOption = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the user if there is one.")] = False,
    config: ConfigOption = None,
) -> None:
    """Add a user. The password is asked for; without a terminal, it is one line of standard input.

    In a pattern, * is one segment, > is any number, and {user} is the user's name. DLQ.> means dead letters, which >
    does not contain. queue: before a pattern means queues.

    The roles viewer (may look) and operator (may change, too) are for the management page and its API. With patterns,
    they hold within these; without any, for the whole broker.

    Examples:

    $ stompbroker users add alice --read "prices.>" --write "orders.*"
    $ stompbroker users add billing --read "inbox.{user}.>" --certificate "CN=billing,O=Example" --no-password
    $ echo "$PASSWORD" | stompbroker users add admin --role operator
    """
    from stompbroker.access import NAME_RULE, Right, User, is_name

    if not is_name(name):
        raise CommandFailed(f'"{name}" cannot be a user: {NAME_RULE}.')
    given = {Right.READ: read or [], Right.WRITE: write or [], Right.MANAGE: manage or []}
    for text in [*(role or []), *chain.from_iterable(given.values()), certificate or ""]:
        require_utf8(text, "NAME")
    settings = _settings(data, config)
    _refuse_taken(_load(settings), name, force=force)
    user = User(
        password=None if no_password else _hash(_ask_for_password(name), settings),
        roles=tuple(role or ()),
        patterns={right: tuple(patterns) for right, patterns in given.items()},
        certificate=certificate,
    )

    def added(users: "Users") -> "Users":
        _refuse_taken(users, name, force=force)  # somebody else may have added it meanwhile
        return replace(users, users={**users.users, name: user})

    path = _change(settings, added)
    say(f"Added {name} to {path}. {_TAKEN_UP}")


def _refuse_taken(users: "Users", name: str, *, force: bool) -> None:
    if not force and name in users.users:
        raise CommandFailed(f"There is a user {name} already; --force replaces it, `users passwd` only its password.")


@commands.command("rm")
def _remove(name: NameArgument, data: DataOption = None, config: ConfigOption = None) -> None:
    """Remove a user. Its connections are closed, its durable subscriptions stay.

    After the last one, a running broker lets nobody in until it is started again.

    Example:

    $ stompbroker users rm alice
    """

    def without(users: "Users") -> "Users":
        _find(users, name)
        return replace(users, users={other: user for other, user in users.users.items() if other != name})

    path = _change(_settings(data, config), without)
    say(f"Removed {name} from {path}. {_TAKEN_UP}")


@commands.command("passwd")
def _change_password(name: NameArgument, data: DataOption = None, config: ConfigOption = None) -> None:
    """Give a user another password. Connections that logged in with the old one are closed.

    The password is asked for; without a terminal, it is one line of standard input.

    Example:

    $ stompbroker users passwd alice
    """
    settings = _settings(data, config)
    _find(_load(settings), name)
    password = _hash(_ask_for_password(name), settings)

    def changed(users: "Users") -> "Users":
        return replace(users, users={**users.users, name: replace(_find(users, name), password=password)})

    path = _change(settings, changed)
    say(f"Changed the password of {name} in {path}. {_TAKEN_UP}")


@commands.command("list")
def _list(data: DataOption = None, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """List the users and what they may do.

    Examples:

    $ stompbroker users list
    $ stompbroker users list --data /var/lib/stompbroker --json
    """
    settings = _settings(data, config)
    found = [_described(name, user) for name, user in sorted(_load(settings).users.items())]
    if as_json:
        say_json({"total": len(found), "users": found})
    elif found:
        columns = {
            "user": lambda one: one["user"],
            "logs in with": lambda one: ", ".join(_ways(one)) or "tokens",
            **{key: _listed(key) for key in ("roles", "read", "write", "manage")},
        }
        print_uncut(table_of(found, columns, folds=("read", "write", "manage")))
    else:
        say(f"There are no users in {settings.users_path}. Add one with: stompbroker users add NAME")


def _listed(key: str) -> Callable[[dict[str, Any]], str]:
    return lambda one: ", ".join(one[key])


def _ways(one: dict[str, Any]) -> list[str]:
    return ["password"] * one["has_password"] + ["certificate"] * (one["certificate"] is not None)


def _described(name: str, user: "User") -> dict[str, Any]:
    from stompbroker.access import Right

    patterns = {right.value: user.patterns.get(right, ()) for right in Right}
    return {
        "user": name,
        "has_password": user.password is not None,
        "certificate": user.certificate,
        "roles": user.roles,
        **patterns,
        **user.limits,
    }


def _settings(data: Path | None, config: Path | None) -> "Settings":
    from stompbroker.config import load

    return load(config, flags={"data": data})


def _load(settings: "Settings") -> "Users":
    from stompbroker.access import load_users

    return load_users(settings.users_path, is_needed=False)


def _find(users: "Users", name: str) -> "User":
    if name not in users.users:
        raise CommandFailed(f"There is no user {name}; `stompbroker users list` shows them.")
    return users.users[name]


def _change(settings: "Settings", change: "Callable[[Users], Users]") -> Path:
    from stompbroker.access import change_users

    change_users(settings.users_path, change)
    return settings.users_path


def _hash(password: str, settings: "Settings") -> str:
    from stompbroker.access import hash_password

    return hash_password(password, memory_bytes=settings.password_memory, passes=settings.password_passes)


def _ask_for_password(name: str) -> str:
    from stompbroker.access import MIN_PASSWORD

    if sys.stdin.isatty():
        from getpass import getpass

        password = getpass(f"Password for {name}: ")
        if getpass("The same again: ") != password:
            raise CommandFailed("The two are not the same; nothing was changed.")
    else:
        try:
            password = sys.stdin.buffer.readline().decode().rstrip("\r\n")
        except UnicodeDecodeError:
            raise CommandFailed("The password on standard input is not UTF-8.") from None
    if len(password) < MIN_PASSWORD:
        raise CommandFailed(f"A password has at least {MIN_PASSWORD} characters; nothing was changed.")
    return password
