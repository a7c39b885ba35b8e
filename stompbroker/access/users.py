"""The users and roles of `users.toml`: its text read and written.

Law: pure. Unknown keys and wrong values are refused, all of them at once; no message has a hash in it. Whatever was
read can be written and read again, except for its comments.
"""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final

from stompbroker.access.grant import BRIDGE_ROLE, Permissions, Right
from stompbroker.delivery import DEAD_LETTERS, DestinationKind, Pattern, parse_pattern
from stompbroker.errors import InvalidDestination, OperatorError, shorten

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import TypeAlias

    #: Patterns as they are written.
    Patterns: TypeAlias = Mapping[Right, tuple[str, ...]]

#: The first two are for the management endpoint. They have no patterns.
BUILT_IN_ROLES: Final = ("viewer", "operator", BRIDGE_ROLE)
#: In a pattern: the segment that stands for the user's name.
USER_SEGMENT: Final = "{user}"
#: Before a pattern of queues.
QUEUE_PREFIX: Final = "queue:"

#: Characters in the name of a user or role.
MAX_NAME: Final = 64
#: Separators and wildcards of destinations, and the separator of HTTP Basic.
_NOT_IN_NAMES: Final = frozenset("./*#>:")
NAME_RULE: Final = (
    f"a name has 1 to {MAX_NAME} characters, no blanks or control characters and none of . / * # > : "
    f"({DEAD_LETTERS} is taken: it stands for dead letters)"
)

#: Key in the file → field of `Limits`.
LIMIT_KEYS: Final = {
    "max_connections": "connections",
    "max_subscriptions": "subscriptions",
    "max_messages_per_s": "messages_per_s",
}
MAX_LIMIT: Final = 100_000_000
_RIGHT_KEYS: Final = tuple(right.value for right in Right)
_USER_KEYS: Final = ("password", "roles", *_RIGHT_KEYS, "certificate", *LIMIT_KEYS)

#: A hash of argon2id in PHC form. The memory is in KiB.
_HASH: Final = re.compile(
    r"\$argon2id\$v=19\$m=([1-9]\d{0,9}),t=([1-9]\d{0,4}),p=([1-9]\d?)\$[A-Za-z0-9+/]{11,128}\$[A-Za-z0-9+/]{16,128}"
)
#: Most that a hash may ask for: memory in KiB, passes, lanes. Each login pays for it.
_MAX_COSTS: Final = (1024 * 1024, 100, 16)
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
#: An escaped character, which is kept, or a comma with the blanks around it.
_COMMA: Final = re.compile(r"(\\.)| *, *", re.DOTALL)

_HEADER: Final = """\
# The users of a stompbroker and what they may do. `stompbroker users` writes this file as a whole, without comments of
# yours. A running broker reads it again within seconds after a change.
"""


class UsersError(OperatorError):
    """The file of users cannot be used; the text has one line for each mistake."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    #: None if the user has only tokens or a certificate.
    password: str | None = field(default=None, repr=False)
    roles: tuple[str, ...] = ()
    patterns: Patterns = field(default_factory=dict)
    #: The subject of the user's certificate, as in RFC 4514.
    certificate: str | None = None
    #: By key of the file; those that are not given are the broker's.
    limits: Mapping[str, int] = field(default_factory=dict)


@final
@dataclass(frozen=True, slots=True)
class Users:
    users: Mapping[str, User] = field(default_factory=dict)
    roles: Mapping[str, Patterns] = field(default_factory=dict)

    def known_roles(self, names: Iterable[str]) -> frozenset[str]:
        return frozenset(name for name in names if name in self.roles or name in BUILT_IN_ROLES)

    def permissions(self, name: str, roles: Iterable[str]) -> Permissions:
        """Of a user's own entry, if there is one, and of these roles, which must be known."""
        own = self.users[name].patterns if name in self.users else {}
        return _permissions(own, name).joined(_permissions(self.roles.get(role, {}), name) for role in sorted(roles))


def is_name(text: str) -> bool:
    """Whether a user or a role may have this name. A token's subject could be `>`, or a path."""
    return (
        0 < len(text) <= MAX_NAME
        and text.isprintable()
        and " " not in text
        and _NOT_IN_NAMES.isdisjoint(text)
        and text != DEAD_LETTERS
    )


def read_permission(text: str) -> Pattern:
    """A pattern of the file, with {user} still in it. Raises InvalidDestination."""
    pattern = parse_pattern(text.removeprefix(QUEUE_PREFIX))
    if any(USER_SEGMENT in segment != USER_SEGMENT for segment in pattern.segments):
        raise InvalidDestination(f"{USER_SEGMENT} must be a segment of its own, as in inbox.{USER_SEGMENT}.>")
    return Pattern(pattern.segments, DestinationKind.QUEUE) if text.startswith(QUEUE_PREFIX) else pattern


def _permissions(patterns: Patterns, user: str) -> Permissions:
    return Permissions({right: tuple(_for_user(text, user) for text in texts) for right, texts in patterns.items()})


def _for_user(text: str, user: str) -> Pattern:
    """The name goes in after parsing, so it is one segment whatever is in it."""
    pattern = read_permission(text)
    return Pattern(tuple(user if one == USER_SEGMENT else one for one in pattern.segments), pattern.kind)


def normal_subject(subject: str) -> str:
    """Without the blanks around commas, where programs differ; an escaped blank is part of a value."""
    return _COMMA.sub(lambda found: found[1] or ",", subject.strip(" "))


# Reading -------------------------------------------------------------------------------------------------------------


def read_users(text: str, where: str) -> Users:
    """`where` names the file in messages. Raises UsersError, which names every mistake found."""
    try:
        content = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsersError(f"{where} is not valid TOML: {shorten(str(error), 200)}.") from None
    reader = _Reader()
    users = reader.read(content)
    if reader.problems:
        raise UsersError("\n".join([f"{where} cannot be used:", *(f"  - {line}" for line in reader.problems)]))
    return users


@final
class _Reader:
    def __init__(self) -> None:
        self.problems: list[str] = []

    def read(self, content: dict[str, Any]) -> Users:
        self._refuse_unknown(content, "at the top", ("users", "roles"))
        roles = {name: self._patterns(table, place) for name, place, table in self._tables(content, "roles")}
        for name in roles.keys() & set(BUILT_IN_ROLES):
            self.problems.append(f"[roles.{name}]: this role is built in, without patterns; choose another")
        users = {name: self._user(table, place) for name, place, table in self._tables(content, "users")}
        found = Users(users, roles)
        owners: dict[str, str] = {}
        for name, user in users.items():
            for role in sorted(set(user.roles) - found.known_roles(user.roles)):
                known = ", ".join([*BUILT_IN_ROLES, *roles])
                self.problems.append(f"{_heading('users', name)}: there is no role {_shown(role)}; there are {known}")
            if user.certificate is not None and owners.setdefault(user.certificate, name) != name:
                self.problems.append(
                    f"{_heading('users', name)}: certificate is also that of {owners[user.certificate]}"
                )
        return found

    def _tables(self, content: dict[str, Any], section: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """Name, place for messages, and content of each table of a section."""
        tables = content.get(section, {})
        if not isinstance(tables, dict):
            self.problems.append(f"{section} must be tables such as [{section}.NAME]")
            return
        for name, table in tables.items():
            place = _heading(section, shorten(name, MAX_NAME))
            if not is_name(name):
                self.problems.append(f"{place}: {NAME_RULE}")
            if isinstance(table, dict):
                self._refuse_unknown(table, f"in {place}", _USER_KEYS if section == "users" else _RIGHT_KEYS)
                yield name, place, table
            else:
                self.problems.append(f"{place} must be a table")

    def _refuse_unknown(self, table: dict[str, Any], where: str, known: tuple[str, ...]) -> None:
        for key in table.keys() - set(known):
            self.problems.append(f"unknown key {_shown(key)} {where}; allowed are {', '.join(known)}")

    def _user(self, table: dict[str, Any], place: str) -> User:
        password, certificate = table.get("password"), table.get("certificate")
        if password is not None and not _is_hash(password):
            self.problems.append(
                f"{place}: password must be a hash of argon2id, $argon2id$v=19$m=…, as `stompbroker users passwd` "
                "makes it, with at most 1 GiB of memory, 100 passes and 16 lanes"
            )
        if certificate is not None and not (isinstance(certificate, str) and "=" in certificate):
            self.problems.append(f'{place}: certificate must be a subject such as "CN=billing,O=Example"')
            certificate = None
        limits = {key: table[key] for key in LIMIT_KEYS if key in table}
        for key, value in limits.items():
            if type(value) is not int or not 0 <= value <= MAX_LIMIT:  # a bool is an int, too
                self.problems.append(f"{place}: {key} must be a whole number from 0 (no limit) to {MAX_LIMIT:,}")
        return User(
            password=password,
            roles=self._texts(table, "roles", place),
            patterns=self._patterns(table, place),
            certificate=normal_subject(certificate) if certificate is not None else None,
            limits=limits,
        )

    def _patterns(self, table: dict[str, Any], place: str) -> Patterns:
        found = {right: self._texts(table, right.value, place) for right in Right if right.value in table}
        for right, texts in found.items():
            for text in texts:
                try:
                    read_permission(text)
                except InvalidDestination as error:
                    self.problems.append(f"{place}: {right.value}: {error}")
        return found

    def _texts(self, table: dict[str, Any], key: str, place: str) -> tuple[str, ...]:
        value = table.get(key, [])
        if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
            self.problems.append(f'{place}: {key} must be a list of texts, such as ["a", "b"]')
            return ()
        return tuple(value)


def _is_hash(value: object) -> bool:
    found = _HASH.fullmatch(value) if isinstance(value, str) else None
    return found is not None and all(int(cost) <= most for cost, most in zip(found.groups(), _MAX_COSTS, strict=True))


def _shown(text: str) -> str:
    return _literal(shorten(text, MAX_NAME))


# Writing -------------------------------------------------------------------------------------------------------------


def written(users: Users) -> str:
    """The text of a file that has these users; nothing is checked."""
    blocks = [_HEADER]
    for name, user in users.users.items():
        values = {
            "password": user.password,
            "roles": user.roles,
            **_by_key(user.patterns),
            "certificate": user.certificate,
            **user.limits,
        }
        blocks.append(_table("users", name, values))
    blocks += [_table("roles", name, _by_key(patterns)) for name, patterns in users.roles.items()]
    return "\n".join(blocks)


def _by_key(patterns: Patterns) -> dict[str, tuple[str, ...]]:
    return {right.value: patterns.get(right, ()) for right in Right}


def _table(section: str, name: str, values: Mapping[str, object]) -> str:
    lines = [f"{key} = {_literal(value)}" for key, value in values.items() if value is not None and value != ()]
    return "\n".join([_heading(section, name), *lines, ""])


def _heading(section: str, name: str) -> str:
    return f"[{section}.{name if _BARE_KEY.fullmatch(name) else _literal(name)}]"


def _literal(value: object) -> str:
    # JSON is TOML here, except that JSON leaves DEL as it is.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
