"""Who is at the other end of a connection.

Law: the address and the number are known at once, the rest from CONNECT on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from stompbroker.sessions.header_values import check_name
from stompbroker.stomp import Version

if TYPE_CHECKING:
    from collections.abc import Callable

    from stompbroker.delivery import Topic
    from stompbroker.errors import PeerViolation
    from stompbroker.ids import ConnectionId
    from stompbroker.message import MessageIds

#: Most topics that a connection is listed as a publisher of, for operators.
MAX_NOTED: Final = 1000


@final
@dataclass(slots=True, eq=False)
class Client:
    """
    Invariants:
        a topic is in `publishing_to` exactly when `publishing_to` is in its `publishers`
        it refers to its session until `release`
    """

    connection_id: ConnectionId
    #: Its address, for people to read.
    peer: str
    #: Called when DISCONNECT is done, its receipt included.
    end: Callable[[], None]
    #: Called when the broker cannot go on with this client.
    disconnect: Callable[[PeerViolation], None]
    version: Version = Version.V1_0
    #: From its CONNECT; the scope of its durable subscriptions' names.
    client_id: str | None = None
    #: Its name as a publisher: its client id, or a name that no other connection ever has.
    name: str = ""
    #: Topics it has published to, MAX_NOTED at most, until they are removed.
    publishing_to: dict[Topic, None] = field(default_factory=dict)

    def introduce(self, version: Version, client_id: str | None, message_ids: MessageIds) -> None:
        """Its CONNECT has come. Raises PeerViolation."""
        self.version = version
        self.client_id = None if client_id is None else check_name("client-id", client_id)
        self.name = client_id or message_ids.connection_name(self.connection_id)

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
        self.end = lambda: None
        self.disconnect = lambda _violation: None
