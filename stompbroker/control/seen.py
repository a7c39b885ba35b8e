"""The parts of a broker that numbers are read from.

Law: to look at; whoever has it changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from stompbroker.journal import StoreJournal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stompbroker.changes import MemoryJournal
    from stompbroker.clock import Clock
    from stompbroker.control.sampling import Sampler
    from stompbroker.delivery import Registry
    from stompbroker.histogram import Histogram
    from stompbroker.ids import ConnectionId
    from stompbroker.ledger import Exports, Rounds
    from stompbroker.loop_gauge import LoopGauge
    from stompbroker.sessions import Session

__all__ = ["Seen", "SeenLedger"]


@final
@dataclass(frozen=True, slots=True)
class SeenLedger:
    """What waits for the lake, and how it gets there."""

    exports: Exports
    rounds: Rounds
    #: Where it is.
    lake: str


@final
@dataclass(frozen=True, slots=True)
class Seen:
    registry: Registry
    sessions: Mapping[ConnectionId, Session]
    journal: StoreJournal | MemoryJournal
    sampler: Sampler
    stretches: LoopGauge
    clock: Clock
    #: None: this broker keeps none.
    ledger: SeenLedger | None

    @property
    def commit_times(self) -> Histogram | None:
        """Seconds; None without a store."""
        return self.journal.writing.commit_times if isinstance(self.journal, StoreJournal) else None

    @property
    def batch_sizes(self) -> Histogram | None:
        """Messages; None without a store."""
        return self.journal.writing.batch_sizes if isinstance(self.journal, StoreJournal) else None
