"""Passwords hashed and verified with argon2id, a few at a time.

A hash takes about 30 ms and 19 MiB. So checks take turns; equal ones share a hash; and those that succeeded are
remembered by a keyed hash, for a storm of clients that reconnect. Knows no users.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
from collections import deque
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

import trio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

#: Characters of a new password.
MIN_PASSWORD: Final = 8
#: Successes that are remembered, at about 150 bytes each.
MAX_REMEMBERED: Final = 20_000
_SALT_BYTES: Final = 16
_HASH_BYTES: Final = 32


def parameters(memory_bytes: int, passes: int) -> str:
    """How a PHC text begins."""
    return f"$argon2id$v=19$m={memory_bytes // 1024},t={passes},p=1"


def hash_password(password: str, *, memory_bytes: int, passes: int) -> str:
    from argon2.low_level import Type, hash_secret

    salt = os.urandom(_SALT_BYTES)
    return hash_secret(password.encode(), salt, passes, memory_bytes // 1024, 1, _HASH_BYTES, Type.ID).decode()


def verify(stored: str, password: str) -> bool:
    from argon2.exceptions import VerificationError
    from argon2.low_level import Type, verify_secret

    try:
        return verify_secret(stored.encode(), password.encode(), Type.ID)
    except VerificationError:
        return False


@final
class Decoys:
    """Hashes that no password has, for users that do not exist: checking them costs as much as for some user."""

    def __init__(self, stored: Sequence[str], default_parameters: str) -> None:
        self._key = secrets.token_bytes(32)
        self._parameters = [one.rsplit("$", 2)[0] for one in stored] or [default_parameters]

    def decoy(self, name: str) -> str:
        """Always the same for a name. The parameters of users occur as often as among users.

        Each name has a salt of its own, as users have: equal checks share a hash, so unknown users with one password
        would otherwise be answered together, and known ones later.
        """
        random = hashlib.blake2b(name.encode(), key=self._key).digest()
        number = int.from_bytes(random[:8], "big")
        salt, end = random[8 : 8 + _SALT_BYTES], random[-_HASH_BYTES:]
        return f"{self._parameters[number % len(self._parameters)]}${_in_base64(salt)}${_in_base64(end)}"


def _in_base64(data: bytes) -> str:
    return base64.b64encode(data).decode().rstrip("=")


@final
class Turns:
    """At most `slots` tasks work at the same time. Others wait in two lines, each in order; the first line goes first.

    Invariant: nobody waits while a slot is free.
    """

    def __init__(self, slots: int) -> None:
        self._free = slots
        self._first: deque[trio.Event] = deque()
        self._second: deque[trio.Event] = deque()

    @asynccontextmanager
    async def turn(self, *, is_second: bool) -> AsyncIterator[None]:
        if self._free:
            self._free -= 1
        else:
            await self._wait(self._second if is_second else self._first)
        try:
            yield
        finally:
            if line := self._first or self._second:
                line.popleft().set()
            else:
                self._free += 1

    async def _wait(self, line: deque[trio.Event]) -> None:
        turn = trio.Event()
        line.append(turn)
        try:
            await turn.wait()
        except trio.Cancelled:
            # It is still in line: a task whose event was set is not cancelled before it goes on.
            line.remove(turn)
            raise

    @property
    def waiting(self) -> int:
        return len(self._first) + len(self._second)


@final
@dataclass(slots=True, eq=False)
class _Check:
    done: trio.Event = field(default_factory=trio.Event)
    #: None until it is done, and if its client went away first.
    is_right: bool | None = None


@final
class Passwords:
    """
    Invariants:
        whoever has a key in `_right` has given the password of that stored hash
        a check is in `_running` while its task waits for a turn or hashes
    """

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        # One processor is left to everybody else; hashing does not hold the interpreter's lock.
        self.slots = max(1, (os.cpu_count() or 1) - 1)
        self.turns = Turns(self.slots)
        self._threads = trio.CapacityLimiter(self.slots)
        self._right: dict[bytes, None] = {}
        self._running: dict[bytes, _Check] = {}
        #: Verifications so far.
        self.hashed = 0

    async def is_right(
        self, stored: str, password: str, *, is_suspect: bool, on_turn: Callable[[], None] = lambda: None
    ) -> bool:
        """Whether the password has this hash. Suspects wait behind all others.

        `on_turn` is called before hashing, and may raise; it is not called if nothing is hashed.
        """
        key = self._keyed(stored, password)
        while key not in self._right:
            running = self._running.get(key)
            if running is None:
                return await self._check(key, stored, password, is_suspect=is_suspect, on_turn=on_turn)
            await running.done.wait()
            if running.is_right is not None:
                return running.is_right
        return True

    async def _check(
        self, key: bytes, stored: str, password: str, *, is_suspect: bool, on_turn: Callable[[], None]
    ) -> bool:
        check = self._running[key] = _Check()
        try:
            async with self.turns.turn(is_second=is_suspect):
                on_turn()
                self.hashed += 1
                # Not abandoned if the client leaves: the slot stands for the memory.
                check.is_right = await trio.to_thread.run_sync(verify, stored, password, limiter=self._threads)
        finally:
            del self._running[key]
            check.done.set()
        if check.is_right:
            if len(self._right) >= MAX_REMEMBERED:
                del self._right[next(iter(self._right))]
            self._right[key] = None
        return check.is_right

    def forget(self) -> None:
        """Everything that was remembered."""
        self._right.clear()

    def _keyed(self, stored: str, password: str) -> bytes:
        # A stored hash has no NUL and a salt of its own user. Nobody can look for a password in a dump of these.
        return hmac.digest(self._key, f"{stored}\0{password}".encode(), "sha256")
