"""Samples of transient deliveries for the ledger.

Law: nothing is promised to transient subscriptions, so nothing is written because of them alone: samples are gathered,
and go with a batch a second later. The rate is bounded: of more, every tenth, hundredth, ... delivery is kept and
counts for the others. Hot path: once per run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from stompbroker.clock import NANOSECONDS
from stompbroker.delivery.accounting import account_of
from stompbroker.ledger.outcome import Outcome
from stompbroker.ledger.settled import Account, Settled

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stompbroker.delivery.accounting import Accountable
    from stompbroker.ids import Offset
    from stompbroker.ledger.settled import Party
    from stompbroker.message import Message

#: Records a second of what transient subscribers acknowledge or refuse, and of what is merely sent to them.
ANSWERED_PER_S: Final = 1000
SENT_PER_S: Final = 100
#: Runs that wait to be written.
MAX_GATHERED: Final = 10_000


@final
class Sampler:
    """Picks every n-th delivery, n as small as the rate allows.

    Invariants:
        in no second more than twice `most_per_s` are picked, and one run's share
        interval >= 1; 0 <= skip < interval
    """

    __slots__ = ("_began_at_ns", "_most_per_s", "_picked", "_seen", "_skip", "interval")

    def __init__(self, most_per_s: int) -> None:
        self._most_per_s = most_per_s
        #: How many deliveries a picked one counts for.
        self.interval = 1
        #: How many more are skipped before the next one is picked.
        self._skip = 0
        self._began_at_ns = 0
        self._seen = 0
        self._picked = 0

    def pick(self, count: int, now_ns: int) -> range:
        """The indexes of the next `count` deliveries that are kept."""
        self._seen += count
        elapsed_ns = now_ns - self._began_at_ns
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
class Records:
    """
    Invariants:
        at most MAX_GATHERED runs and one call's are gathered; what comes while the store does not take them is lost
    """

    __slots__ = ("_answered", "_count", "_gathered", "_sent", "now_ns")

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self.now_ns = now_ns
        self._answered = Sampler(ANSWERED_PER_S)
        self._sent = Sampler(SENT_PER_S)
        self._gathered: dict[Party, list[Settled]] = {}
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self._gathered)

    def sample(
        self,
        reading: Accountable,
        ranges: list[tuple[int, int]],
        outcome: Outcome,
        settled_at_ns: int,
        sent_at_ns: int,
    ) -> None:
        """A transient subscription is about to settle these."""
        settled: list[Settled] = []
        for start, stop in ranges:
            picked = self._answered.pick(stop - start, settled_at_ns)
            if len(picked) == stop - start:
                settled += account_of(reading, [(start, stop)], outcome, settled_at_ns, sent_at_ns)
                continue
            for index in picked:
                position = start + index
                found = account_of(reading, [(position, position + 1)], outcome, settled_at_ns, sent_at_ns)
                settled += [one._replace(weight=self._answered.interval) for one in found]
        if settled:
            self._gather(reading, settled)

    def sample_sent(self, reading: Accountable, first: Offset, messages: Sequence[Message], now_ns: int) -> None:
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
