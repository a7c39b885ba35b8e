"""What one durable subscription has settled in one topic, and the ledger does not have yet.

Law: every settled delivery is in one account that is taken, once. What a unit settles is not here: its effects carry
their own records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from stompbroker.ledger.settled import Account

if TYPE_CHECKING:
    from stompbroker.delivery.accounting import Accountable
    from stompbroker.ledger.settled import Settled

__all__ = ["Unrecorded"]


@final
class Unrecorded:
    __slots__ = ("_earlier", "_settled")

    def __init__(self) -> None:
        self._settled: list[Settled] = []
        #: The same of generations that are over.
        self._earlier: list[Account] = []

    def __bool__(self) -> bool:
        return bool(self._settled or self._earlier)

    def add(self, settled: list[Settled]) -> None:
        """These are about to be settled."""
        self._settled += settled

    def end_generation(self, reading: Accountable) -> None:
        """The subscription is about to be moved: whatever is settled afterwards is another delivery."""
        self._earlier = self.take(reading)

    def take(self, reading: Accountable) -> list[Account]:
        accounts, settled = self._earlier, self._settled
        self._earlier, self._settled = [], []
        if settled:
            accounts.append(Account(reading.party, settled))
        return accounts
