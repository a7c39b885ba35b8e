"""Looking at much without being noticed.

Law: answers that look at many things do so in steps of STEP_S and take turns: between two checkpoints of everybody
else at most one of them makes a step. A look that is in no hurry also pauses between two of its steps. Only the hourly
backlog snapshots (`backlog.py`) have a loop of their own.

Nothing is kept together by this: what is looked at may change between two steps.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Final, final

import trio

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Look", "Looking"]

#: How long one looks between two checkpoints. A message passes through three tasks, and may meet a step before each.
STEP_S: Final = 0.0003
#: What those who are in no hurry leave to others.
LEAVE_S: Final = 0.001


@final
class Looking:
    """What all who look share."""

    __slots__ = ("_turn",)

    def __init__(self) -> None:
        self._turn = trio.Lock()

    def at_once(self) -> Look:
        """For whoever is waited for."""
        return Look(self._turn, 0.0)

    def by_and_by(self) -> Look:
        """For whoever is not."""
        return Look(self._turn, LEAVE_S)


@final
class Look:
    """One look, in steps: `async with` is the first of them, and `pause` is called whenever one `is_over`."""

    __slots__ = ("_began_at_s", "_has_turn", "_leave_s", "_turn")

    def __init__(self, turn: trio.Lock, leave_s: float) -> None:
        self._turn = turn
        self._leave_s = leave_s
        self._has_turn = False
        self._began_at_s = 0.0

    async def __aenter__(self) -> Look:
        await self._begin_step()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end_step()

    @property
    def is_over(self) -> bool:
        """Whether this step has taken its time."""
        return perf_counter() - self._began_at_s > STEP_S

    async def pause(self) -> None:
        self._end_step()
        if self._leave_s:
            await trio.sleep(self._leave_s)
        await self._begin_step()

    async def _begin_step(self) -> None:
        await self._turn.acquire()
        self._has_turn = True
        self._began_at_s = perf_counter()

    def _end_step(self) -> None:
        # Whoever was cancelled while he waited has no turn to give up.
        if self._has_turn:
            self._has_turn = False
            self._turn.release()
