"""Goals for our broker, and whether they are reached.

A goal bounds the median of the rounds: of the ratio of one figure, ours over a peer's (`standings`), or of the figure
itself. The number of rounds that reach it is shown too, since the median of a varying figure such as a p99 may be luck.
A goal that could not be measured is neither reached nor missed.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from benchmarks.comparison.results import ON_POSTGRES, OURS
from benchmarks.comparison.standings import ratios_of, values_of
from benchmarks.measurement import FigureKey, Unit
from benchmarks.measuring.throughput import COST

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
    bound: Bound
    value: float
    #: Whose figure ours is divided by; None if the figure itself is bounded.
    against: str | None = None
    #: Of the figure itself; None for a ratio.
    unit: Unit | None = None
    #: Whose figure it is.
    of: str = OURS

    def __post_init__(self) -> None:
        assert (self.against is None) != (self.unit is None), f"{self.title}: either a ratio or a figure is bounded"

    def allows(self, value: float) -> bool:
        return value >= self.value if self.bound is Bound.AT_LEAST else value <= self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    goal: Goal
    #: The ratio or the figure of each round; empty if it was not measured.
    values: tuple[float, ...]

    @property
    def verdict(self) -> Verdict:
        if not self.values:
            return Verdict.NOT_MEASURED
        return Verdict.REACHED if self.goal.allows(statistics.median(self.values)) else Verdict.NOT_REACHED

    @property
    def rounds_reached(self) -> int:
        """How many rounds reach it."""
        return sum(map(self.goal.allows, self.values))

    @property
    def is_steady(self) -> bool:
        """Whether all rounds agree."""
        return self.rounds_reached in (0, len(self.values))


def judge(goal: Goal, results: Results) -> Judgement:
    if goal.against is None:
        return Judgement(goal=goal, values=tuple(values_of(goal.of, goal.key, results)))
    return Judgement(goal=goal, values=tuple(ratios_of(goal.against, goal.key, results, of=goal.of)))


def _at_least(title: str, key: FigureKey, **ratios: float) -> tuple[Goal, ...]:
    return tuple(
        Goal(title=title, key=key, bound=Bound.AT_LEAST, value=ratio, against=peer) for peer, ratio in ratios.items()
    )


def _at_most(title: str, key: FigureKey, **ratios: float) -> tuple[Goal, ...]:
    return tuple(
        Goal(title=title, key=key, bound=Bound.AT_MOST, value=ratio, against=peer) for peer, ratio in ratios.items()
    )


def _figure_at_least(title: str, key: FigureKey, value: float, unit: Unit) -> Goal:
    return Goal(title=title, key=key, bound=Bound.AT_LEAST, value=value, unit=unit)


def _figure_at_most(title: str, key: FigureKey, value: float, unit: Unit) -> Goal:
    return Goal(title=title, key=key, bound=Bound.AT_MOST, value=value, unit=unit)


def _on_postgres(title: str, key: FigureKey) -> Goal:
    """What the broker reaches on PostgreSQL, over what it reaches on its embedded database."""
    return Goal(title=f"{title}, on PostgreSQL", key=key, bound=Bound.AT_LEAST, value=0.8, against=OURS, of=ON_POSTGRES)


#: On a machine with two cores.
GOALS: Final = (
    *_at_least("topic 1 → 1", FigureKey("topic-1-to-1", "deliveries"), rabbitmq=12, activemq=6, nats=0.8, nats215=0.8),
    *_at_least("topic 1 → 50", FigureKey("topic-1-to-50", "deliveries"), rabbitmq=10, activemq=3.5, nats=0.45),
    *_at_least("topic 1 → 1, 64 KiB", FigureKey("topic-64-kib", "deliveries"), rabbitmq=2),
    _figure_at_least("topic 1 → 1, 1 MiB", FigureKey("topic-1-mib", "bodies"), 1024, Unit.MEBIBYTES_PER_SECOND),
    *(
        _figure_at_most(f"{topics:,} topics in turn", FigureKey(f"topics-{topics}", COST), cost, Unit.MICROSECONDS)
        for topics, cost in ((10, 2.5), (100, 3.5), (1_000, 6), (10_000, 8))
    ),
    *_at_least(
        "durable 1 → 1",
        FigureKey("durable-1-to-1", "deliveries"),
        rabbitmq=3.5,
        activemq=15,
        jetstream=1.2,
        jetstream215=1.2,
    ),
    *_at_least("durable 1 → 10", FigureKey("durable-1-to-10", "deliveries"), rabbitmq=8, activemq=10),
    *_at_least(
        "durable, ten publishers, window of 1",
        FigureKey("durable-10-publishers-window-1", "deliveries"),
        rabbitmq=3,
    ),
    _figure_at_most("every tenth refused once", FigureKey("nack-storm", COST), 20, Unit.MICROSECONDS),
    *_at_least("queue 1 → 1", FigureKey("queue-1-to-1", "deliveries"), rabbitmq=5),
    *_at_least("queue 1 → 8", FigureKey("queue-1-to-8", "deliveries"), rabbitmq=5),
    *_at_least("backlog, fill", FigureKey("backlog", "fill"), rabbitmq=2.5, activemq=10),
    *_at_least("backlog, drain", FigureKey("backlog", "drain"), rabbitmq=2, activemq=4),
    _on_postgres("durable 1 → 1", FigureKey("durable-1-to-1", "deliveries")),
    _on_postgres("durable 1 → 10", FigureKey("durable-1-to-10", "deliveries")),
    _on_postgres("lone durable messages", FigureKey("durable-lone", "deliveries")),
    _on_postgres("backlog, fill", FigureKey("backlog", "fill")),
    _on_postgres("backlog, drain", FigureKey("backlog", "drain")),
    *_at_most("p99 at 1,000/s, transient", FigureKey("latency", "p99"), rabbitmq=1, activemq=0.5),
    *_at_most("p99 at half of the maximum, transient", FigureKey("latency-at-half", "p99"), rabbitmq=1.5),
    # Ours has an fsync between SEND and MESSAGE, theirs does not.
    *_at_most("p50 at 1,000/s, durable", FigureKey("durable-latency", "p50"), rabbitmq=2),
    *_at_most("p99 at 1,000/s, durable", FigureKey("durable-latency", "p99"), rabbitmq=1.2, activemq=0.5),
    *_at_most("memory per idle connection", FigureKey("idle-connections", "memory per connection"), rabbitmq=0.2),
    _figure_at_most("start to the first CONNECTED", FigureKey("start-up", "start"), 0.5, Unit.SECONDS),
    _figure_at_most("memory after the start", FigureKey("start-up", "memory"), 70, Unit.MEBIBYTES),
    _figure_at_most("the report of `make report`", FigureKey("report-sample", "report"), 15, Unit.SECONDS),
    _figure_at_most("the report on 10,000,000 deliveries", FigureKey("report-day", "report"), 45, Unit.SECONDS),
)


def named_with(scenario: str) -> frozenset[str]:
    """Ours, and the brokers that goals about a scenario name; empty if it has no goal."""
    goals = [goal for goal in GOALS if goal.key.scenario == scenario]
    named = {goal.of for goal in goals} | {goal.against for goal in goals if goal.against is not None}
    return frozenset(named | {OURS} if named else named)
