"""What is measured, as data.

A scenario is a frozen value; `measuring/` has one file per kind that measures it. Names are part of `--scenario` and of
the JSON, so they must not change.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

_BODY_BYTES: Final = 256
#: SENDs a publisher may have without a RECEIPT in durable scenarios: several batches of the broker.
DURABLE_WINDOW: Final = 4000
MILLION: Final = 1_000_000

#: The scenarios that transient and durable throughputs are compared with.
REFERENCE: Final = "topic-1-to-1"
DURABLE_REFERENCE: Final = "durable-1-to-1"
QUEUE_REFERENCE: Final = "queue-1-to-1"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Named:
    name: str
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Durable(_Named):
    body_bytes: int = _BODY_BYTES
    receipt_window: int = DURABLE_WINDOW


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput(_Named):
    """One publisher, as fast as the broker takes it, for `duration_s`."""

    duration_s: float = 1.5
    subscribers: int = 1
    body_bytes: int = _BODY_BYTES
    #: Subscribers use `client-individual` and acknowledge every message.
    acknowledges: bool = False
    #: Their subscriptions are durable.
    is_durable: bool = False
    #: They are consumers of one queue, which is stored: each message goes to one of them.
    is_queue: bool = False
    #: Outstanding receipts, one for every SEND; 0 asks for none.
    receipt_window: int = 0
    #: Ends after so many messages, even if there is time left.
    most_messages: int | None = None
    #: Messages have a producer's numbers; needs `most_messages`, which are made before.
    is_numbered: bool = False
    #: Whether the broker keeps its ledger.
    has_ledger: bool = True
    #: The scenario whose deliveries are 1.0.
    reference: str = REFERENCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency(_Named):
    """One publisher at a fixed rate, one subscriber."""

    messages_per_s: int
    #: A durable subscription, with a receipt for every SEND and an ACK for every MESSAGE.
    is_durable: bool = False
    #: Untimed messages sent with each timed one.
    companions: int = 0
    duration_s: float = 3.0
    body_bytes: int = _BODY_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd(_Named):
    """Several publishers and several topics with subscribers of their own, as fast as the broker takes it."""

    publishers: int
    #: With as many publishers as topics, publisher n publishes to topic n; a single publisher goes through all topics
    #: in turn; a single topic gets everything.
    topics: int
    subscribers_per_topic: int
    #: Topics that share a connection of a subscriber.
    topics_per_connection: int = 1
    duration_s: float = 1.5
    body_bytes: int = _BODY_BYTES
    #: Durable subscriptions, and an ACK for every MESSAGE.
    is_durable: bool = False
    #: Of each publisher.
    receipt_window: int = 0


#: Below the broker's default limit of subscriptions on a connection.
_TOPICS_PER_CONNECTION: Final = 1000


def topics_in_turn(topics: int) -> Crowd:
    """One publisher that goes through so many topics, each with a subscription."""
    return Crowd(
        name=f"topics-{topics}",
        title=f"{topics:,} topics",
        publishers=1,
        topics=topics,
        subscribers_per_topic=1,
        topics_per_connection=min(topics, _TOPICS_PER_CONNECTION),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NackStorm(_Durable):
    """Durable 1 → 1, where every tenth message is refused once."""

    duration_s: float = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedThrough(_Named):
    """Many messages through a topic with one subscriber, and the memory afterwards."""

    messages: int
    body_bytes: int = _BODY_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshStart(_Named):
    """A start on an empty data directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NightlyReport(_Named):
    """The report on the last of some days, which have so many deliveries together."""

    deliveries: int
    days: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleConnections(_Named):
    """Connections with one subscription each, on one topic."""

    connections: int
    body_bytes: int = _BODY_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation(_Named):
    """A steady topic, alone and beside a flooded one whose subscriber does not read."""

    #: The broker's policy for the subscriber that does not read.
    slow_subscriber: str
    #: Whether that policy stops the flood.
    holds_back: bool
    messages_per_s: int = 2000
    #: Of each of the two phases.
    duration_s: float = 3.0
    body_bytes: int = _BODY_BYTES
    #: Large, so that a broker that keeps everything exceeds `memory_limit_mib` before the end.
    flood_body_bytes: int = 1024
    memory_limit_mib: int = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog(_Durable):
    """A backlog for a durable subscriber that is away, and its return."""

    messages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSize(_Durable):
    """Durable 1 → 1 while the store holds few, then many messages for absent subscribers."""

    many: int
    few: int = 10
    #: Of each of the three phases.
    duration_s: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StartUp(_Durable):
    """Starts on an empty store and on one with a backlog, which is then drained."""

    messages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Poison(_Durable):
    """One durable topic, without and with a message that one of its subscribers refuses every time."""

    messages: int
    subscribers: int = 5
    #: Attempts before it is dead-lettered, and the wait between two: a fraction of the run.
    attempts: int = 4
    delay_ms: int = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class NackEverything(_Durable):
    """An ordinary durable topic, alone and beside a subscriber of another that refuses everything."""

    messages_per_s: int = 1000
    #: Length of each paced phase; unpaced ones take half of it.
    duration_s: float = 5.0
    #: The broker's setting, and the messages to refuse as a multiple of it.
    max_waiting: int = 10_000
    backlog_factor: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Collecting(_Durable):
    """An ordinary durable topic, alone and while everything in another is collected."""

    messages: int
    messages_per_s: int = 1000
    #: Length of the phase without collection; the other lasts as long as the collection.
    duration_s: float = 10.0


Scenario = (
    Throughput
    | Latency
    | Crowd
    | NackStorm
    | PassedThrough
    | FreshStart
    | NightlyReport
    | IdleConnections
    | Isolation
    | Backlog
    | StoreSize
    | StartUp
    | Poison
    | NackEverything
    | Collecting
)

#: Most rounds for kinds that first fill a store with a million messages.
HEAVY_ROUNDS: Final = 2

SCENARIOS: Final[tuple[Scenario, ...]] = (
    Throughput(name=REFERENCE, title="topic, 1 → 1"),
    Throughput(name="topic-1-to-50", title="topic, 1 → 50", subscribers=50),
    Throughput(name="acknowledged", title="1 → 1, an ACK for every message", acknowledges=True),
    Throughput(name="receipts", title="1 → 1, a receipt for every SEND", receipt_window=1000),
    Latency(name="latency", title="latency at 1,000/s", messages_per_s=1000),
    IdleConnections(name="idle-connections", title="2,000 idle connections", connections=2000),
    Isolation(name="isolation-block", title="beside a flood, block", slow_subscriber="block", holds_back=True),
    Isolation(
        name="isolation-drop", title="beside a flood, drop-oldest", slow_subscriber="drop-oldest", holds_back=False
    ),
    Throughput(
        name=DURABLE_REFERENCE,
        title="durable, 1 → 1",
        acknowledges=True,
        is_durable=True,
        receipt_window=DURABLE_WINDOW,
    ),
    Throughput(
        name="durable-1-to-10",
        title="durable, 1 → 10",
        subscribers=10,
        acknowledges=True,
        is_durable=True,
        receipt_window=DURABLE_WINDOW,
        reference=DURABLE_REFERENCE,
    ),
    Throughput(
        name="durable-numbered",
        title="durable, 1 → 1, numbered",
        acknowledges=True,
        is_durable=True,
        receipt_window=DURABLE_WINDOW,
        most_messages=200_000,
        is_numbered=True,
        reference=DURABLE_REFERENCE,
    ),
    Throughput(
        name="durable-without-ledger",
        title="durable, 1 → 1, no ledger",
        acknowledges=True,
        is_durable=True,
        receipt_window=DURABLE_WINDOW,
        has_ledger=False,
        reference=DURABLE_REFERENCE,
    ),
    Throughput(
        name=QUEUE_REFERENCE,
        title="queue, 1 → 1",
        acknowledges=True,
        is_queue=True,
        receipt_window=DURABLE_WINDOW,
        reference=DURABLE_REFERENCE,
    ),
    Throughput(
        name="queue-1-to-8",
        title="queue, 1 → 8 consumers",
        subscribers=8,
        acknowledges=True,
        is_queue=True,
        receipt_window=DURABLE_WINDOW,
        reference=QUEUE_REFERENCE,
    ),
    Latency(name="durable-latency", title="durable, latency at 1,000/s", messages_per_s=1000, is_durable=True),
    Backlog(name="durable-backlog", title="durable, backlog of 200,000", messages=200_000),
    StoreSize(name="durable-store-size", title="durable, store of 10 and 1,000,000", many=MILLION),
    FreshStart(name="start", title="start, nothing stored"),
    StartUp(name="durable-start", title="start on a backlog of 1,000,000", messages=MILLION),
    Poison(name="poison", title="one poison in 10,000", messages=10_000),
    NackEverything(name="nack-everything", title="beside NACKs of everything"),
    Collecting(name="collecting", title="collecting 1,000,000", messages=MILLION),
)


def rounds_of(scenario: Scenario, rounds: int) -> int:
    """In how many of `rounds` rounds it is measured."""
    return min(rounds, HEAVY_ROUNDS) if isinstance(scenario, StoreSize | StartUp | Collecting) else rounds


def quickened(scenario: Scenario) -> Scenario:
    """A shorter version: enough to see that it works, too short for a figure."""
    match scenario:
        case FreshStart():
            return scenario
        case PassedThrough():
            return replace(scenario, messages=50_000, title="after 50,000 messages")
        case NightlyReport():
            return replace(scenario, deliveries=20_000, title=f"20,000 deliveries, {scenario.days} days")
        case IdleConnections():
            return replace(scenario, connections=500, title="500 idle connections")
        case Backlog():
            return replace(scenario, messages=20_000, title="durable, backlog of 20,000")
        case StoreSize():
            return replace(
                scenario,
                many=50_000,
                duration_s=scenario.duration_s / 3,
                title="durable, store of 10 and 50,000",
            )
        case StartUp():
            return replace(scenario, messages=50_000, title="start on a backlog of 50,000")
        case Poison():
            return replace(scenario, messages=3_000, title="one poison in 3,000")
        case Collecting():
            return replace(
                scenario,
                messages=50_000,
                duration_s=scenario.duration_s / 3,
                title="collecting 50,000",
            )
        case _:
            return replace(scenario, duration_s=scenario.duration_s / 3)
