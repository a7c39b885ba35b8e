"""How a delivery can end.

Law: words alone, the same in counters, ledger and report.
"""

from __future__ import annotations

from enum import Enum
from typing import final

__all__ = ["Outcome"]


@final
class Outcome(Enum):
    """What became of one message for one subscription."""

    ACKED = "acked"
    #: In `auto` mode: handed to the kernel.
    SENT = "sent"
    #: Its attempts were used up, and it lies with the dead letters; or lies nowhere.
    DEAD = "dead"
    DISCARDED = "discarded"
    EXPIRED = "expired"
    #: The subscription was deleted because a message could not be delivered to it, or because nobody came for it.
    EVICTED = "evicted"
    #: The subscriber was too slow for what only memory holds.
    DROPPED = "dropped"
    #: The subscription was deleted by its subscriber or by an operator, or ended with its connection.
    UNSUBSCRIBED = "unsubscribed"
    #: Passed over by an operator: the subscription was moved, or the topic purged.
    SKIPPED = "skipped"
