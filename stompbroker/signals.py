"""Waking tasks that wait for a change.

Law: `wake` is synchronous, cheap and remembers nothing; whoever waits checks its own condition in a loop. Waking when
nobody waits costs one comparison, which is why the hot path may do it once per batch.
"""

from __future__ import annotations

from typing import final

import trio

__all__ = ["Signal"]


@final
class Signal:
    """One condition that tasks wait for."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event: trio.Event | None = None

    def wake(self) -> None:
        """Wake every task waiting now."""
        if self._event is not None:
            self._event.set()
            self._event = None

    async def wait(self) -> None:
        """Until the next `wake`."""
        if self._event is None:
            self._event = trio.Event()
        await self._event.wait()
