"""A peer: a broker that takes part in the comparison, ours included.

Frozen data and two functions: whether it is installed, and how to run an instance for a `with` block. It also has its
configuration, and a reason for everything it cannot do.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from benchmarks.target import OpenTarget

#: Seconds of silence after which a peer counts as stuck. RabbitMQ left a publisher of 1 → 50 without an answer for
#: more than 20, and slow is a result, not a fault.
PEER_STALL_S: Final = 120.0


class Ability(StrEnum):
    """An ability that a scenario may need."""

    STOMP = "speaks STOMP"
    STREAMING = "takes frames that follow each other without a pause"
    TOPICS = "passes messages on to whoever is there"
    DURABLE = "stores messages for a durable subscriber of a topic"
    QUEUES = "stores messages for the consumers of a queue, each for one of them"
    REDELIVERY = "sends a refused message again to the one who refused it"


@dataclass(frozen=True, slots=True)
class Installed:
    version: str


@dataclass(frozen=True, slots=True)
class Missing:
    how_to_install: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    #: The value for `--peer`.
    name: str
    title: str
    #: Settings that differ from its defaults, and why that is fair.
    configuration: str
    installed: Callable[[], Installed | Missing]
    #: The settings are for our broker; other peers ignore them.
    open: OpenTarget
    #: Seconds of silence after which missing messages count as lost and a waiting publisher as stuck.
    stall_s: float = PEER_STALL_S
    #: A reason for every ability that it lacks.
    why_not: Mapping[Ability, str] = field(default_factory=dict)

    @property
    def abilities(self) -> frozenset[Ability]:
        return frozenset(Ability) - self.why_not.keys()
