"""What users and addresses use now, and what they may.

Law: synchronous, no clock inside. Counts go when they fall to zero, so they are bounded by the connections there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from stompbroker.access.failures import network_of
from stompbroker.clock import NANOSECONDS
from stompbroker.errors import PeerViolation

if TYPE_CHECKING:
    from stompbroker.access.grant import Grant, Limits

#: Users whose messages are counted; beyond that the one that has sent nothing for longest is forgotten.
MAX_SENDERS: Final = 10_000


class LimitReached(PeerViolation):
    """A user or an address has as much as it may."""


@dataclass(slots=True)
class _Used:
    limits: Limits
    connections: int = 0
    subscriptions: int = 0


@final
class Usage:
    """
    Invariants:
        an address has a count while it has a connection, a user while it is logged in
        senders are only users with a limit, and at most MAX_SENDERS; the latest sender is last
    """

    def __init__(self, *, max_address_connections: int = 0) -> None:
        self._max_address_connections = max_address_connections
        self._addresses: dict[str, int] = {}
        self._users: dict[str, _Used] = {}
        #: User → when all that it has sent is paid for, at its rate. Outlives connections, or one could reconnect.
        self._paid_at_ns: dict[str, int] = {}

    def connect(self, address: str) -> None:
        """One more connection of an address, until `disconnect`. Raises LimitReached; then nothing is counted.

        Addresses that one person has count as one.
        """
        address = network_of(address)
        count = self._addresses.get(address, 0)
        if 0 < self._max_address_connections <= count:
            raise LimitReached(
                "too many connections",
                f"{address} has {count} connections, and an address may have {self._max_address_connections} "
                "(max_address_connections)",
            )
        self._addresses[address] = count + 1

    def disconnect(self, address: str) -> None:
        address = network_of(address)
        self._addresses[address] -= 1
        if not self._addresses[address]:
            del self._addresses[address]

    def log_in(self, grant: Grant) -> None:
        """One more connection of a user. Raises LimitReached; then nothing is counted."""
        used = self._users.get(grant.user)
        if used is not None and 0 < grant.limits.connections <= used.connections:
            raise LimitReached(
                "too many connections",
                f"the user {grant.user} has {used.connections} connections, and may have {grant.limits.connections} "
                "(max_user_connections, or max_connections of the user)",
            )
        if used is None:
            used = self._users[grant.user] = _Used(grant.limits)
        used.limits = grant.limits
        used.connections += 1

    def renew(self, grant: Grant) -> None:
        """The limits of somebody who is logged in have changed. Whoever has more keeps it."""
        self._users[grant.user].limits = grant.limits

    def log_out(self, user: str) -> None:
        """One connection less, which has no subscriptions any more."""
        used = self._users[user]
        used.connections -= 1
        if not used.connections:
            del self._users[user]

    def check_may_subscribe(self, user: str) -> None:
        """Raises LimitReached if somebody who is logged in has as many subscriptions as it may."""
        used = self._users[user]
        if 0 < used.limits.subscriptions <= used.subscriptions:
            raise LimitReached(
                "too many subscriptions",
                f"the user {user} has {used.subscriptions} subscriptions on all connections, and may have "
                f"{used.limits.subscriptions} (max_user_subscriptions, or max_subscriptions of the user)",
            )

    def subscribe(self, user: str) -> None:
        self._users[user].subscriptions += 1

    def unsubscribe(self, user: str, subscriptions: int = 1) -> None:
        self._users[user].subscriptions -= subscriptions

    def pause_s(self, user: str, messages: int, now_ns: int) -> float:
        """How long to read nothing more from a user who has sent that many messages.

        Within its rate a user may send what it has not sent during the last second.
        """
        rate = self._users[user].limits.messages_per_s
        if not rate:
            return 0.0
        paid_at_ns = max(self._paid_at_ns.pop(user, 0), now_ns - NANOSECONDS) + messages * NANOSECONDS // rate
        if len(self._paid_at_ns) >= MAX_SENDERS:
            del self._paid_at_ns[next(iter(self._paid_at_ns))]
        self._paid_at_ns[user] = paid_at_ns
        return max(0, paid_at_ns - now_ns) / NANOSECONDS

    def check_invariants(self) -> None:
        assert all(count > 0 for count in self._addresses.values())
        assert all(used.connections > 0 <= used.subscriptions for used in self._users.values())
        assert len(self._paid_at_ns) <= MAX_SENDERS
