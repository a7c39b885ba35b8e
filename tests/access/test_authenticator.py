"""Who is let in, as whom, and until when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jwt
import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import wait_all_tasks_blocked

from stompbroker.access import ANYBODY, Right, UsersError
from stompbroker.access import authenticator as authenticator_module
from stompbroker.access import passwords as passwords_module
from stompbroker.clock import NANOSECONDS
from stompbroker.delivery import parse_pattern
from stompbroker.errors import OperatorError
from tests.access.gate import Gate, as_shown, entry, hashed
from tests.access.test_passwords import HeldHashing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from trio.testing import MockClock

SECRET = "a shared secret of thirty-two characters"
ALICE = entry("alice", "alice's secret", read=["a.>"])
BOB = entry("bob", "bob's secret", certificate="CN=bob, O=Example")


@pytest.fixture
def hashing(monkeypatch: pytest.MonkeyPatch) -> Iterator[HeldHashing]:
    """Hashing that goes on, and is counted, until a test holds it."""
    held = HeldHashing()
    held.may_go_on.set()
    monkeypatch.setattr(passwords_module, "verify", held)
    yield held
    held.may_go_on.set()


@pytest.fixture
def keys(tmp_path: Path) -> str:
    (tmp_path / "keys").write_text(SECRET)
    return str(tmp_path / "keys")


def token(gate: Gate, secret: str = SECRET, lasts_s: int = 60, **claims: Any) -> str:
    now_s = gate.clock.now_ns() // NANOSECONDS
    return jwt.encode({"sub": "alice", "exp": now_s + lasts_s} | claims, secret, "HS256")


# Whether login is required


async def test_without_users_everybody_is_anybody(tmp_path: Path) -> None:
    gate = Gate.at(tmp_path)

    assert not gate.authenticator.is_required
    assert await gate.let_in() is ANYBODY
    assert await gate.let_in("alice", "whatever") is ANYBODY
    assert gate.authenticator.renewed(ANYBODY) is ANYBODY


async def test_with_a_user_login_is_required_and_whoever_came_before_has_to_go(tmp_path: Path) -> None:
    gate = Gate.at(tmp_path)

    gate.rewrite(ALICE)

    assert gate.authenticator.is_required
    assert gate.authenticator.renewed(ANYBODY) is None
    assert "asks for login and passcode" in (await gate.refuse()).detail
    await gate.refuse("alice")
    await gate.refuse("alice", "")
    await gate.refuse("", "alice's secret")


async def test_login_stays_required_after_the_last_user_is_gone(tmp_path: Path) -> None:
    gate = Gate.at(tmp_path, ALICE)

    gate.rewrite("# nobody\n")

    assert gate.authenticator.is_required
    await gate.refuse("alice", "alice's secret")
    await gate.refuse()


async def test_keys_for_tokens_alone_require_login(tmp_path: Path, keys: str) -> None:
    assert Gate.at(tmp_path, token_keys=keys).authenticator.is_required


async def test_a_start_with_a_broken_file_or_without_a_named_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsersError, match="unknown key"):
        Gate.at(tmp_path, "x = 1")
    with pytest.raises(UsersError, match="There is no file of users"):
        Gate.at(tmp_path / "elsewhere", users_file="users.toml")
    with pytest.raises(OperatorError, match="token_keys"):
        Gate.at(tmp_path / "elsewhere", token_keys=str(tmp_path / "keys"))


# Passwords


async def test_who_has_the_password_is_let_in_as_the_user_with_its_permissions_and_limits(tmp_path: Path) -> None:
    gate = Gate.at(
        tmp_path,
        entry("alice", "alice's secret", read=["a.>"], roles=["r", "operator"], max_connections=3),
        "[roles.r]\nwrite = ['{user}.x']",
        max_user_connections=5,
        max_user_subscriptions=7,
    )

    grant = await gate.let_in("alice", "alice's secret")

    assert (grant.user, set(grant.roles), grant.expires_at_ns) == ("alice", {"r", "operator"}, None)
    assert grant.allows(Right.READ, parse_pattern("a.b"))
    assert grant.allows(Right.WRITE, parse_pattern("alice.x"))
    assert (grant.limits.connections, grant.limits.subscriptions, grant.limits.messages_per_s) == (3, 7, 0)
    assert await gate.let_in("alice", "alice's secret") is grant
    assert "argon2" not in repr(grant)


async def test_a_wrong_user_and_a_wrong_password_are_told_and_cost_the_same(
    tmp_path: Path, hashing: HeldHashing
) -> None:
    gate = Gate.at(tmp_path, ALICE, "[users.carol]\ncertificate = 'CN=carol'")

    wrong = [await gate.refuse(name, "wrong secret") for name in ("alice", "nobody", "carol", "", "*")]

    assert {refused.message for refused in wrong} == {"login refused - wrong login or passcode"}
    assert [refused.reason for refused in wrong] == [
        "wrong passcode",
        "unknown user",
        "wrong passcode",
        *["unknown user"] * 2,
    ]
    stored, passwords = zip(*hashing.calls, strict=True)
    assert passwords == ("wrong secret",) * 5
    assert {one.rsplit("$", 2)[0] for one in stored} == {hashed("alice's secret").rsplit("$", 2)[0]}
    assert gate.authenticator.passwords.hashed == 5


async def test_a_wrong_user_costs_the_same_as_a_wrong_password_also_the_second_time(
    tmp_path: Path, hashing: HeldHashing
) -> None:
    gate = Gate.at(tmp_path, ALICE)

    for name in ("alice", "nobody") * 2:
        await gate.refuse(name, "wrong secret")

    assert [password for _, password in hashing.calls] == ["wrong secret"] * 4


async def test_a_storm_of_clients_with_few_users_hashes_once_for_each(tmp_path: Path, hashing: HeldHashing) -> None:
    gate = Gate.at(tmp_path, *(entry(f"u{number}", f"secret of u{number}") for number in range(5)))
    users: list[str] = []
    hashing.may_go_on.clear()

    async def log_in(name: str) -> None:
        users.append((await gate.let_in(name, f"secret of {name}")).user)

    async with trio.open_nursery() as nursery:
        for number in range(500):
            nursery.start_soon(log_in, f"u{number % 5}")
        await wait_all_tasks_blocked()
        hashing.may_go_on.set()

    assert sorted(users) == sorted(f"u{number % 5}" for number in range(500))
    assert gate.authenticator.passwords.hashed == 5


async def test_the_turn_is_announced_before_hashing_and_only_then(tmp_path: Path, hashing: HeldHashing) -> None:
    gate, admitted = Gate.at(tmp_path, ALICE, BOB), list[str]()
    hashing.may_go_on.clear()

    async def log_in(name: str) -> None:
        await gate.authenticator.check(as_shown(name, f"{name}'s secret"), lambda: admitted.append(name))

    gate.authenticator.passwords.turns._free = 1
    async with trio.open_nursery() as nursery:
        nursery.start_soon(log_in, "alice")
        await wait_all_tasks_blocked()
        nursery.start_soon(log_in, "bob")
        await wait_all_tasks_blocked()
        assert admitted == ["alice"]
        hashing.may_go_on.set()
    await log_in("bob")

    assert admitted == ["alice", "bob"]


# Floods of wrong logins


async def test_after_too_many_wrong_logins_an_address_is_refused_without_a_hash_for_a_minute(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    gate = Gate.at(tmp_path, ALICE, BOB, max_login_failures=3)
    await gate.let_in("bob", "bob's secret")
    for _ in range(3):
        await gate.refuse("alice", "wrong secret")
    hashed_before = gate.authenticator.passwords.hashed

    # Also what is remembered: otherwise passwords could be guessed there, without the cost of a hash.
    for name in ("alice", "bob", "nobody"):
        assert (await gate.refuse(name, f"{name}'s secret")).detail.startswith("too many wrong logins")
    assert gate.authenticator.passwords.hashed == hashed_before
    assert (await gate.let_in("alice", "alice's secret", address="192.0.2.2")).user == "alice"

    mock_clock.jump(60)
    assert (await gate.let_in("alice", "alice's secret")).user == "alice"


async def test_of_many_wrong_logins_at_once_few_are_hashed(tmp_path: Path, hashing: HeldHashing) -> None:
    gate = Gate.at(tmp_path, ALICE, max_login_failures=5)
    hashing.may_go_on.clear()

    async with trio.open_nursery() as nursery:
        for number in range(100):
            nursery.start_soon(gate.refuse, "alice", f"guess {number}")
        await wait_all_tasks_blocked()
        hashing.may_go_on.set()

    assert len(hashing.calls) <= 5 + gate.authenticator.passwords.slots


async def test_addresses_without_failures_go_before_those_with(tmp_path: Path, hashing: HeldHashing) -> None:
    gate = Gate.at(tmp_path, ALICE, BOB, max_login_failures=100)
    gate.authenticator.passwords.turns._free = 1
    await gate.refuse("alice", "wrong secret")
    hashing.calls.clear()
    hashing.may_go_on.clear()

    async with trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(gate.refuse, "alice", f"guess {number}")
            await wait_all_tasks_blocked()
        nursery.start_soon(lambda: gate.let_in("bob", "bob's secret", address="192.0.2.2"))
        await wait_all_tasks_blocked()
        hashing.may_go_on.set()

    assert [password for _, password in hashing.calls][:2] == ["guess 0", "bob's secret"]


async def test_to_send_nothing_is_no_guess(tmp_path: Path) -> None:
    gate = Gate.at(tmp_path, ALICE, max_login_failures=1)

    for _ in range(3):
        await gate.refuse()

    assert (await gate.let_in("alice", "alice's secret")).user == "alice"


# Tokens


async def test_a_token_is_accepted_as_passcode_or_as_bearer_with_the_right_login_or_none(
    tmp_path: Path, keys: str
) -> None:
    gate = Gate.at(tmp_path, ALICE, BOB, token_keys=keys)
    right = token(gate, roles=["operator", "unknown"])

    for shown in ({"passcode": right}, {"token": right}, {"login": "alice", "token": right}):
        grant = await gate.let_in(**shown)
        assert (grant.user, set(grant.roles)) == ("alice", {"operator"})
        assert grant.allows(Right.READ, parse_pattern("a.b"))
        assert grant.expires_at_ns == (gate.clock.now_ns() // NANOSECONDS + 60) * NANOSECONDS
    assert (await gate.let_in("", right)).user == "alice"
    for shown in ({"passcode": right}, {"token": right}):
        assert "login is not the user of the token" in (await gate.refuse(login="bob", **shown)).detail
    assert (await gate.let_in("alice", "alice's secret")).expires_at_ns is None


async def test_a_token_without_entry_needs_a_role_that_is_known(tmp_path: Path, keys: str) -> None:
    gate = Gate.at(tmp_path, "[roles.reader]\nread = ['inbox.{user}']", token_keys=keys)

    grant = await gate.let_in(token=token(gate, sub="dave", roles=["reader", "x"]))
    refused = await gate.refuse(token=token(gate, sub="dave", roles=["x"]))

    assert (grant.user, set(grant.roles)) == ("dave", {"reader"})
    assert grant.allows(Right.READ, parse_pattern("inbox.dave"))
    assert "its user dave has neither an entry nor a role here" in refused.detail


async def test_a_token_ends_also_if_it_is_remembered(tmp_path: Path, keys: str, mock_clock: MockClock) -> None:
    gate = Gate.at(tmp_path, ALICE, token_keys=keys)
    text = token(gate, lasts_s=60)
    grant = await gate.let_in(token=text)

    mock_clock.jump(59)
    assert await gate.let_in(token=text) is grant
    mock_clock.jump(1)
    assert (await gate.refuse(token=text)).detail == "the token is refused: it has expired"


async def test_remembered_tokens_are_bounded(tmp_path: Path, keys: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authenticator_module, "MAX_TOKENS", 2)
    gate = Gate.at(tmp_path, ALICE, token_keys=keys)

    for number in range(5):
        await gate.let_in(token=token(gate, jti=str(number)))

    assert len(gate.authenticator._verified) == 2


async def test_wrong_tokens_count_as_wrong_logins(tmp_path: Path, keys: str) -> None:
    gate = Gate.at(tmp_path, ALICE, token_keys=keys, max_login_failures=2)

    for _ in range(2):
        refused = await gate.refuse(token=token(gate, "x" * 32))
        assert "not signed with a key of this broker" in refused.detail

    assert "too many wrong logins" in (await gate.refuse(token=token(gate))).detail


async def test_without_keys_a_token_is_refused_and_a_password_may_look_like_one(tmp_path: Path) -> None:
    gate = Gate.at(tmp_path, entry("alice", "pass.word.123"))

    assert (await gate.refuse(token="a.b.c")).detail.startswith("this broker accepts no tokens")
    assert (await gate.let_in("alice", "pass.word.123")).user == "alice"


# Certificates


async def test_a_certificate_is_the_login_of_the_user_who_has_its_subject(tmp_path: Path) -> None:
    gate = Gate.at(tmp_path, ALICE, BOB)

    for shown in ({}, {"login": "bob"}, {"login": "", "passcode": ""}):
        assert (await gate.let_in(certificate="CN=bob,O=Example", **shown)).user == "bob"
    assert "no user has the certificate CN=eve" in (await gate.refuse(certificate="CN=eve")).detail
    await gate.refuse(login="alice", certificate="CN=bob,O=Example")


async def test_login_and_passcode_win_over_a_certificate_and_must_be_right(tmp_path: Path) -> None:
    gate = Gate.at(tmp_path, ALICE, BOB)

    assert (await gate.let_in("alice", "alice's secret", certificate="CN=bob,O=Example")).user == "alice"
    await gate.refuse("bob", "wrong secret", certificate="CN=bob,O=Example")


# Changes


async def test_a_change_gives_everybody_the_grant_that_holds_now(tmp_path: Path, keys: str) -> None:
    gate = Gate.at(tmp_path, ALICE, BOB, token_keys=keys)
    grants = [
        await gate.let_in("alice", "alice's secret"),
        await gate.let_in(certificate="CN=bob,O=Example"),
        await gate.let_in(token=token(gate, roles=["viewer"])),
    ]

    gate.rewrite(entry("alice", "alice's secret", write=["b"]), BOB)

    renewed = [gate.authenticator.renewed(grant) for grant in grants]
    for before, after in zip(grants, renewed, strict=True):
        assert after is not None
        assert after is not before
        assert (after.user, after.roles, after.expires_at_ns) == (before.user, before.roles, before.expires_at_ns)
    assert [grant.allows(Right.WRITE, parse_pattern("b")) for grant in renewed if grant] == [True, False, True]
    assert not any(grant.allows(Right.READ, parse_pattern("a.b")) for grant in renewed if grant)
    assert await gate.let_in("alice", "alice's secret") is renewed[0]


async def test_another_password_certificate_or_no_user_ends_what_was_granted(tmp_path: Path, keys: str) -> None:
    gate = Gate.at(tmp_path, ALICE, BOB, token_keys=keys)
    by_password = await gate.let_in("alice", "alice's secret")
    by_certificate = await gate.let_in(certificate="CN=bob,O=Example")
    by_token = await gate.let_in(token=token(gate))

    gate.rewrite(entry("alice", "another secret"), entry("bob", certificate="CN=robert"))

    assert gate.authenticator.renewed(by_password) is None
    assert gate.authenticator.renewed(by_certificate) is None
    assert gate.authenticator.renewed(by_token) is not None
    await gate.refuse("alice", "alice's secret")

    gate.rewrite(BOB)
    assert gate.authenticator.renewed(by_token) is None


async def test_a_token_ends_with_the_key_that_it_was_signed_with(tmp_path: Path, keys: str) -> None:
    gate = Gate.at(tmp_path, ALICE, token_keys=keys)
    text = token(gate)
    grant = await gate.let_in(token=text)

    (tmp_path / "keys").write_text("another secret of thirty-two characters")
    gate.authenticator.reload()

    assert gate.authenticator.renewed(grant) is None
    await gate.refuse(token=text)


async def test_a_user_who_is_removed_while_the_password_is_hashed_is_not_let_in(
    tmp_path: Path, hashing: HeldHashing
) -> None:
    gate = Gate.at(tmp_path, ALICE, BOB)
    hashing.may_go_on.clear()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(gate.refuse, "alice", "alice's secret")
        await wait_all_tasks_blocked()
        gate.rewrite(BOB)
        hashing.may_go_on.set()


@pytest.mark.parametrize("content", ["[users", "[users.alice]\nx = 1", "", None])
async def test_a_broken_or_missing_file_keeps_the_old_rules_and_is_logged(tmp_path: Path, content: str | None) -> None:
    gate = Gate.at(tmp_path, ALICE)
    grant = await gate.let_in("alice", "alice's secret")

    with capture_logs() as lines:
        if content is None:
            gate.path.unlink()
            gate.authenticator.reload()
        else:
            gate.rewrite(content)

    assert [(line["log_level"], line["event"][:31]) for line in lines] == [("error", "users and keys were not read ag")]
    assert gate.authenticator.renewed(grant) is grant
    assert await gate.let_in("alice", "alice's secret") is grant


async def test_whoever_waits_for_a_change_is_woken_by_one_and_by_nothing_else(tmp_path: Path) -> None:
    gate, woken = Gate.at(tmp_path, ALICE), list[str]()

    async def wait() -> None:
        await gate.authenticator.changed.wait()
        woken.append("changed")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        gate.rewrite(ALICE, "# only a comment")
        await wait_all_tasks_blocked()
        assert woken == []
        gate.rewrite(ALICE, BOB)

    assert woken == ["changed"]
