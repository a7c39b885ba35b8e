"""The temporary destinations of one connection: where replies to it go.

Law: `/temp-queue/NAME` and `/temp-topic/NAME` mean something only on their own connection. Each is a topic in memory
with a name that nobody can guess. Others know it as `/reply-queue/…`, from the `reply-to` of what the connection sent,
and may send there; only the connection itself may subscribe. It ends with the connection, whatever was in it. A reply
that comes later is taken and dropped: an ERROR would punish a server for a caller that has left.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from stompbroker.delivery import DestinationKind, Pattern
from stompbroker.errors import PeerViolation
from stompbroker.sessions.headers import check_name, shown

if TYPE_CHECKING:
    from stompbroker.delivery import Registry, Topic

_LOCAL: Final = ("/temp-queue/", "/temp-topic/")
#: ActiveMQ's clients write the second one.
_REMOTE: Final = ("/reply-queue/", "/remote-temp-queue/", "/remote-temp-topic/")
#: Of a name that nobody can guess.
_NAME_BYTES: Final = 16
_NAME: Final = re.compile(rf"[0-9a-f]{{{2 * _NAME_BYTES}}}")


def is_own(destination: str) -> bool:
    """Whether it names a temporary destination of the connection that says so."""
    return destination.startswith(_LOCAL)


def is_remote(destination: str) -> bool:
    """Whether it names one as others know it."""
    return destination.startswith(_REMOTE)


@final
@dataclass(slots=True, eq=False)
class Temporaries:
    """Bounded by the subscriptions of the connection: each one has, or had, one."""

    _registry: Registry
    _max_count: int
    _topics: dict[str, Topic] = field(default_factory=dict)

    def own(self, destination: str, now_ns: int) -> Topic:
        """Made if need be. Raises PeerViolation."""
        topic = self._topics.get(destination)
        if topic is None:
            check_name("destination", destination.split("/", 2)[2])
            if len(self._topics) >= self._max_count:
                raise PeerViolation(
                    "too many temporary destinations",
                    f"this connection has {len(self._topics)}, which is all it may have; use one for many requests, "
                    "and tell replies apart by correlation-id",
                )
            name = Pattern((secrets.token_hex(_NAME_BYTES),), DestinationKind.TEMPORARY)
            topic = self._topics[destination] = self._registry.topic(name, now_ns)
        return topic

    def to_send_to(self, destination: str) -> Topic:
        """Where a SEND to it goes. Raises PeerViolation."""
        if is_own(destination):
            topic = self._topics.get(destination)
            if topic is None:
                raise PeerViolation(
                    "unknown temporary destination",
                    f"{shown(destination)} is not there: SUBSCRIBE to it, or give it as reply-to, on this connection",
                )
            return topic
        name = destination.split("/", 2)[2]
        if not _NAME.fullmatch(name):
            raise PeerViolation(
                "unknown temporary destination",
                f"{shown(destination)} is none that this broker has given; send replies to the reply-to of the request",
            )
        topic = self._registry.topics.get(Pattern((name,), DestinationKind.TEMPORARY).key)
        return self._registry.nowhere if topic is None or topic.is_orphaned else topic

    def end(self) -> None:
        """The connection has ended: nothing more comes here, and the collector removes them."""
        for topic in self._topics.values():
            topic.is_orphaned = True
        self._topics.clear()


def remote_name(topic: Topic) -> str:
    """How others know it."""
    return _REMOTE[0] + topic.name
