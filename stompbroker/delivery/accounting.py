"""What the ledger is told of settled messages.

Law: `account_of` looks and changes nothing; it is called before the cursor moves. Hot path: a run that the log holds,
and of which nothing has failed, is one slice of the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, final

from stompbroker.ids import Offset
from stompbroker.ledger.settled import Account, Settled

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from stompbroker.commitlog import Cursor, Log
    from stompbroker.delivery.failure import Failure
    from stompbroker.delivery.remembered import Remembered
    from stompbroker.ledger.outcome import Outcome
    from stompbroker.ledger.settled import Party
    from stompbroker.message import Message


class Accountable(Protocol):
    """What is known of the messages of a reading."""

    @property
    def party(self) -> Party: ...

    @property
    def cursor(self) -> Cursor: ...

    @property
    def log(self) -> Log: ...

    @property
    def failures(self) -> Mapping[Offset, Failure]: ...

    @property
    def remembered(self) -> Remembered: ...

    @property
    def is_all_in_flight(self) -> bool: ...

    def known_one_by_one(self, start: int, stop: int) -> list[Offset]: ...

    def first_sent_ns(self, offset: Offset) -> int | None: ...


@final
class Unrecorded:
    """What one durable subscription has settled in one topic and the ledger does not have yet.

    Invariants:
        every settled delivery is in one account that is taken, once; those of a unit's effects are not here
    """

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


def account_of(
    reading: Accountable, ranges: Iterable[tuple[int, int]], outcome: Outcome, settled_at_ns: int, sent_at_ns: int
) -> list[Settled]:
    """What is known of unsettled messages that are about to be settled; `sent_at_ns` is when those that are in flight
    were sent."""
    found: list[Settled] = []
    for start, stop in ranges:
        for low, high in _alike(reading, start, stop):
            found += _account(reading, low, high, outcome, settled_at_ns, sent_at_ns)
    return found


def _alike(reading: Accountable, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Stretches of which something is known message by message, one by one, and what lies between them."""
    position = start
    for offset in reading.known_one_by_one(start, stop):
        if position < offset:
            yield position, offset
        yield offset, offset + 1
        position = offset + 1
    if position < stop:
        yield position, stop


def _account(
    reading: Accountable, start: int, stop: int, outcome: Outcome, settled_at_ns: int, sent_at_ns: int
) -> Iterator[Settled]:
    """Of messages that share all but their contents."""
    first, cursor = Offset(start), reading.cursor
    failure = reading.failures.get(first)
    is_in_flight = bool(sent_at_ns) and (reading.is_all_in_flight or cursor.is_in_flight(first))
    first_sent_ns = reading.first_sent_ns(first) or (sent_at_ns if is_in_flight else 0)
    last_sent_ns = first_sent_ns if failure is None else failure.last_attempt_ns
    if is_in_flight:
        last_sent_ns = sent_at_ns
    failed = 0 if failure is None else failure.count
    for position, count, messages in _runs(reading, start, stop):
        yield Settled(
            outcome,
            position,
            count,
            messages,
            settled_at_ns,
            first_sent_ns,
            last_sent_ns,
            failed + is_in_flight or int(first_sent_ns > 0),
            0 if failure is None else failure.nacks,
            "" if failure is None else failure.reason,
        )


def _runs(reading: Accountable, start: int, stop: int) -> Iterator[tuple[int, int, Sequence[Message]]]:
    """What lies at these offsets, in runs; nothing where nobody remembers, or only the store does."""
    position = start
    while position < stop:
        first, messages = reading.log.read(position, stop - position)
        if first == position and messages:
            yield position, len(messages), messages
            position += len(messages)
            continue
        limit = min(first, stop)
        for offset, message in reading.remembered.recalled(position, limit):
            if position < offset:
                yield position, offset - position, ()
            yield offset, 1, [message]
            position = offset + 1
        if position < limit:
            yield position, limit - position, ()
        position = limit
