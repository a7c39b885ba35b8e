"""The temporary destinations of one connection: where replies to it go.

Law: `/temp-queue/NAME` and `/temp-topic/NAME` mean something only on their own connection. Each is a topic in memory
under a name that is shown to operators. Others know it as `/reply-queue/SECRET`, from the `reply-to` of what the
connection sent, and whoever does may send there; the name is a hash of the secret, so who sees it may not. Only the
connection itself may subscribe. It ends with the connection, whatever was in it. A reply that comes later is taken and
dropped: an ERROR would punish a server for a caller that has left.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple, final

from stompbroker.delivery import DestinationKind, Pattern
from stompbroker.errors import PeerViolation
from stompbroker.sessions.headers import check_name, shown

if TYPE_CHECKING:
    from stompbroker.delivery import Registry, Topic

_LOCAL: Final = ("/temp-queue/", "/temp-topic/")
#: ActiveMQ's clients write the second one.
_REMOTE: Final = ("/reply-queue/", "/remote-temp-queue/", "/remote-temp-topic/")
#: Of a secret that nobody can guess, and of its hash.
_SECRET_BYTES: Final = 16
_SECRET: Final = re.compile(rf"[0-9a-f]{{{2 * _SECRET_BYTES}}}")


def is_own(destination: str) -> bool:
    """Whether it names a temporary destination of the connection that says so."""
    return destination.startswith(_LOCAL)


def is_remote(destination: str) -> bool:
    """Whether it names one as others know it."""
    return destination.startswith(_REMOTE)


class _Own(NamedTuple):
    #: Of its topic, which may have been removed meanwhile, since nobody used it.
    name: Pattern
    #: How others know it.
    remote_name: str


@final
@dataclass(slots=True, eq=False)
class Temporaries:
    """Bounded by the subscriptions of the connection: each one has, or had, one."""

    _registry: Registry
    _max_count: int
    _own: dict[str, _Own] = field(default_factory=dict)

    def own(self, header: str, destination: str, now_ns: int) -> Topic:
        """What this header names, made if need be. Raises PeerViolation."""
        own = self._own.get(destination)
        if own is None:
            check_name(header, destination.split("/", 2)[2])
            if len(self._own) >= self._max_count:
                raise PeerViolation(
                    "too many temporary destinations",
                    f"this connection has {len(self._own)}, which is all it may have; use one for many requests, "
                    "and tell replies apart by correlation-id",
                )
            secret = secrets.token_hex(_SECRET_BYTES)
            own = self._own[destination] = _Own(_name_of(secret), _REMOTE[0] + secret)
        return self._registry.topic(own.name, now_ns)

    def remote_name(self, destination: str) -> str:
        """How others know one that there is."""
        return self._own[destination].remote_name

    def to_send_to(self, destination: str) -> Topic:
        """Where a SEND to it goes. Raises PeerViolation."""
        return find(self._registry, self.name_of(destination))

    def name_of(self, destination: str) -> Pattern:
        """The name of its topic, which may not be there just now. Raises PeerViolation."""
        if is_own(destination):
            own = self._own.get(destination)
            if own is None:
                raise PeerViolation(
                    "unknown temporary destination",
                    f"{shown(destination)} is not there: SUBSCRIBE to it, or give it as reply-to, on this connection",
                )
            return own.name
        secret = destination.split("/", 2)[2]
        if not _SECRET.fullmatch(secret):
            raise PeerViolation(
                "unknown temporary destination",
                f"{shown(destination)} is none that this broker has given; send replies to the reply-to of the request",
            )
        return _name_of(secret)

    def end(self) -> None:
        """The connection has ended: nothing more comes here, and the collector removes them."""
        for own in self._own.values():
            if (topic := self._registry.topics.get(own.name.key)) is not None:
                topic.is_orphaned = True
        self._own.clear()


def find(registry: Registry, name: Pattern) -> Topic:
    """The topic that takes what is sent to a temporary destination; it is never made for that."""
    topic = registry.topics.get(name.key)
    return registry.nowhere if topic is None or topic.is_orphaned else topic


def _name_of(secret: str) -> Pattern:
    """Of its topic."""
    return Pattern((blake2b(secret.encode(), digest_size=_SECRET_BYTES).hexdigest(),), DestinationKind.TEMPORARY)
