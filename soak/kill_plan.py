"""When to kill: after the n-th thing of a kind, counted from a point in the publishers' progress.

Law: no clock and no process; who counts what says so, and is told when it is time. A plan is a function of its seed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random


class Moment(Enum):
    """What just happened. Near each of them something is committed and not yet said, or said and not yet done."""

    SENT = "SENDs have left"
    RECEIPTED = "RECEIPTs for SENDs have come"
    DELIVERED = "MESSAGEs have come"
    ACKNOWLEDGED = "ACKs have left"
    ACK_CONFIRMED = "RECEIPTs for ACKs have come"


#: Most events of its kind that a kill waits for. They come in buffers of up to some hundred.
_MOST_EVENTS: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedKill:
    #: Receipts that publishers have had altogether by then.
    receipts: int
    #: From then on, this happens so often.
    moment: Moment
    nth: int


def plan_kills(random: Random, *, kills: int, messages: int) -> list[PlannedKill]:
    """Spread over the run: one in each of `kills` stretches of equal length, somewhere in it."""
    stretch = messages / kills if kills else 0
    return [
        PlannedKill(
            receipts=int((number + random.random()) * stretch),
            moment=random.choice(list(Moment)),
            nth=random.randint(1, _MOST_EVENTS),
        )
        for number in range(kills)
    ]


@final
class KillPlan:
    """Carries a plan out.

    Invariant: `done` counts the kills that were due, in the order of the plan.
    """

    def __init__(self, kills: Sequence[PlannedKill]) -> None:
        self._kills = kills
        self._seen: Counter[Moment] = Counter()
        self._seen_at_receipts: Counter[Moment] | None = None
        self.done = 0

    @property
    def is_done(self) -> bool:
        return self.done == len(self._kills)

    def note(self, moment: Moment, count: int, *, can_kill: bool = True) -> bool:
        """So many of these have just happened. Whether it is time to kill; if that cannot be, it is put off."""
        self._seen[moment] += count
        if self.is_done:
            return False
        kill = self._kills[self.done]
        if self._seen_at_receipts is None:
            if self._seen[Moment.RECEIPTED] < kill.receipts:
                return False
            self._seen_at_receipts = self._seen.copy()
        if self._seen[kill.moment] - self._seen_at_receipts[kill.moment] < kill.nth or not can_kill:
            return False
        self._seen_at_receipts = None
        self.done += 1
        return True

    def seen(self, moment: Moment) -> int:
        return self._seen[moment]
