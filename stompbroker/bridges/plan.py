"""What the operator wants of one bridge.

Law: immutable, made from a `[[bridges]]` table; has no secrets, only the files that hold them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from pathlib import Path


@final
class RemoteKind(Enum):
    """What the other broker is: this one, or another with its dialect."""

    STOMPBROKER = "stompbroker"
    RABBITMQ = "rabbitmq"
    ACTIVEMQ = "activemq"


@final
class Direction(Enum):
    RECEIVE = "receive"
    SEND = "send"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BridgePlan:
    name: str
    urls: tuple[str, ...]
    kind: RemoteKind
    #: Patterns that come from there, in its dialect, and those that go there.
    receive: tuple[str, ...] = ()
    send: tuple[str, ...] = ()
    #: Names what the other broker keeps for this bridge, and what this one keeps.
    client_id: str
    login: str | None = None
    passcode_file: Path | None = None
    token_file: Path | None = None
    tls_ca: Path | None = None
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    virtual_host: str | None = None
    #: Messages on their way in one direction and of one pattern.
    prefetch: int = 1_000
    receipt_timeout_s: float = 30.0

    @property
    def is_ours(self) -> bool:
        """Whether the other broker is one of ours, which knows bridges."""
        return self.kind is RemoteKind.STOMPBROKER

    @property
    def is_encrypted(self) -> bool:
        return any(url.startswith(("stomp+tls:", "wss:")) for url in self.urls)

    def durable_name(self, pattern: str, *, is_ours: bool) -> str:
        """Of the subscription that keeps what matches this pattern of topics. Elsewhere it is known by that alone."""
        return pattern.removeprefix("/topic/") if is_ours else f"{self.client_id}:{pattern}"

    def patterns(self, direction: Direction) -> tuple[str, ...]:
        return self.receive if direction is Direction.RECEIVE else self.send
