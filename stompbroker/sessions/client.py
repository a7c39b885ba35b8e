"""Who is at the other end of a connection, and what operators can see of it.

Law: address and number are known at once, the rest from CONNECT on, and the topics as it publishes to them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from stompbroker.stomp import Version

if TYPE_CHECKING:
    from collections.abc import Callable

    from stompbroker.delivery import Topic
    from stompbroker.errors import PeerViolation
    from stompbroker.ids import ConnectionId

__all__ = ["Client", "ConnectionStatistics"]

#: Most topics that a connection is listed as a publisher of, for operators.
MAX_NOTED: Final = 1000


def _do_nothing() -> None:
    """Placeholder once the connection is gone."""


def _tell_nobody(_violation: PeerViolation) -> None:
    """Placeholder once the connection is gone."""


@final
class Client:
    """
    Invariants:
        a topic is in `publishing_to` exactly when `publishing_to` is in its `publishers`
        it refers to its session until `release`
    """

    __slots__ = ("client_id", "connection_id", "disconnect", "end", "name", "peer", "publishing_to", "version")

    def __init__(
        self,
        connection_id: ConnectionId,
        peer: str,
        *,
        end: Callable[[], None],
        disconnect: Callable[[PeerViolation], None],
    ) -> None:
        self.connection_id = connection_id
        #: Called when DISCONNECT is done, its receipt included.
        self.end = end
        #: Called when the broker cannot go on with this client.
        self.disconnect = disconnect
        #: Its address, for people to read.
        self.peer = peer
        self.version = Version.V1_0
        #: What its CONNECT says it is; durable subscriptions are named within it.
        self.client_id: str | None = None
        #: What it is called as a publisher: its client id, or a name that no other connection ever has.
        self.name = ""
        #: Topics it has published to, MAX_NOTED of them at most, until they are removed; each knows of it too.
        self.publishing_to: dict[Topic, None] = {}

    def note_publishing(self, topic: Topic) -> None:
        if len(self.publishing_to) < MAX_NOTED:
            self.publishing_to[topic] = None
            topic.publishers[self.connection_id] = self.publishing_to

    def leave_topics(self) -> None:
        """Take the connection off the publishers of its topics."""
        for topic in self.publishing_to:
            topic.publishers.pop(self.connection_id, None)
        self.publishing_to.clear()

    def release(self) -> None:
        """The connection is gone: drop the references to the session, which would be a reference cycle."""
        self.end = _do_nothing
        self.disconnect = _tell_nobody


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionStatistics:
    """A snapshot of one connection."""

    id: int
    peer: str
    #: None until the client has sent CONNECT.
    version: str | None
    client_id: str | None
    #: Agreed intervals, in milliseconds; 0 for none.
    heart_beat_to_client_ms: int
    heart_beat_from_client_ms: int
    subscriptions: int
    in_flight: int
    #: The names of the topics it has published to, some of them if there are many.
    publishing_to: tuple[str, ...]
    bytes_in: int
    bytes_out: int
    connected_at_ns: int
    is_held_back: bool
    late_answers: int
