"""Waiting until something is durable.

Law: what an operator asks for is answered when it is done, or with the reason why it cannot be.
"""

from __future__ import annotations

from typing import final

import trio

from stompbroker.control.errors import ControlError

__all__ = ["Completion"]


@final
class Completion:
    """For one unit: `finish` and `refuse` are what it calls."""

    __slots__ = ("_done", "_refusal", "_what")

    def __init__(self, what: str) -> None:
        #: What the store does not do if it refuses, to be put behind "the store does not".
        self._what = what
        self._done = trio.Event()
        self._refusal: str | None = None

    def finish(self) -> None:
        self._done.set()

    def refuse(self, reason: str) -> None:
        self._refusal = reason
        self._done.set()

    async def wait(self) -> None:
        await self._done.wait()
        if self._refusal is not None:
            raise ControlError(f"the store does not {self._what}: {self._refusal}")
