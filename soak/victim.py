"""What is killed and brought back: the broker, or the database under it.

`kill` is synchronous, so that nothing of ours happens between the chosen moment and the kill. `bring_back` waits until
it is up again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, final

import trio

from soak.stomp_client import round_trip

if TYPE_CHECKING:
    from tests.support.broker_process import BrokerProcess
    from tests.support.postgres import PostgresServer


class Victim(Protocol):
    @property
    def takes_connections_along(self) -> bool:
        """Whether clients lose their connections by the kill."""

    def kill(self) -> None: ...
    async def bring_back(self) -> None: ...


@final
class BrokerVictim:
    takes_connections_along = True

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker

    def kill(self) -> None:
        self._broker.kill()

    async def bring_back(self) -> None:
        await trio.to_thread.run_sync(self._broker.restart)


@final
class DatabaseVictim:
    """The broker has to survive the kill, and to serve transient topics meanwhile."""

    takes_connections_along = False

    def __init__(self, server: PostgresServer, broker: BrokerProcess) -> None:
        self._server = server
        self._broker = broker

    def kill(self) -> None:
        self._server.kill()

    async def bring_back(self) -> None:
        await round_trip(self._broker.address)
        await trio.to_thread.run_sync(self._server.restart)
