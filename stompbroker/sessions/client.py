"""Who is at the other end of a connection.

Law: known bit by bit: address and number at once, the rest with CONNECT, and where it publishes as it does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from stompbroker.stomp import Version

if TYPE_CHECKING:
    from stompbroker.ids import ConnectionId
    from stompbroker.topics import Topic

__all__ = ["Client"]

#: Topics that a connection is noted as a publisher of: for people to read.
MAX_NOTED: Final = 1000


@final
class Client:
    __slots__ = ("client_id", "connection_id", "name", "peer", "publishing_to", "version")

    def __init__(self, connection_id: ConnectionId, peer: str) -> None:
        self.connection_id = connection_id
        #: Its address, for people to read.
        self.peer = peer
        self.version = Version.V1_0
        #: What its CONNECT says it is; durable subscriptions are named within it.
        self.client_id: str | None = None
        #: What it is called as a publisher: its client id, or a name that no other connection ever has.
        self.name = ""
        #: Topics it has published to, the first MAX_NOTED of them; each knows of it too.
        self.publishing_to: dict[Topic, None] = {}

    def note_publishing(self, topic: Topic) -> None:
        if len(self.publishing_to) < MAX_NOTED:
            self.publishing_to[topic] = None
            topic.publishers[self.connection_id] = None

    def leave_topics(self) -> None:
        """It publishes no more."""
        for topic in self.publishing_to:
            topic.publishers.pop(self.connection_id, None)
        self.publishing_to.clear()
