"""Writes the backlog of all subscriptions into the ledger every hour on the hour.

The snapshot at midnight belongs to the day that ends. Cancelling it loses the snapshot under way.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from stompbroker.clock import NANOSECONDS
from stompbroker.ledger import Kind, Payload, backlog, day_of

if TYPE_CHECKING:
    from stompbroker.clock import Clock
    from stompbroker.control import KeptMessages
    from stompbroker.ledger import Exports, Rounds

HOUR_NS: Final = 3600 * NANOSECONDS
#: Records that are packed together; more would delay their batch.
RECORDS_AT_ONCE: Final = 5_000


async def run(kept: KeptMessages, exports: Exports, rounds: Rounds, clock: Clock) -> None:
    """Take snapshots until cancelled."""
    due_ns = 0
    while True:
        # The sleep may end a moment too early, and no hour may be taken twice.
        due_ns = (max(clock.now_ns(), due_ns) // HOUR_NS + 1) * HOUR_NS
        await trio.sleep((due_ns - clock.now_ns()) / NANOSECONDS)
        is_closing = day_of(due_ns) != day_of(due_ns - 1)
        taken_at_ns = clock.now_ns()
        found = await kept.backlog()
        for start in range(0, len(found), RECORDS_AT_ONCE):
            some = found[start : start + RECORDS_AT_ONCE]
            records = partial(backlog, some, taken_at_ns, is_closing=is_closing)
            exports.add(Kind.BACKLOG, day_of(due_ns - is_closing), len(some), taken_at_ns, Payload(records))
        if is_closing:
            rounds.end_day(due_ns)
