"""What a batch writes into the ledger.

Law: a record goes with the cursor that says the same. What was settled in memory comes with its cursor; what a unit
will settle when it is completed is accounted for here, before, and remembered at its reading, so that it is not
accounted for again. A proposal like the batch it belongs to: it changes nothing but those marks, and they can be taken
back.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, final

from stompbroker.clock import NANOSECONDS
from stompbroker.commitlog import OffsetRanges
from stompbroker.ledger.drafts import draft
from stompbroker.ledger.kinds import Kind
from stompbroker.ledger.payload import Payload
from stompbroker.settled import Account
from stompbroker.storage import LedgerRow
from stompbroker.topics import account_of, party_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from stompbroker.outcome import Outcome
    from stompbroker.topics import Reading, Subscription

__all__ = ["LedgerPart"]

DAY_NS: Final = 24 * 60 * 60 * NANOSECONDS


@final
class LedgerPart:
    """
    Invariants:
        every message that its accounts hold is there once for each subscription
    """

    __slots__ = ("_accounts", "_marks", "_next_id", "_now_ns", "base")

    def __init__(self, base: list[Account], now_ns: int, next_id: Callable[[], int]) -> None:
        #: What was settled whatever becomes of the units.
        self.base = base
        self._now_ns = now_ns
        self._next_id = next_id
        self._accounts: list[Account] = []
        #: What the units will settle.
        self._marks: dict[Reading, OffsetRanges] = {}

    def with_nothing_more(self) -> LedgerPart:
        """The same without what units add."""
        return LedgerPart(self.base, self._now_ns, self._next_id)

    def add_settled(
        self, reading: Reading, ranges: list[tuple[int, int]], outcome: Outcome, sent_at_ns: int = 0
    ) -> None:
        """A unit settles these, which are not settled yet."""
        if not reading.is_recorded or not ranges:
            return
        marks = self._marks.setdefault(reading, OffsetRanges())
        settled = account_of(reading, ranges, outcome, self._now_ns, sent_at_ns)
        self._accounts.append(Account(party_of(reading), settled))
        for start, stop in ranges:
            marks.add(start, stop)

    def add_removed(self, subscription: Subscription, outcome: Outcome) -> None:
        """A unit removes the subscription, with all that it has not settled."""
        for reading in subscription.readings.values():
            if not reading.is_recorded:
                return
            self._accounts += reading.unrecorded.accounts(reading)
            if not reading.is_idle:
                marks = self._marks.get(reading)
                unsettled = reading.meant(reading.unsettled_ranges(), self._now_ns)
                if marks is not None:
                    unsettled = [gap for start, stop in unsettled for gap in marks.gaps(start, stop)]
                self.add_settled(reading, unsettled, outcome)

    @property
    def accounts(self) -> list[Account]:
        """All that it has to say."""
        return self.base + self._accounts

    def mark(self) -> None:
        """The batch will be written: until its units are completed nobody else accounts for what they settle."""
        for reading, ranges in self._marks.items():
            reading.unrecorded.promise(ranges)

    def note_written(self) -> None:
        """The batch is in the store."""
        for reading in self._marks:
            reading.unrecorded.note_written()

    def unmark(self) -> None:
        """Its units are completed."""
        for reading in self._marks:
            reading.unrecorded.keep_promise()

    def take_back(self) -> None:
        """The batch will not be written as it is."""
        for reading in self._marks:
            reading.unrecorded.break_promise()
            if reading.unrecorded:
                reading.topic.unsaved.note_record(reading)

    def rows(self) -> list[LedgerRow]:
        """One for each day on which something was settled."""
        by_day: dict[int, list[Account]] = {}
        for party, settled in self.accounts:
            for one in settled:
                accounts = by_day.setdefault(one.settled_at_ns // DAY_NS, [])
                if not accounts or accounts[-1].party is not party:
                    accounts.append(Account(party, []))
                accounts[-1].settled.append(one)
        return [
            LedgerRow(
                self._next_id(),
                Kind.DELIVERIES.value,
                day,
                sum(len(one.messages) or 1 for account in accounts for one in account.settled),
                self._now_ns,
                Payload(partial(draft, accounts)),
            )
            for day, accounts in by_day.items()
        ]
