"""What one chunk, one transaction or the broker itself changes, and how it becomes durable.

Law: a unit is taken by the journal as a whole; its effects are computed once. Dead letters and the removal of idle
subscriptions are units of the broker's own.
"""

from stompbroker.changes.dead_letters import DeadLetters, Provenance, provenance_of, redriven, warn_or_delete_idle
from stompbroker.changes.effects import (
    Appended,
    Created,
    Effect,
    PendingDeliveries,
    Purged,
    Removed,
    SetAside,
    SettledDeliveries,
    Told,
    ValueChanged,
)
from stompbroker.changes.journal import (
    Answer,
    Journal,
    JournalStatistics,
    Lane,
    MemoryJournal,
    StoreState,
    Unit,
    Verdict,
)
from stompbroker.changes.outcomes import Outcomes
from stompbroker.changes.producers import OF_BRIDGES, Forgotten, Introduced, Numbered, Producer, Producers
from stompbroker.changes.queues import Queues

__all__ = [
    "OF_BRIDGES",
    "Answer",
    "Appended",
    "Created",
    "DeadLetters",
    "Effect",
    "Forgotten",
    "Introduced",
    "Journal",
    "JournalStatistics",
    "Lane",
    "MemoryJournal",
    "Numbered",
    "Outcomes",
    "PendingDeliveries",
    "Producer",
    "Producers",
    "Provenance",
    "Purged",
    "Queues",
    "Removed",
    "SetAside",
    "SettledDeliveries",
    "StoreState",
    "Told",
    "Unit",
    "ValueChanged",
    "Verdict",
    "provenance_of",
    "redriven",
    "warn_or_delete_idle",
]
