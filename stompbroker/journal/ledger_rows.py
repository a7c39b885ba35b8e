"""What a batch writes into the ledger.

Law: from accounts to rows; and the account of a subscription that is removed. A record is written with the cursor that
says the same: what was settled in memory comes with its cursor, and what a unit settles with its effects.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from stompbroker.clock import NANOSECONDS
from stompbroker.delivery import account_of
from stompbroker.ledger import Kind
from stompbroker.ledger.drafts import draft
from stompbroker.ledger.payload import Payload
from stompbroker.ledger.settled import Account
from stompbroker.storage import LedgerRow

if TYPE_CHECKING:
    from collections.abc import Callable

    from stompbroker.delivery import Subscription
    from stompbroker.ledger.outcome import Outcome

__all__ = ["accounts_of_removed", "ledger_rows"]

DAY_NS: Final = 24 * 60 * 60 * NANOSECONDS


def accounts_of_removed(subscription: Subscription, outcome: Outcome, now_ns: int) -> list[Account]:
    """Of all that a subscription has not settled, and no other unit will. While it is leaving none of that changes."""
    return [
        Account(reading.party, settled)
        for reading in subscription.readings.values()
        if reading.is_recorded and not reading.is_idle
        if (settled := account_of(reading, reading.meant(reading.unclaimed_ranges(), now_ns), outcome, now_ns, 0))
    ]


def ledger_rows(accounts: list[Account], now_ns: int, next_id: Callable[[], int]) -> list[LedgerRow]:
    """One for each day on which something was settled."""
    by_day: dict[int, list[Account]] = {}
    for party, settled in accounts:
        for one in settled:
            of_day = by_day.setdefault(one.settled_at_ns // DAY_NS, [])
            if not of_day or of_day[-1].party is not party:
                of_day.append(Account(party, []))
            of_day[-1].settled.append(one)
    return [
        LedgerRow(
            next_id(),
            Kind.DELIVERIES.value,
            day,
            sum(len(one.messages) or 1 for account in of_day for one in account.settled),
            now_ns,
            Payload(partial(draft, of_day)),
        )
        for day, of_day in by_day.items()
    ]
