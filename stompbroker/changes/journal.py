"""The interface of journals, and the journal of a broker that keeps everything in memory.

Law: whoever changes topics submits a `Unit` and lets go of it. Every journal passes `tests/journal_contract.py`:

- every submitted unit is completed once and as a whole, or refused, and then nothing of it is done;
- the units of one lane, and all units that touch what is stored, are completed in the order they were submitted;
- a unit is completed when it is as durable as this journal makes it; but answers outside of transactions count at once,
  since a kill in between only means one more delivery;
- `wait_idle` returns when everything submitted before has been completed, and what has changed is written.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol, final

import trio

from stompbroker.delivery import Gate

if TYPE_CHECKING:
    from stompbroker.changes.unit import Unit
    from stompbroker.clock import Clock


@final
class StoreState(Enum):
    OK = "ok"
    LOW_SPACE = "low-space"
    FAILING = "failing"
    #: It works, but something that was stored is altered or lost. Stays until a restart.
    DAMAGED = "damaged"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class JournalStatistics:
    engine: str
    state: StoreState = StoreState.OK
    #: Why it is not ok, and since when.
    reason: str | None = None
    since_ns: int | None = None
    #: What waits to be written.
    backlog_units: int = 0
    backlog_bytes: int = 0
    #: Batches written since the start.
    batches: int = 0
    #: The size of the database, as last measured.
    stored_bytes: int | None = None
    damages: int = 0
    #: "running" or "done" if the store is checked, since its last broker did not close it.
    check: str | None = None


class Journal(Protocol):
    @property
    def gate(self) -> Gate: ...

    @property
    def can_store(self) -> bool:
        """Whether anything outlives the process."""

    @property
    def pending_units(self) -> int:
        """How many were submitted and are not completed."""

    @property
    def is_overfull(self) -> bool:
        """Whether so much waits to be written that durable subscriptions can be neither made nor deleted."""

    def next_subscription_id(self) -> int:
        """A number for a durable subscription that no other ever had in this store."""

    def submit(self, unit: Unit) -> None:
        """Take a unit, make it durable, then complete it."""

    async def wait_idle(self) -> None:
        """Until every unit submitted so far is completed, and everything that has changed by now is written."""

    def statistics(self) -> JournalStatistics: ...


@final
class MemoryJournal:
    """Nothing outlives the process, so a unit is as durable as it gets at once."""

    can_store: Final = False
    is_overfull: Final = False
    pending_units: Final = 0

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.gate = Gate()

    def next_subscription_id(self) -> int:
        raise NotImplementedError("durable subscriptions need a store")

    def submit(self, unit: Unit) -> None:
        unit.complete(self._clock.now_ns())

    async def wait_idle(self) -> None:
        await trio.lowlevel.checkpoint()

    def statistics(self) -> JournalStatistics:
        return JournalStatistics(engine="memory")
