"""What durability the topics need, and the journal of a broker that keeps everything in memory.

Law: whoever changes topics on behalf of a client hands a `Unit` to the journal and lets go of it. The contract, which
every journal has to pass (`tests/journal_contract.py`):

- every submitted unit is completed exactly once, and wholly;
- units are completed in the order they were submitted;
- a unit is completed only when it is as durable as this journal makes it;
- `wait_idle` returns when everything submitted before has been completed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, final

import trio

if TYPE_CHECKING:
    from stompbroker.clock import Clock
    from stompbroker.topics.unit import Unit

__all__ = ["Journal", "MemoryJournal"]


class Journal(Protocol):
    def submit(self, unit: Unit) -> None:
        """Take a unit, make it durable, then complete it."""

    async def wait_idle(self) -> None:
        """Until every unit submitted so far is completed."""


@final
class MemoryJournal:
    """Nothing outlives the process, so a unit is as durable as it gets at once."""

    __slots__ = ("_clock",)

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def submit(self, unit: Unit) -> None:
        unit.complete(self._clock.now_ns())

    async def wait_idle(self) -> None:
        await trio.lowlevel.checkpoint()
