"""Who is at the other end of a connection.

Law: known bit by bit: address and number at once, the rest with CONNECT; then it does not change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from stompbroker.stomp import Version

if TYPE_CHECKING:
    from stompbroker.ids import ConnectionId

__all__ = ["Client"]


@final
class Client:
    __slots__ = ("client_id", "connection_id", "name", "peer", "version")

    def __init__(self, connection_id: ConnectionId, peer: str) -> None:
        self.connection_id = connection_id
        #: Its address, for people to read.
        self.peer = peer
        self.version = Version.V1_0
        #: What its CONNECT says it is; durable subscriptions are named within it.
        self.client_id: str | None = None
        #: What it is called as a publisher: its client id, or a name that no other connection ever has.
        self.name = ""
