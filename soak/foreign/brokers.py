"""RabbitMQ and ActiveMQ as our client and our bridges have to know them: login, wildcards, and what they do at a NACK.

Each run has its own, with login, in a directory that is removed. Killing one takes along nothing of ours.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, final

import trio

from benchmarks.dialect import Dialect
from benchmarks.peers.activemq import ACTIVEMQ, running_activemq
from benchmarks.peers.rabbitmq import RABBITMQ, running_rabbitmq
from stompbroker.client import BackOff, connect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from benchmarks.peers.peer import Peer
    from benchmarks.peers.peer_process import PeerProcess
    from stompbroker.client import Client

LOGIN, PASSCODE = "guest", "guest"
_USERS: Final = (
    f'<plugins><simpleAuthenticationPlugin><users><authenticationUser username="{LOGIN}" password="{PASSCODE}" '
    'groups="users"/></users></simpleAuthenticationPlugin></plugins>'
)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    peer: Peer
    #: Of a bridge.
    kind: str
    open: Callable[[], AbstractContextManager[PeerProcess]]
    #: Ends a pattern that stands for any number of levels.
    anything: str
    #: Where a refused message goes; None: to a consumer, again.
    dead_letters: str | None
    #: Whether what is in a transaction is done as a whole.
    is_atomic: bool
    #: Whether two connections can have one client id.
    shares_client_ids: bool
    #: Further options of `connect`.
    options: Mapping[str, Any] = field(default_factory=dict)


FOREIGN: Final = (
    Foreign(
        peer=RABBITMQ,
        kind="rabbitmq",
        open=running_rabbitmq,
        anything="#",
        dead_letters=None,
        is_atomic=False,
        shares_client_ids=True,
        options={"virtual_host": "/"},
    ),
    Foreign(
        peer=ACTIVEMQ,
        kind="activemq",
        open=partial(running_activemq, _USERS, Dialect(login=(("login", LOGIN), ("passcode", PASSCODE)))),
        anything=">",
        dead_letters="/queue/ActiveMQ.DLQ",
        is_atomic=True,
        shares_client_ids=False,
    ),
)


@final
@dataclass(slots=True, eq=False)
class There:
    """One that is running."""

    foreign: Foreign
    process: PeerProcess
    kills: int = 0

    @property
    def url(self) -> str:
        return f"stomp://{self.process.address}"

    def client(self, client_id: str | None = None, **options: Any) -> Client:
        standard: dict[str, Any] = {"login": LOGIN, "passcode": PASSCODE, **self.foreign.options}
        return connect(
            self.url, client_id=client_id, back_off=BackOff(first_s=0.05, longest_s=0.5), **standard | options
        )

    async def kill(self) -> None:
        """Kill it and start it again."""
        self.kills += 1
        await trio.to_thread.run_sync(partial(self.process.restart, is_killed=True))


@contextmanager
def running(foreign: Foreign) -> Iterator[There]:
    with foreign.open() as process:
        yield There(foreign, process)
