"""Wakes tasks that wait for a change.

Law: `wake` is synchronous and remembers nothing; a waiting task checks its own condition in a loop. Waking when nobody
waits costs one comparison, so the hot path may do it once per batch.
"""

from __future__ import annotations

from typing import final

import trio


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
