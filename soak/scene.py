"""What publishers, subscribers and kills share: everybody's progress, and whether the broker is up.

Clients report progress here, and a kill that is due happens within that call. A connection may be lost only with the
broker; any other loss is `Misbehaved`. Without progress for `stall_s` the run is over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, final

import trio

from soak.stomp_client import ConnectionLost, Misbehaved

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from soak.kill_plan import KillPlan, Moment
    from soak.victim import Victim
    from tests.support.broker_process import Address


class Reachable(Protocol):
    """A broker, or those of which one serves at a time."""

    @property
    def address(self) -> Address:
        """Where clients connect now."""


@final
class Scene:
    """Invariants:
    `is_up` is false from a kill until the victim is back
    `kills` counts kills, those outside the plan included
    """

    def __init__(
        self,
        broker: Reachable,
        victim: Victim,
        plan: KillPlan,
        *,
        stall_s: float,
        watch: Callable[[Scene], None] = lambda _scene: None,
    ) -> None:
        self.plan = plan
        self.is_up = True
        self.kills = 0
        self._broker = broker
        self._victim = victim
        self._stall_s = stall_s
        self._watch = watch
        self._changed = trio.Event()
        #: Its deadline moves with every progress.
        self.patience = trio.CancelScope()

    # Progress --------------------------------------------------------------------------------------------------------

    def note(self, moment: Moment, count: int) -> None:
        """Count events of a kind."""
        if count:
            if self.plan.note(moment, count, can_kill=self.is_up):
                self.kill()
            self.move_on()

    def count(self, moment: Moment) -> int:
        return self.plan.seen(moment)

    async def wait_until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            await self._changed.wait()

    def move_on(self) -> None:
        """Something has changed: wake waiters and restart the deadline."""
        self.patience.deadline = trio.current_time() + self._stall_s
        self._changed.set()
        self._changed = trio.Event()
        self._watch(self)

    @property
    def life(self) -> int:
        """Which life of the broker this is; no connection survives into the next."""
        return self.kills if self._victim.takes_connections_along else 0

    # Killing ---------------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        assert self.is_up
        self.is_up = False
        self.kills += 1
        self._victim.kill()
        self.move_on()

    async def bring_back_for_ever(self) -> None:
        while True:
            await self.wait_until(lambda: not self.is_up)
            await self._victim.bring_back()
            self.is_up = True
            self.move_on()

    # Connections -----------------------------------------------------------------------------------------------------

    async def keep_connected(self, talk: Callable[[Address], Awaitable[None]]) -> None:
        """Call `talk` with the broker's address, again after every loss of the broker, until it returns."""
        while True:
            if self._victim.takes_connections_along:
                await self.wait_until(lambda: self.is_up)
            kills_before = self.kills
            try:
                await talk(self._broker.address)
            except ConnectionLost as lost:
                if not self._victim.takes_connections_along or self.kills == kills_before:
                    raise Misbehaved("the broker closed or refused a connection while nobody killed it") from lost
            else:
                return
