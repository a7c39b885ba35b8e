"""The parts of a running broker that the methods of `control` look at and change."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

import trio

from stompbroker.control.kept import KeptMessages
from stompbroker.control.looking import Looking
from stompbroker.control.sampling import Sampler

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stompbroker.bridges import Crossing
    from stompbroker.changes import MemoryJournal, Queues
    from stompbroker.clock import Clock
    from stompbroker.counting import LoopGauge, Totals
    from stompbroker.delivery import Registry
    from stompbroker.ids import ConnectionId
    from stompbroker.journal import StoreJournal
    from stompbroker.ledger import Exports, Rounds
    from stompbroker.message import MessageIds
    from stompbroker.sessions import Session
    from stompbroker.storage import Store


@final
@dataclass(frozen=True, slots=True)
class LedgerParts:
    exports: Exports
    rounds: Rounds
    lake: str


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class BrokerParts:
    registry: Registry
    sessions: Mapping[ConnectionId, Session]
    journal: StoreJournal | MemoryJournal
    queues: Queues
    totals: Totals
    stretches: LoopGauge
    clock: Clock
    message_ids: MessageIds
    #: None: everything is in memory.
    store: Store | None
    #: None: this broker keeps no ledger.
    ledger: LedgerParts | None
    #: The directions of all bridges.
    crossings: Sequence[Crossing] = ()
    #: URLs of the endpoints, set by the composition root once it listens.
    listening: list[str] = field(default_factory=list)
    looking: Looking = field(default_factory=Looking)
    #: Held while dead letters are moved, so that none is redriven twice.
    moving_letters: trio.Lock = field(default_factory=trio.Lock)
    #: Set by the composition root when the broker has been asked to stop.
    is_stopping: bool = False
    started_at_ns: int = field(init=False)
    kept: KeptMessages = field(init=False)
    sampler: Sampler = field(init=False)

    def __post_init__(self) -> None:
        self.started_at_ns = self.clock.now_ns()
        self.kept = KeptMessages(self.registry, self.store, self.looking)
        self.sampler = Sampler(self.registry, self.sessions, self.totals, self.clock, self.looking)
