"""What somebody who has logged in may do.

Law: immutable. When the file of users changes, everybody gets a new grant, so that whoever remembers a decision
remembers the grant it was made for, and compares that by identity.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, final

from stompbroker.delivery import DestinationKind, Pattern, parse_pattern

if TYPE_CHECKING:
    from collections.abc import Iterable


#: Begins the user of a bridge of this broker. Nobody can log in as that: names of users have no colon.
BRIDGE_PREFIX: Final = "bridge:"
#: Built in: whoever brings messages from other brokers may say where they come from.
BRIDGE_ROLE: Final = "bridge"


@final
class Right(Enum):
    #: Subscribe, also to dead letters and to what is retained.
    READ = "read"
    #: Publish.
    WRITE = "write"
    #: Purge, redrive, and change or delete the subscriptions of others, through the management endpoint.
    MANAGE = "manage"


@final
@dataclass(frozen=True, slots=True)
class Permissions:
    """The patterns within which each right holds."""

    patterns: dict[Right, tuple[Pattern, ...]] = field(default_factory=dict)

    def allow(self, right: Right, asked: Pattern) -> bool:
        """Whether one of the patterns contains everything that is asked for: `a.*` does not allow `a.>`."""
        return any(pattern.contains(asked) for pattern in self.patterns.get(right, ()))

    def joined(self, others: Iterable[Permissions]) -> Permissions:
        """What is allowed by this or by one of the others."""
        every = (self, *others)
        return Permissions(
            {right: tuple(pattern for each in every for pattern in each.patterns.get(right, ())) for right in Right}
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Limits:
    """What one user may use, over all of its connections; 0 means no limit."""

    connections: int = 0
    subscriptions: int = 0
    messages_per_s: int = 0


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Grant:
    #: The user's name, which owns its durable subscriptions; empty without login.
    user: str
    permissions: Permissions
    #: For the management endpoint: `viewer`, `operator`; or a role of the file.
    roles: frozenset[str] = frozenset()
    limits: Limits = field(default_factory=Limits)
    #: When a token ends, in nanoseconds since 1970.
    expires_at_ns: int | None = None
    #: Whether no pattern restricts its roles: neither its entry nor any role that it has, or claims, could have some.
    is_unbounded: bool = False
    #: How it was given, so that it can be looked up anew: the hash of a password, the claims of a token, the subject
    #: of a certificate. Only `access` reads it.
    proof: object = None

    @property
    def is_of_bridge(self) -> bool:
        """Whether it was given to a bridge of this broker, and not to anybody who has logged in."""
        return self.user.startswith(BRIDGE_PREFIX)

    def allows(self, right: Right, asked: Pattern) -> bool:
        return self.permissions.allow(right, asked)


#: All topics and queues; wildcards do not stand for dead letters.
EVERYTHING: Final = tuple(
    Pattern(parse_pattern(text).segments, kind)
    for kind in (DestinationKind.TOPIC, DestinationKind.QUEUE)
    for text in (">", "DLQ.>")
)
#: Everybody, where no login is required.
ANYBODY: Final = Grant(
    user="",
    permissions=Permissions(dict.fromkeys(Right, EVERYTHING)),
    roles=frozenset({"operator"}),
    is_unbounded=True,
)


def grant_of_bridge(name: str) -> Grant:
    """What a bridge of this broker may do here: its patterns are the operator's."""
    return Grant(
        user=BRIDGE_PREFIX + name,
        permissions=Permissions(dict.fromkeys((Right.READ, Right.WRITE), EVERYTHING)),
        roles=frozenset({BRIDGE_ROLE}),
    )
