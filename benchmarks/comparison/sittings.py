"""What is compared, as data.

A sitting is everything that one instance of a broker goes through, from a start on an empty data directory to its end;
each broker gets one per round. That saves starts, which take some brokers ten seconds. All durable scenarios of a
sitting share one topic and number their subscribers from 0, so none may have fewer subscribers than an earlier one:
messages would be stored for an absent subscriber.

Names are part of `--scenario` and of the JSON, so they must not change.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Final

from benchmarks.comparison.goals import named_with
from benchmarks.comparison.results import OURS
from benchmarks.peers.peer import Ability
from benchmarks.scenarios import (
    DURABLE_WINDOW,
    MILLION,
    Backlog,
    Crowd,
    FreshStart,
    IdleConnections,
    Latency,
    NackStorm,
    NightlyReport,
    PassedThrough,
    Scenario,
    Throughput,
    quickened,
    topics_in_turn,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

_KIBIBYTE: Final = 1024
_MEBIBYTE: Final = 1024 * _KIBIBYTE
#: The same for all: some brokers take in a second and a half what they need minutes to deliver fifty times.
_MESSAGES_TO_50: Final = 40_000
#: Timed messages a second at higher rates: as many as at the fixed rate.
_TIMED_PER_S: Final = 1000

_OURS_ALONE: Final = frozenset({OURS})
_THERE: Final = frozenset({Ability.TOPICS})
_TOPICS: Final = frozenset({Ability.TOPICS, Ability.STREAMING})
_DURABLE: Final = frozenset({Ability.DURABLE})
#: What only the STOMP roles of the generator can do.
_THERE_STOMP: Final = frozenset({Ability.TOPICS, Ability.STOMP})
_TOPICS_STOMP: Final = _THERE_STOMP | {Ability.STREAMING}
_DURABLE_STOMP: Final = frozenset({Ability.DURABLE, Ability.STOMP})
_QUEUES_STOMP: Final = frozenset({Ability.QUEUES, Ability.STOMP, Ability.STREAMING})
_REDELIVERY: Final = frozenset({Ability.DURABLE, Ability.STOMP, Ability.REDELIVERY})


class Group(Enum):
    """The tables of the results, in their order."""

    TOPICS = "Topics"
    MANY_TOPICS = "Many topics: one publisher goes through all of them in turn, each has a subscriber"
    DURABLE = "Durable subscriptions: a receipt for every SEND, an ACK for every MESSAGE"
    QUEUES = "Queues, stored: a receipt for every SEND, an ACK for every MESSAGE"
    WINDOWS = "Ten publishers with small windows, one durable subscriber"
    LATENCY = "Latency, from when a message was due"
    FOOTPRINT = "Connections, memory, start"
    REPORT = "The nightly report, on two cores"


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyAtHalf:
    """Latency at half the rate that the same broker reached in the same sitting."""

    name: str
    title: str
    #: The scenario that gives the full rate.
    of: str
    is_durable: bool = False
    duration_s: float = 3.0

    def at_half_of(self, deliveries_per_s: float) -> Latency:
        half = max(1, round(deliveries_per_s / 2))
        timed = min(half, _TIMED_PER_S)
        return Latency(
            name=self.name,
            title=self.title,
            messages_per_s=timed,
            companions=round(half / timed) - 1,
            is_durable=self.is_durable,
            duration_s=self.duration_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A scenario with its place in the results."""

    scenario: Scenario | LatencyAtHalf
    group: Group
    needs: frozenset[Ability]
    #: Measured in at most so many rounds.
    most_rounds: int | None = None
    #: Names of the brokers that are measured, if not all that are able: ours where others have nothing like it or would
    #: take minutes.
    only: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        return self.scenario.name

    @property
    def title(self) -> str:
        return self.scenario.title

    def is_measured(self, peer: str, round_number: int) -> bool:
        is_in_round = self.most_rounds is None or round_number <= self.most_rounds
        return is_in_round and (not self.only or peer in self.only)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sitting:
    name: str
    compared: tuple[Compared, ...]
    #: Run before anything is measured, so that a virtual machine has compiled its code.
    warm_up: Throughput | None = None


def _topics(scenario: Scenario, needs: frozenset[Ability] = _TOPICS) -> Compared:
    return Compared(scenario=scenario, group=Group.TOPICS, needs=needs)


def _durable(scenario: Scenario, needs: frozenset[Ability] = _DURABLE) -> Compared:
    return Compared(scenario=scenario, group=Group.DURABLE, needs=needs)


def _queue(scenario: Throughput) -> Compared:
    return Compared(scenario=scenario, group=Group.QUEUES, needs=_QUEUES_STOMP)


def _many_topics(topics: int) -> Compared:
    return Compared(scenario=topics_in_turn(topics), group=Group.MANY_TOPICS, needs=_TOPICS_STOMP)


def _report(name: str, *, deliveries: int, days: int) -> Compared:
    title = f"{deliveries:,} deliveries, {days} {'days' if days > 1 else 'day'}"
    scenario = NightlyReport(name=name, title=title, deliveries=deliveries, days=days)
    return Compared(scenario=scenario, group=Group.REPORT, needs=frozenset(), only=_OURS_ALONE)


def _windows(window: int) -> Compared:
    scenario = Crowd(
        name=f"durable-10-publishers-window-{window}",
        title=f"window of {window}",
        publishers=10,
        topics=1,
        subscribers_per_topic=1,
        is_durable=True,
        receipt_window=window,
    )
    return Compared(scenario=scenario, group=Group.WINDOWS, needs=_DURABLE_STOMP)


def _latency(scenario: Latency | LatencyAtHalf) -> Compared:
    needs = _DURABLE_STOMP if scenario.is_durable else _THERE_STOMP
    if isinstance(scenario, LatencyAtHalf):
        needs |= {Ability.STREAMING}  # like the scenario that gives the full rate
    return Compared(scenario=scenario, group=Group.LATENCY, needs=needs)


_TOPIC_1_TO_1: Final = Throughput(name="topic-1-to-1", title="1 → 1")
_DURABLE_1_TO_1: Final = Throughput(
    name="durable-1-to-1", title="1 → 1", acknowledges=True, is_durable=True, receipt_window=DURABLE_WINDOW
)
_QUEUE_1_TO_1: Final = Throughput(
    name="queue-1-to-1", title="1 → 1", acknowledges=True, is_queue=True, receipt_window=DURABLE_WINDOW
)

SITTINGS: Final = (
    Sitting(
        name="topics",
        warm_up=_TOPIC_1_TO_1,
        compared=(
            _topics(_TOPIC_1_TO_1),
            _topics(Throughput(name="topic-1-to-50", title="1 → 50", subscribers=50, most_messages=_MESSAGES_TO_50)),
            _topics(
                Crowd(
                    name="topic-10-to-10-to-10",
                    title="10 → 10 topics → 10 each",
                    publishers=10,
                    topics=10,
                    subscribers_per_topic=10,
                ),
                _TOPICS_STOMP,
            ),
            _topics(Throughput(name="topic-4-kib", title="1 → 1, 4 KiB", body_bytes=4 * _KIBIBYTE)),
            _topics(Throughput(name="topic-64-kib", title="1 → 1, 64 KiB", body_bytes=64 * _KIBIBYTE)),
            _topics(Throughput(name="topic-1-mib", title="1 → 1, 1 MiB", body_bytes=_MEBIBYTE)),
            _latency(Latency(name="latency", title="topic, 1,000/s", messages_per_s=1000)),
            _latency(LatencyAtHalf(name="latency-at-half", title="topic, half of its maximum", of="topic-1-to-1")),
        ),
    ),
    Sitting(
        name="many-topics",
        warm_up=_TOPIC_1_TO_1,
        compared=(
            _many_topics(10),
            _many_topics(100),
            _many_topics(1_000),
            # RabbitMQ needs most of a minute to make the subscriptions.
            replace(_many_topics(10_000), only=_OURS_ALONE),
        ),
    ),
    Sitting(
        name="durable",
        warm_up=_DURABLE_1_TO_1,
        compared=(
            _durable(_DURABLE_1_TO_1),
            _durable(
                replace(_DURABLE_1_TO_1, name="durable-lone", title="1 → 1, waiting for each receipt", receipt_window=1)
            ),
            _windows(1),
            _windows(10),
            _windows(100),
            _latency(Latency(name="durable-latency", title="durable, 1,000/s", messages_per_s=1000, is_durable=True)),
            _latency(
                LatencyAtHalf(
                    name="durable-latency-at-half",
                    title="durable, half of its maximum",
                    of="durable-1-to-1",
                    is_durable=True,
                )
            ),
            _durable(NackStorm(name="nack-storm", title="every tenth message refused once"), _REDELIVERY),
            _durable(
                replace(_DURABLE_1_TO_1, name="durable-1-to-10", title="1 → 10", subscribers=10),
                _DURABLE_STOMP,
            ),
            _durable(
                Backlog(name="backlog", title="backlog of 50,000 for one who is away", messages=50_000),
                _DURABLE_STOMP,
            ),
        ),
    ),
    Sitting(
        name="queues",
        warm_up=_QUEUE_1_TO_1,
        compared=(
            _queue(_QUEUE_1_TO_1),
            _queue(replace(_QUEUE_1_TO_1, name="queue-1-to-8", title="1 → 8 consumers", subscribers=8)),
        ),
    ),
    Sitting(
        name="footprint",
        compared=(
            Compared(
                scenario=FreshStart(name="start-up", title="start, nothing stored"),
                group=Group.FOOTPRINT,
                needs=_THERE,
            ),
            Compared(
                scenario=IdleConnections(name="idle-connections", title="5,000 idle connections", connections=5000),
                group=Group.FOOTPRINT,
                needs=_THERE_STOMP,
            ),
        ),
    ),
    Sitting(
        name="report",
        compared=(
            _report("report-sample", deliveries=200_000, days=8),  # as `make report` has it
            _report("report-day", deliveries=10_000_000, days=1),
        ),
    ),
    Sitting(
        name="a-million",
        compared=(
            Compared(
                scenario=PassedThrough(name="million", title="after 1,000,000 messages", messages=MILLION),
                group=Group.FOOTPRINT,
                needs=_TOPICS,
                most_rounds=1,
            ),
        ),
    ),
)

ALL_COMPARED: Final = tuple(compared for sitting in SITTINGS for compared in sitting.compared)


def compared_in(group: Group) -> list[Compared]:
    return [compared for compared in ALL_COMPARED if compared.group is group]


def chosen(names: frozenset[str], *, is_quick: bool) -> tuple[Sitting, ...]:
    """The sittings with only these scenarios and those they depend on; all if there are no names."""
    needed = names | {
        compared.scenario.of
        for compared in ALL_COMPARED
        if isinstance(compared.scenario, LatencyAtHalf) and compared.name in names
    }
    sittings = []
    for sitting in SITTINGS:
        kept = tuple(compared for compared in sitting.compared if not names or compared.name in needed)
        if kept:
            sittings.append(replace(sitting, compared=tuple(map(_quickened, kept)) if is_quick else kept))
    return tuple(sittings)


def with_goals(sittings: Sequence[Sitting]) -> tuple[Sitting, ...]:
    """Only what has a goal, measured with ours and those brokers that its goals name."""
    kept = []
    for sitting in sittings:
        compared = [replace(each, only=named) for each in sitting.compared if (named := named_with(each.name))]
        if compared:
            kept.append(replace(sitting, compared=tuple(compared)))
    return tuple(kept)


def _quickened(compared: Compared) -> Compared:
    scenario = compared.scenario
    if isinstance(scenario, LatencyAtHalf):
        return replace(compared, scenario=replace(scenario, duration_s=scenario.duration_s / 3))
    return replace(compared, scenario=quickened(scenario))
