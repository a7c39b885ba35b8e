"""Going through many things in short steps, so that clients do not notice.

Law: a step takes STEP_S, and all who look take turns: between two checkpoints of everybody else at most one of them
makes a step. What is looked at may change between two steps.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Final, Generic, TypeVar, final

import trio

#: Duration of a step. A message passes through three tasks, and may meet a step before each.
STEP_S: Final = 0.0003
#: Pause between two steps of a background look.
LEAVE_S: Final = 0.001
#: Rows between two looks at the time, where a row is quick.
STEP_ROWS: Final = 20
#: Rows gathered beyond the limit before they are dropped.
SLACK: Final = 500
Row = TypeVar("Row", bound=tuple[Any, ...])


@final
@dataclass(frozen=True, slots=True, eq=False)
class Looking:
    _turn: trio.Lock = field(default_factory=trio.Lock)

    def at_once(self) -> Look:
        """For somebody who waits for the answer."""
        return Look(self._turn, 0.0)

    def by_and_by(self) -> Look:
        """In the background, with a pause between two steps."""
        return Look(self._turn, LEAVE_S)


@final
@dataclass(slots=True, eq=False)
class Look:
    """One look, in steps: `async with` begins the first one, `pause_if_over` the others."""

    _turn: trio.Lock
    _leave_s: float
    _has_turn: bool = False
    _began_at_s: float = 0.0

    async def __aenter__(self) -> Look:
        await self._begin_step()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._end_step()

    async def pause_if_over(self) -> None:
        """Let others run if this step has taken its time; no checkpoint otherwise."""
        if perf_counter() - self._began_at_s > STEP_S:
            self._end_step()
            if self._leave_s:
                await trio.sleep(self._leave_s)
            await self._begin_step()

    async def _begin_step(self) -> None:
        await self._turn.acquire()
        self._has_turn = True
        self._began_at_s = perf_counter()

    def _end_step(self) -> None:
        # A task that was cancelled while it waited has no turn to give up.
        if self._has_turn:
            self._has_turn = False
            self._turn.release()


@final
@dataclass(slots=True, eq=False)
class TopN(Generic[Row]):
    """The first `limit` of many rows. The rest is dropped now and then, so that neither memory nor the final sort
    grows with the number of rows.

    Invariants:
        count is the number of rows that were put, and the first `limit` of them are kept
    """

    _limit: int
    is_descending: bool = field(kw_only=True)
    _rows: list[Row] = field(default_factory=list)
    count: int = 0

    def put(self, row: Row) -> None:
        self.count += 1
        self._rows.append(row)
        if len(self._rows) >= self._limit + SLACK:
            self._rows = self.take()

    def take(self) -> list[Row]:
        return sorted(self._rows, reverse=self.is_descending)[: self._limit]
