"""How a delivery can end, in the words of counters, ledger and report."""

from __future__ import annotations

from enum import Enum
from typing import final


@final
class Outcome(Enum):
    ACKED = "acked"
    #: In `auto` mode: handed to the kernel.
    SENT = "sent"
    #: Its attempts were used up, and it is a dead letter.
    DEAD = "dead"
    #: Its attempts were used up, and its policy wants no dead letter.
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
