"""Turns, shared checks, and what is remembered."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from stompbroker.access import passwords as passwords_module
from stompbroker.access.passwords import Decoys, Passwords, Turns, hash_password, verify
from tests.access.gate import hashed

if TYPE_CHECKING:
    from collections.abc import Iterator


def test_a_hash_is_of_argon2id_with_the_parameters_asked_for() -> None:
    stored = hash_password("secret", memory_bytes=8 * 1024 * 1024, passes=3)

    assert stored.startswith("$argon2id$v=19$m=8192,t=3,p=1$")
    assert verify(stored, "secret")
    assert not verify(stored, "Secret")
    assert stored != hash_password("secret", memory_bytes=8 * 1024 * 1024, passes=3)


def test_a_hash_that_argon2_cannot_read_fits_no_password() -> None:
    assert not verify("$argon2id$v=19$m=64,t=1,p=1$c2FsdHNhbHRzYWx0$aGFzaGhhc2hoYXNoaGFzaB", "x")


def test_a_decoy_can_be_verified_costs_what_a_user_costs_and_fits_no_password() -> None:
    stored = hashed("secret")
    decoy = Decoys([stored], "unused").decoy("nobody")

    assert decoy.rsplit("$", 2)[0] == stored.rsplit("$", 2)[0]
    assert [len(part) for part in decoy.split("$")] == [len(part) for part in stored.split("$")]
    assert not verify(decoy, "secret")


def test_decoys_are_as_mixed_as_the_hashes_of_users_and_the_same_for_a_name() -> None:
    decoys = Decoys(["$cheap$a$b", "$dear$a$b"], "unused")
    found = [decoys.decoy(f"user{number}") for number in range(200)]

    assert found == [decoys.decoy(f"user{number}") for number in range(200)]
    assert 50 < sum(one.startswith("$cheap$") for one in found) < 150
    assert Decoys([], "$default").decoy("x").startswith("$default$")


def test_two_unknown_users_share_no_hash() -> None:
    """Otherwise those who are unknown would be answered together, and a known one among them later."""
    decoys = Decoys([hashed("secret")], "unused")

    assert len({decoys.decoy(f"user{number}") for number in range(100)}) == 100


async def test_turns_are_taken_in_order_and_suspects_wait_behind_all_others() -> None:
    turns, taken = Turns(1), list[str]()
    release = trio.Event()

    async def take(name: str, is_second: bool = False) -> None:
        async with turns.turn(is_second=is_second):
            taken.append(name)
            await release.wait()

    async with trio.open_nursery() as nursery:
        for name, is_second in [("0", True), ("s1", True), ("1", False), ("s2", True), ("2", False)]:
            nursery.start_soon(take, name, is_second)
            await wait_all_tasks_blocked()
        assert (taken, turns.waiting) == (["0"], 4)
        release.set()

    assert taken == ["0", "1", "2", "s1", "s2"]
    assert turns.waiting == 0


async def test_who_leaves_the_line_keeps_nobody_waiting() -> None:
    turns = Turns(1)

    async def wait_in_line(scope: trio.CancelScope) -> None:
        with scope:
            async with turns.turn(is_second=False):
                pass

    async with trio.open_nursery() as nursery:
        async with turns.turn(is_second=False):
            first, second = trio.CancelScope(), trio.CancelScope()
            nursery.start_soon(wait_in_line, first)
            nursery.start_soon(wait_in_line, second)
            await wait_all_tasks_blocked()
            first.cancel()
            await wait_all_tasks_blocked()
            assert turns.waiting == 1
        # The turn is passed on to the second, who is cancelled in the same moment.
        second.cancel()

    with trio.fail_after(1):
        async with turns.turn(is_second=True):
            pass


class HeldHashing:
    """Hashing that goes on when the test says so; counts verifications."""

    def __init__(self) -> None:
        self.may_go_on = threading.Event()
        self.calls: list[tuple[str, str]] = []

    def __call__(self, stored: str, password: str) -> bool:
        self.calls.append((stored, password))
        self.may_go_on.wait()
        return verify(stored, password)


@pytest.fixture
def hashing(monkeypatch: pytest.MonkeyPatch) -> Iterator[HeldHashing]:
    held = HeldHashing()
    monkeypatch.setattr(passwords_module, "verify", held)
    yield held
    held.may_go_on.set()


async def test_equal_checks_at_the_same_time_share_a_hash_right_or_wrong(hashing: HeldHashing) -> None:
    passwords, stored, answers = Passwords(), hashed("secret"), list[bool]()

    async def check(password: str) -> None:
        answers.append(await passwords.is_right(stored, password, is_suspect=False))

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(check, "secret")
            nursery.start_soon(check, "wrong")
        await wait_all_tasks_blocked()
        hashing.may_go_on.set()

    assert (answers.count(True), answers.count(False)) == (20, 20)
    assert passwords.hashed == len(hashing.calls) == 2


async def test_if_the_one_that_hashes_leaves_another_takes_over(hashing: HeldHashing) -> None:
    passwords, stored, answers = Passwords(), hashed("secret"), list[bool]()
    scope = trio.CancelScope()

    async def occupy() -> None:
        await passwords.is_right(hashed("another"), "another", is_suspect=False)

    async def check() -> None:
        answers.append(await passwords.is_right(stored, "secret", is_suspect=False))

    async def check_and_leave() -> None:
        with scope:
            await check()

    async with trio.open_nursery() as nursery:
        for _ in range(passwords.slots):
            nursery.start_soon(occupy)
        await wait_all_tasks_blocked()
        nursery.start_soon(check_and_leave)
        await wait_all_tasks_blocked()
        nursery.start_soon(check)
        await wait_all_tasks_blocked()
        scope.cancel()
        await wait_all_tasks_blocked()
        hashing.may_go_on.set()

    assert answers == [True]
    assert [password for _, password in hashing.calls].count("secret") == 1


async def test_a_success_is_remembered_and_a_failure_is_not() -> None:
    passwords, stored = Passwords(), hashed("secret")

    for _ in range(3):
        assert await passwords.is_right(stored, "secret", is_suspect=False)
    assert passwords.hashed == 1
    for _ in range(3):
        assert not await passwords.is_right(stored, "wrong", is_suspect=False)
    assert passwords.hashed == 4
    passwords.forget()
    assert await passwords.is_right(stored, "secret", is_suspect=False)
    assert passwords.hashed == 5


async def test_what_is_remembered_is_bounded_and_holds_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords_module, "MAX_REMEMBERED", 2)
    passwords = Passwords()

    for password in ("one", "two", "three"):
        await passwords.is_right(hashed(password), password, is_suspect=False)
    await passwords.is_right(hashed("three"), "three", is_suspect=False)
    assert passwords.hashed == 3
    await passwords.is_right(hashed("one"), "one", is_suspect=False)

    assert passwords.hashed == 4
    assert len(passwords._right) == 2
    assert not any(password in key for key in passwords._right for password in (b"one", b"two", b"three"))


async def test_what_is_raised_at_a_turn_is_raised_and_the_turn_goes_on() -> None:
    passwords = Passwords()

    def refuse() -> None:
        raise ZeroDivisionError

    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            await passwords.is_right(hashed("secret"), "secret", is_suspect=False, on_turn=refuse)

    assert passwords.hashed == 0
    assert await passwords.is_right(hashed("secret"), "secret", is_suspect=False)
