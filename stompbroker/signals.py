"""Wakes tasks that wait for a change.

Law: `wake` is synchronous and remembers nothing; a waiting task checks its own condition in a loop. Waking when nobody
waits costs one comparison, so the hot path may do it once per batch.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, final

import trio

from stompbroker.clock import NANOSECONDS

if TYPE_CHECKING:
    from stompbroker.clock import Clock


@final
class Signal:
    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event: trio.Event | None = None

    def wake(self) -> None:
        """Wake every task that waits now."""
        if self._event is not None:
            self._event.set()
            self._event = None

    async def wait(self) -> None:
        """Until the next `wake`."""
        await self._next_event().wait()

    async def wait_until(self, at_ns: int | None, clock: Clock) -> None:
        """Until the next `wake`, or until that time if there is one."""
        with trio.move_on_after(inf if at_ns is None else max(0, at_ns - clock.now_ns()) / NANOSECONDS):
            await self.wait()

    async def wait_either(self, other: Signal) -> None:
        """Until the next `wake` of this signal or of the other."""

        async def wait(event: trio.Event) -> None:
            await event.wait()
            nursery.cancel_scope.cancel()

        # Both events are taken before the first checkpoint, so that no wake-up is lost.
        events = self._next_event(), other._next_event()
        async with trio.open_nursery() as nursery:
            for event in events:
                nursery.start_soon(wait, event)

    def _next_event(self) -> trio.Event:
        if self._event is None:
            self._event = trio.Event()
        return self._event
