"""What may be written in `users.toml`, what it means, and how it is written."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stompbroker.access import Right, User, Users, UsersError, is_name
from stompbroker.access.users import normal_subject, read_users, written
from stompbroker.delivery import DestinationKind, Pattern, parse_pattern
from stompbroker.errors import InvalidDestination
from tests.access.gate import hashed


def read(text: str) -> Users:
    return read_users(text, "FILE")


def mistakes(text: str) -> list[str]:
    with pytest.raises(UsersError) as error:
        read(text)
    first, *lines = str(error.value).splitlines()
    assert first == "FILE cannot be used:"
    return [line.removeprefix("  - ") for line in lines]


def may(users: Users, name: str, right: Right, pattern: str, roles: tuple[str, ...] = ()) -> bool:
    return users.permissions(name, roles).allow(right, parse_pattern(pattern))


def test_a_user_has_its_own_patterns_and_those_of_its_roles() -> None:
    users = read(
        """
        [users.alice]
        read = ["a.*"]
        roles = ["sender", "viewer"]
        [roles.sender]
        write = ["b.>"]
        """
    )
    roles = users.users["alice"].roles

    assert may(users, "alice", Right.READ, "a.b", roles)
    assert may(users, "alice", Right.WRITE, "b.c.d", roles)
    assert not may(users, "alice", Right.READ, "a.>", roles)
    assert not may(users, "alice", Right.READ, "b.c", roles)
    assert not may(users, "alice", Right.MANAGE, "a.b", roles)


@pytest.mark.parametrize("name", ["bob", "topic", "queue", "{user}", "ümläut", "x" * 64, "a@b", "a-b_c"])
def test_a_users_name_is_one_literal_segment_of_a_pattern(name: str) -> None:
    users = read(written(Users({name: User(patterns={Right.READ: ("inbox.{user}.>", "{user}/x")})})))

    permissions = users.permissions(name, ())

    assert permissions.allow(Right.READ, Pattern(("inbox", name, ">")))
    assert permissions.allow(Right.READ, Pattern((name, "x")))
    assert not permissions.allow(Right.READ, Pattern(("inbox", "eve", "x")))
    assert not permissions.allow(Right.READ, Pattern(("inbox", ">")))


def test_a_role_means_whoever_has_it() -> None:
    users = read("[roles.r]\nread = ['inbox.{user}']")

    assert may(users, "a", Right.READ, "inbox.a", ("r",))
    assert not may(users, "a", Right.READ, "inbox.b", ("r",))


def test_everything_does_not_contain_dead_letters() -> None:
    users = read("[users.a]\nread = ['>']\n[users.b]\nread = ['DLQ.>']")

    assert not may(users, "a", Right.READ, "DLQ.orders")
    assert not may(users, "a", Right.READ, "DLQ.>")
    assert may(users, "b", Right.READ, "DLQ.orders")


def test_a_pattern_of_queues_never_means_a_topic() -> None:
    users = read("[users.a]\nread = ['queue:>']")

    assert not may(users, "a", Right.READ, "a")
    assert users.permissions("a", ()).allow(Right.READ, Pattern(("a", "b"), DestinationKind.QUEUE))


NOT_NAMES = [
    "",
    "x" * 65,
    "a.b",
    "a/b",
    "*",
    "a*",
    "#",
    ">",
    "a:b",
    "a b",
    "a\tb",
    "a\n",
    "\x00",
    "a\u200b",
    "a\xa0b",
    "DLQ",
]


@pytest.mark.parametrize("name", NOT_NAMES)
def test_a_name_that_could_mean_more_than_one_user_is_refused(name: str) -> None:
    assert not is_name(name)
    for text in (written(Users({name: User()})), written(Users(roles={name: {}}))):
        (mistake,) = mistakes(text)
        assert "a name has 1 to 64 characters" in mistake


def test_all_mistakes_are_named_at_once_and_no_hash_is_shown() -> None:
    secret = hashed("a password")
    found = mistakes(
        f"""
        user = 1
        [users.alice]
        pasword = "{secret}"
        password = "{secret}x$"
        read = "a"
        write = ["/queue/*", "in-{{user}}.a"]
        roles = ["admin"]
        certificate = "alice"
        max_connections = true
        max_subscriptions = -1
        max_messages_per_s = 1.5
        [users]
        bob = 1
        [roles.operator]
        [roles.a]
        roles = []
        """
    )

    assert len(found) == 14
    assert found == sorted(found, key=found.index)
    text = "\n".join(found)
    assert secret.rsplit("$", 1)[1] not in text
    for expected in (
        'unknown key "user" at the top; allowed are users, roles',
        'unknown key "pasword" in [users.alice]; allowed are password, roles, read',
        "[users.alice]: password must be a hash of argon2id",
        "[users.alice]: read must be a list of texts",
        "[users.alice]: write: '/queue/*' has a wildcard",
        "[users.alice]: write: {user} must be a segment of its own",
        '[users.alice]: there is no role "admin"; there are viewer, operator, bridge',
        "[users.alice]: certificate must be a subject",
        "[users.alice]: max_connections must be a whole number from 0",
        "[users.alice]: max_subscriptions must be",
        "[users.alice]: max_messages_per_s must be",
        "[users.bob] must be a table",
        "[roles.operator]: this role is built in",
        'unknown key "roles" in [roles.a]',
    ):
        assert expected in text


@pytest.mark.parametrize(
    "password",
    [
        "secret",
        "$argon2i$v=19$m=64,t=1,p=1$c2FsdHNhbHRzYWx0$aGFzaGhhc2hoYXNoaGFzaA",
        "$argon2id$v=19$m=1048577,t=1,p=1$c2FsdHNhbHRzYWx0$aGFzaGhhc2hoYXNoaGFzaA",
        "$argon2id$v=19$m=64,t=101,p=1$c2FsdHNhbHRzYWx0$aGFzaGhhc2hoYXNoaGFzaA",
        "$argon2id$v=19$m=64,t=1,p=17$c2FsdHNhbHRzYWx0$aGFzaGhhc2hoYXNoaGFzaA",
        "$argon2id$v=19$m=64,t=1,p=1$c2FsdHNhbHRzYWx0$",
    ],
)
def test_a_password_is_a_hash_whose_check_costs_no_fortune(password: str) -> None:
    (mistake,) = mistakes(f"[users.a]\npassword = '{password}'")

    assert mistake.startswith("[users.a]: password must be a hash of argon2id")


def test_two_users_cannot_have_the_same_certificate() -> None:
    (mistake,) = mistakes("[users.a]\ncertificate = 'CN=a,O=b'\n[users.b]\ncertificate = 'CN=a, O=b'")

    assert mistake == "[users.b]: certificate is also that of a"


@pytest.mark.parametrize(
    ("subject", "normal"),
    [
        ("CN=a, O=b ,  C=c", "CN=a,O=b,C=c"),
        (r"CN=a\, b , O=c", r"CN=a\, b,O=c"),
        (r"CN=a\ , O=c", r"CN=a\ ,O=c"),
        (r"CN=a\\ , O=c", r"CN=a\\,O=c"),
    ],
)
def test_only_blanks_around_commas_make_no_difference_between_subjects(subject: str, normal: str) -> None:
    assert normal_subject(subject) == normal
    assert normal_subject(normal) == normal


@pytest.mark.parametrize("text", ["[users", "a = 1979-13-45", "[" * 5000, "a = " + "[" * 5000, "a = " + "9" * 5000])
def test_what_is_no_toml_is_a_sentence(text: str) -> None:
    with pytest.raises(UsersError, match=r"^FILE is not valid TOML: "):
        read(text)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["a.*", "{user}"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
KEYS = ["password", "roles", "read", "write", "manage", "certificate", "max_connections", "users", "x"]


def as_toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{as_toml(str(key))} = {as_toml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(as_toml, value)) + "]"
    if isinstance(value, str):
        return '"' + "".join(f"\\U{ord(sign):08x}" for sign in value) + '"'
    return str(value).lower() if isinstance(value, bool) else repr(value)


@given(
    st.text(max_size=40)
    | st.dictionaries(
        st.sampled_from(["users", "roles", "x"]),
        values | st.dictionaries(st.text(max_size=4), st.dictionaries(st.sampled_from(KEYS), values, max_size=4)),
    ).map(lambda content: "\n".join(f"{key} = {as_toml(value)}" for key, value in content.items()))
)
@example("users = {}")
def test_garbage_is_read_or_an_operators_mistake(text: str) -> None:
    try:
        users = read(text)
    except UsersError:
        return
    assert read(written(users)) == users


def is_permission(text: str) -> bool:
    try:
        parse_pattern(text)
    except InvalidDestination:
        return False
    return "{user}" not in text


patterns = st.dictionaries(
    st.sampled_from(Right),
    st.lists(st.text(max_size=9).filter(is_permission) | st.sampled_from(["queue:a", "{user}.>"]), min_size=1).map(
        tuple
    ),
)
names = st.text(min_size=1, max_size=6).filter(is_name)
users_of_files = st.builds(
    User,
    password=st.none() | st.just("$argon2id$v=19$m=64,t=1,p=1$c2FsdHNhbHRzYWx0$aGFzaGhhc2hoYXNoaGFzaA"),
    roles=st.lists(st.sampled_from(["viewer", "operator", "bridge"])).map(tuple),
    patterns=patterns,
    limits=st.dictionaries(st.sampled_from(["max_connections", "max_messages_per_s"]), st.integers(0, 9)),
)


@given(
    st.dictionaries(names, users_of_files),
    st.dictionaries(names.filter(lambda n: n not in ("viewer", "operator", "bridge")), patterns),
)
@example({"a": User(certificate='CN="x\\7f",O=\u2028\x7f')}, {})
def test_what_is_written_is_read_as_it_was(
    users: dict[str, User], roles: dict[str, dict[Right, tuple[str, ...]]]
) -> None:
    content = Users(users, roles)

    assert read(written(content)) == content


def test_the_repr_of_a_user_has_no_hash() -> None:
    assert "argon2" not in repr(replace(User(), password=hashed("a password")))
