"""What the ledger is told of settled messages: of durable subscriptions everything, of transient ones samples.

Law: `account_of` looks and changes nothing; it is called before the cursor moves. Nothing is written because of
transient subscriptions alone: samples are gathered, and go with a batch a second later.

Hot path: a run that the log holds, and of which nothing has failed, is one slice of the log.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, final

from stompbroker.clock import NANOSECONDS
from stompbroker.ids import Offset
from stompbroker.ledger.records import Account, Outcome, Settled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from stompbroker.commitlog import Cursor, Log
    from stompbroker.delivery.policy import Failure
    from stompbroker.delivery.reading_notes import Remembered
    from stompbroker.delivery.telling import Untold
    from stompbroker.ledger.records import Party
    from stompbroker.message import Message


#: Records a second of what transient subscribers acknowledge or refuse, and of what is merely sent to them.
ANSWERED_PER_S: Final = 1000
SENT_PER_S: Final = 100
#: Runs that wait to be written.
MAX_GATHERED: Final = 10_000
#: What becomes of a message because it has failed: the member that failed last had it.
_BY_FAILING: Final = (Outcome.DEAD, Outcome.DISCARDED)


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
@dataclass(slots=True, eq=False)
class Unrecorded:
    """What one durable subscription has settled in one topic and the ledger, or a publisher that asks, does not know
    yet.

    Invariants:
        every settled delivery is in one account that is taken, once; those of a unit's effects are not here
    """

    _settled: list[Settled] = field(default_factory=list)
    #: The same of generations that are over.
    _earlier: list[Account] = field(default_factory=list)
    #: Messages to publishers, charged to the budget.
    _untold: list[Untold] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self._settled or self._earlier or self._untold)

    def add(self, settled: list[Settled]) -> None:
        self._settled += settled

    def add_untold(self, untold: list[Untold]) -> None:
        self._untold += untold

    def take_untold(self) -> list[Untold]:
        """Goes into the store together with `take`."""
        untold, self._untold = self._untold, []
        return untold

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
    reading: Accountable,
    ranges: Iterable[tuple[int, int]],
    outcome: Outcome,
    settled_at_ns: int,
    sent_at_ns: int,
    member: str | None = None,
) -> list[Settled]:
    """What is known of unsettled messages that are about to be settled; those in flight were sent at `sent_at_ns`.
    `member`: of a group, who has them."""
    found: list[Settled] = []
    is_all_in_flight = bool(sent_at_ns) and reading.is_all_in_flight
    for start, stop in ranges:
        known = reading.known_one_by_one(start, stop)
        for low, high in _alike(known, start, stop) if known else ((start, stop),):
            is_in_flight = is_all_in_flight or (bool(sent_at_ns) and reading.cursor.is_in_flight(low))
            if known:
                found += _account(reading, low, high, outcome, settled_at_ns, sent_at_ns * is_in_flight, member)
                continue
            at_ns = sent_at_ns if is_in_flight else 0
            found += [
                Settled(outcome, *run, settled_at_ns, at_ns, at_ns, int(is_in_flight), member=member)
                for run in _runs(reading, low, high)
            ]
    return found


def _alike(known: list[Offset], start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Stretches of which something is known message by message, one by one, and what lies between them."""
    position = start
    for offset in known:
        if position < offset:
            yield position, offset
        yield offset, offset + 1
        position = offset + 1
    if position < stop:
        yield position, stop


def _account(
    reading: Accountable,
    start: int,
    stop: int,
    outcome: Outcome,
    settled_at_ns: int,
    sent_at_ns: int,
    member: str | None,
) -> list[Settled]:
    """Of messages that share all but their contents, and that are in flight if `sent_at_ns` is not 0."""
    first = Offset(start)
    failure = reading.failures.get(first)
    first_sent_ns = reading.first_sent_ns(first) or sent_at_ns
    last_sent_ns = sent_at_ns or (first_sent_ns if failure is None else failure.last_attempt_ns)
    failed, nacks, reason = (0, 0, "") if failure is None else (failure.count, failure.nacks, failure.reason)
    if failure is not None and outcome in _BY_FAILING:
        member = failure.member
    attempts = failed + (sent_at_ns > 0) or int(first_sent_ns > 0)
    return [
        Settled(
            outcome,
            position,
            count,
            messages,
            settled_at_ns,
            first_sent_ns,
            last_sent_ns,
            attempts,
            nacks,
            reason,
            member=member,
        )
        for position, count, messages in _runs(reading, start, stop)
    ]


def _runs(reading: Accountable, start: int, stop: int) -> Iterable[tuple[int, int, Sequence[Message]]]:
    """What lies at these offsets, in runs; nothing where nobody remembers, or only the store does."""
    first, messages = reading.log.read(start, stop - start)
    if first == start and len(messages) == stop - start:  # the usual case
        return ((start, len(messages), messages),)
    return _runs_known(reading, start, stop)


def _runs_known(reading: Accountable, start: int, stop: int) -> Iterator[tuple[int, int, Sequence[Message]]]:
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


_NONE: Final = range(0)


@final
@dataclass(slots=True, eq=False)
class Sampler:
    """Picks every n-th delivery, n the smallest power of ten that the rate allows. A picked one counts for n.

    Invariants:
        in no second more than twice `most_per_s` are picked, and one run's share
        interval >= 1; 0 <= skip < interval
    """

    _most_per_s: int
    #: How many deliveries a picked one counts for.
    interval: int = 1
    #: How many more are skipped before the next one is picked.
    _skip: int = 0
    _began_at_ns: int = 0
    _seen: int = 0
    _picked: int = 0

    def pick(self, count: int, now_ns: int) -> range:
        """The indexes of the next `count` deliveries that are kept."""
        self._seen += count
        elapsed_ns = now_ns - self._began_at_ns
        if count <= self._skip and elapsed_ns < NANOSECONDS:  # as it is for most messages that come alone
            self._skip -= count
            return _NONE
        if elapsed_ns >= NANOSECONDS:
            rate = self._seen * NANOSECONDS // elapsed_ns
            self._set_interval(_power_of_ten_from(rate / self._most_per_s))
            self._began_at_ns, self._seen, self._picked = now_ns, 0, 0
        elif self._picked >= self._most_per_s:
            # Faster than in the second before.
            self._set_interval(10 * self.interval)
            self._picked = 0
        picked = range(self._skip, count, self.interval)
        self._skip = (self._skip - count) % self.interval
        self._picked += len(picked)
        return picked

    def _set_interval(self, interval: int) -> None:
        if interval != self.interval:
            self.interval, self._skip = interval, 0


@final
@dataclass(slots=True, eq=False)
class Records:
    """Samples of transient deliveries. Hot path: once per run.

    Invariants:
        at most MAX_GATHERED runs and one call's are gathered; what comes while the store does not take them is lost
    """

    now_ns: Callable[[], int]
    _answered: Sampler = field(default_factory=lambda: Sampler(ANSWERED_PER_S))
    _sent: Sampler = field(default_factory=lambda: Sampler(SENT_PER_S))
    _gathered: dict[Party, list[Settled]] = field(default_factory=dict)
    _count: int = 0

    def __bool__(self) -> bool:
        return bool(self._gathered)

    def sample(
        self,
        reading: Accountable,
        ranges: list[tuple[int, int]],
        outcome: Outcome,
        settled_at_ns: int,
        sent_at_ns: int,
        member: str | None = None,
    ) -> None:
        """A transient subscription is about to settle these."""
        settled: list[Settled] = []
        for start, stop in ranges:
            picked = self._answered.pick(stop - start, settled_at_ns)
            if len(picked) == stop - start:
                settled += account_of(reading, [(start, stop)], outcome, settled_at_ns, sent_at_ns, member)
                continue
            for index in picked:
                position = start + index
                found = account_of(reading, [(position, position + 1)], outcome, settled_at_ns, sent_at_ns, member)
                settled += [one._replace(weight=self._answered.interval) for one in found]
        if settled:
            self._gather(reading, settled)

    def sample_sent(
        self, reading: Accountable, first: Offset, messages: Sequence[Message], now_ns: int, member: str | None
    ) -> None:
        """A transient subscription in `auto` mode is sent these, which settles them."""
        picked, weight = self._sent.pick(len(messages), now_ns), self._sent.interval
        if picked:
            self._gather(
                reading,
                [
                    Settled(
                        Outcome.SENT,
                        first + index,
                        1,
                        [messages[index].without_body()],
                        now_ns,
                        first_sent_ns=now_ns,
                        last_sent_ns=now_ns,
                        attempts=1,
                        weight=weight,
                        member=member,
                    )
                    for index in picked
                ],
            )

    def _gather(self, reading: Accountable, settled: list[Settled]) -> None:
        if self._count < MAX_GATHERED:
            self._count += len(settled)
            self._gathered.setdefault(reading.party, []).extend(settled)

    def take(self) -> list[Account]:
        gathered, self._gathered = self._gathered, {}
        self._count = 0
        return [Account(party, settled) for party, settled in gathered.items()]


def _power_of_ten_from(ratio: float) -> int:
    """The lowest power of ten >= `ratio`."""
    power = 1
    while power < ratio:
        power *= 10
    return power
