"""Tells publishers what became of messages that ended for somebody whom no store has: a group that ends with its last
member, or a queue in memory. Everything else is told by the journal.

Not where it ends: there the delivery itself is being changed, perhaps in the very topic where it is told. Cancelling it
loses only what would not survive the process anyway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from stompbroker.changes import Outcomes


async def run(outcomes: Outcomes) -> None:
    """Tell until cancelled."""
    while True:
        await outcomes.wait()
        outcomes.tell_at_once()
        await trio.lowlevel.checkpoint()
