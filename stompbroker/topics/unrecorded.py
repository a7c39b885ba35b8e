"""What one durable subscription has settled in one topic, and the ledger does not have yet.

Law: every settled delivery is in one account that is taken, once. A batch that is being written may account for
deliveries before they are settled: it has promised to. What is settled meanwhile is held back, until the promise is
kept, or broken because the store did not take what it was for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from stompbroker.settled import Account
from stompbroker.topics.accounting import account_of, party_of

if TYPE_CHECKING:
    from stompbroker.commitlog import OffsetRanges
    from stompbroker.outcome import Outcome
    from stompbroker.settled import Settled
    from stompbroker.topics.reading import Reading

__all__ = ["Unrecorded"]


@final
class Unrecorded:
    """
    Invariants:
        something is held back only while there is a promise that can be broken
    """

    __slots__ = ("_earlier", "_held_back", "_promised", "_settled")

    def __init__(self) -> None:
        self._settled: list[Settled] = []
        #: The same of generations that are over.
        self._earlier: list[Account] = []
        #: What a batch accounts for although it is not settled yet.
        self._promised: OffsetRanges | None = None
        #: What of that was settled in the meantime; None once the batch is written.
        self._held_back: list[Settled] | None = None

    def __bool__(self) -> bool:
        return bool(self._settled or self._earlier)

    def add(
        self,
        reading: Reading,
        ranges: list[tuple[int, int]],
        outcome: Outcome,
        settled_at_ns: int,
        sent_at_ns: int,
    ) -> None:
        """These are about to be settled."""
        promised = self._promised
        if promised is not None:
            if self._held_back is not None:
                common = [part for start, stop in ranges for part in promised.common(start, stop)]
                self._held_back += account_of(reading, common, outcome, settled_at_ns, sent_at_ns)
            ranges = [gap for start, stop in ranges for gap in promised.gaps(start, stop)]
        self._settled += account_of(reading, ranges, outcome, settled_at_ns, sent_at_ns)

    def end_generation(self, reading: Reading) -> None:
        """The subscription is about to be moved: whatever is settled afterwards is another delivery."""
        self._earlier = self.take(reading)
        self.keep_promise()

    def accounts(self, reading: Reading) -> list[Account]:
        """As they are now; they are still to be taken."""
        now = [Account(party_of(reading), list(self._settled))] if self._settled else []
        return self._earlier + now

    def take(self, reading: Reading) -> list[Account]:
        accounts, settled = self._earlier, self._settled
        self._earlier, self._settled = [], []
        if settled:
            accounts.append(Account(party_of(reading), settled))
        return accounts

    def promise(self, promised: OffsetRanges) -> None:
        """A batch that is being written accounts for these."""
        self._promised, self._held_back = promised, []

    def note_written(self) -> None:
        """The batch is in the store: the promise cannot be broken any more."""
        self._held_back = None

    def keep_promise(self) -> None:
        """What the batch has accounted for is settled."""
        self._promised = self._held_back = None

    def break_promise(self) -> None:
        """The batch goes on without what it has promised."""
        self._settled += self._held_back or []
        self._promised = self._held_back = None

    def check_invariants(self) -> None:
        assert self._held_back is None or self._promised is not None
