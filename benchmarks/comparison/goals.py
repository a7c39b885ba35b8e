"""Goals for our broker against its peers, and whether they are reached.

A goal bounds the ratio of one figure, ours over the peer's, as the median of the rounds (`standings`). The number of
rounds that reach it is shown too, since the median of a varying figure such as a p99 may be luck. A goal that could not
be measured is neither reached nor missed.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from benchmarks.comparison.standings import ratios_of
from benchmarks.measurement import FigureKey

if TYPE_CHECKING:
    from benchmarks.comparison.results import Results


class Bound(Enum):
    AT_LEAST = "≥"  # where more is better
    AT_MOST = "≤"


class Verdict(Enum):
    REACHED = "reached"
    NOT_REACHED = "NOT reached"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    title: str
    key: FigureKey
    peer: str
    bound: Bound
    ratio: float

    def allows(self, ratio: float) -> bool:
        return ratio >= self.ratio if self.bound is Bound.AT_LEAST else ratio <= self.ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    goal: Goal
    #: The ratio of each round; empty if it was not measured.
    ratios: tuple[float, ...]

    @property
    def verdict(self) -> Verdict:
        if not self.ratios:
            return Verdict.NOT_MEASURED
        return Verdict.REACHED if self.goal.allows(statistics.median(self.ratios)) else Verdict.NOT_REACHED

    @property
    def rounds_reached(self) -> int:
        """How many rounds reach it."""
        return sum(map(self.goal.allows, self.ratios))

    @property
    def is_steady(self) -> bool:
        """Whether all rounds agree."""
        return self.rounds_reached in (0, len(self.ratios))


def judge(goal: Goal, results: Results) -> Judgement:
    return Judgement(goal=goal, ratios=tuple(ratios_of(goal.peer, goal.key, results)))


def _at_least(title: str, key: FigureKey, **ratios: float) -> tuple[Goal, ...]:
    return tuple(
        Goal(title=title, key=key, peer=peer, bound=Bound.AT_LEAST, ratio=ratio) for peer, ratio in ratios.items()
    )


def _at_most(title: str, key: FigureKey, **ratios: float) -> tuple[Goal, ...]:
    return tuple(
        Goal(title=title, key=key, peer=peer, bound=Bound.AT_MOST, ratio=ratio) for peer, ratio in ratios.items()
    )


#: On a machine with two cores.
GOALS: Final = (
    *_at_least("topic 1 → 1", FigureKey("topic-1-to-1", "deliveries"), rabbitmq=12, activemq=6, nats=0.4),
    *_at_least("topic 1 → 50", FigureKey("topic-1-to-50", "deliveries"), rabbitmq=10, activemq=3.5, nats=0.45),
    *_at_least("durable 1 → 1", FigureKey("durable-1-to-1", "deliveries"), rabbitmq=3.5, activemq=15, jetstream=0.7),
    *_at_least("durable 1 → 10", FigureKey("durable-1-to-10", "deliveries"), rabbitmq=8, activemq=10),
    *_at_least("queue 1 → 1", FigureKey("queue-1-to-1", "deliveries"), rabbitmq=5),
    *_at_least("queue 1 → 8", FigureKey("queue-1-to-8", "deliveries"), rabbitmq=5),
    *_at_least("backlog, fill", FigureKey("backlog", "fill"), rabbitmq=2.5, activemq=10),
    *_at_least("backlog, drain", FigureKey("backlog", "drain"), rabbitmq=2, activemq=4),
    *_at_most("p99 at 1,000/s, transient", FigureKey("latency", "p99"), rabbitmq=1, activemq=0.5),
    # Ours has an fsync between SEND and MESSAGE, theirs does not.
    *_at_most("p99 at 1,000/s, durable", FigureKey("durable-latency", "p99"), rabbitmq=2, activemq=0.5),
    *_at_most("memory per idle connection", FigureKey("idle-connections", "memory per connection"), rabbitmq=0.2),
)
