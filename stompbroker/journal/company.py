"""Whether a batch waits a moment for clients that were just told that their messages are stored.

Law: counts turns of the event loop, and bounds them by real time; no timer is set. Clients that wait for each receipt
send again once they have it, but not all at the same instant. Without this, the first of ten gets a commit of its own,
the others wait for it to end, and share the next one: twice as many commits as needed, and one costs what twenty
messages in it do. So a batch waits until as many units are there as the last two had connections, provided that these
have lately come back in time.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Final, final

import trio

if TYPE_CHECKING:
    from collections.abc import Collection, Sized

    from stompbroker.changes import Lane, Unit

    Lanes = frozenset[Lane]

#: The most that a batch waits: turns of the event loop, of some 15 µs if nothing else happens, and seconds if it is
#: busy. A commit takes 500 µs.
MOST_TURNS: Final = 16
MOST_S: Final = 0.001
#: A batch of more units is large enough, and finding its connections would take too long.
MOST_UNITS: Final = 64
_NOBODY: Final[Lanes] = frozenset()


@final
class Company:
    """
    Invariants:
        a batch waits only if at least two connections came with the one before it, and half of those expected
    """

    def __init__(self, backlog: Sized) -> None:
        self._backlog = backlog
        #: The connections of the last batch that had any.
        self._told: Lanes = _NOBODY
        #: Those of the one before it as well: without waiting, some come with one batch, and the others with the next.
        self._expected: Lanes = _NOBODY
        self._comes_back = False

    async def wait(self) -> None:
        """For others who are likely to come soon, if there are any."""
        turns = MOST_TURNS
        gives_up_at_s = perf_counter() + MOST_S
        while turns and self._comes_back and 0 < len(self._backlog) < len(self._expected):
            await trio.lowlevel.checkpoint()
            turns = turns - 1 if perf_counter() < gives_up_at_s else 0

    def note(self, units: Collection[Unit]) -> None:
        """These are the units of the next batch, whether it has waited or not."""
        if not units:
            return
        told = frozenset(unit.lane for unit in units if unit.lane is not None) if len(units) <= MOST_UNITS else _NOBODY
        came = len(told & self._expected)
        self._comes_back = came > 1 and 2 * came >= len(self._expected)
        self._expected, self._told = told | self._told, told
