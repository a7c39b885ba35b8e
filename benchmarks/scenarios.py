"""What is measured, as data.

Law: a scenario is a frozen value; how its kind is measured stands in `measuring/`, one file per kind. Names are what
`--scenario` takes and what the JSON holds, so they stay.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

_BODY_BYTES: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """One publisher, as fast as the broker takes it, for `duration_s`."""

    name: str
    title: str
    duration_s: float = 1.5
    subscribers: int = 1
    body_bytes: int = _BODY_BYTES
    #: Subscribers use `client-individual` and acknowledge every message.
    acknowledges: bool = False
    #: Every SEND asks for a receipt, and so many may be outstanding; 0 asks for none.
    receipt_window: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """One publisher at a fixed rate, one subscriber."""

    name: str
    title: str
    messages_per_s: int
    duration_s: float = 3.0
    body_bytes: int = _BODY_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleConnections:
    """Connections with one subscription each, on one topic."""

    name: str
    title: str
    connections: int
    body_bytes: int = _BODY_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """A steady topic, alone and beside one that is flooded while its subscriber does not read."""

    name: str
    title: str
    #: What the broker does about the subscriber that does not read.
    slow_subscriber: str
    #: Whether that policy stops the flood.
    holds_back: bool
    messages_per_s: int = 2000
    #: Of each of the two phases.
    duration_s: float = 3.0
    body_bytes: int = _BODY_BYTES
    #: Large, so that a broker that keeps what it cannot deliver is over `memory_limit_mib` before the end.
    flood_body_bytes: int = 1024
    memory_limit_mib: int = 512


Scenario = Throughput | Latency | IdleConnections | Isolation

#: Every throughput is compared with this one.
REFERENCE: Final = "topic-1-to-1"

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
)


def quickened(scenario: Scenario) -> Scenario:
    """The same with less time or fewer connections: enough to see that it works, too little for a good number."""
    if isinstance(scenario, IdleConnections):
        return replace(scenario, connections=500, title="500 idle connections")
    return replace(scenario, duration_s=scenario.duration_s / 3)
