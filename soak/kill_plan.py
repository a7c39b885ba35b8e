"""When to kill: after the n-th event of a kind, counted from a point in the publishers' progress.

No clock and no process: callers report events and are told when to kill. A plan is a function of its seed.
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
    """An event near which something is committed and not yet confirmed, or said and not yet done."""

    SENT = "SENDs have left"
    RECEIPTED = "RECEIPTs for SENDs have come"
    DELIVERED = "MESSAGEs have come"
    ACKNOWLEDGED = "ACKs have left"
    ACK_CONFIRMED = "RECEIPTs for ACKs have come"


#: The most events that a kill waits for. They arrive in buffers of up to a few hundred.
_MOST_EVENTS: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedKill:
    #: Receipts of all publishers before counting starts.
    receipts: int
    #: Kill after this many of this event.
    moment: Moment
    nth: int


def plan_kills(random: Random, *, kills: int, messages: int) -> list[PlannedKill]:
    """One kill at a random place in each of `kills` equal parts of the run."""
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
    """Carries out a plan.

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
        """Count events; returns whether to kill now. If that is impossible, the kill is postponed."""
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
