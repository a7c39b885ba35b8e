"""What a peer is: a broker that ours is measured beside, and ours too.

Law: frozen data and two functions. It says whether it is on this machine, runs an instance of its own for the length
of a `with` block, shows the configuration it gives to it, and gives the reason for whatever it cannot do.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from benchmarks.target import OpenTarget

#: Seconds of silence after which a peer counts as stuck. RabbitMQ left a publisher of 1 → 50 without an answer for
#: more than 20: slow is a result, and only what never comes is broken.
PEER_STALL_S: Final = 120.0


class Ability(StrEnum):
    """What a scenario may need."""

    STOMP = "speaks STOMP"
    STREAMING = "takes frames that follow each other without a pause"
    TOPICS = "passes messages on to whoever is there"
    DURABLE = "stores messages for a durable subscriber of a topic"
    REDELIVERY = "sends a refused message again to the one who refused it"


@dataclass(frozen=True, slots=True)
class Installed:
    version: str


@dataclass(frozen=True, slots=True)
class Missing:
    how_to_install: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    #: What `--peer` takes.
    name: str
    title: str
    #: What it was told that it would not do of itself, and why that is fair.
    configuration: str
    installed: Callable[[], Installed | Missing]
    #: Settings are of ours alone; a peer leaves them aside.
    open: OpenTarget
    #: Seconds of silence after which missing messages count as lost and a waiting publisher as stuck.
    stall_s: float = PEER_STALL_S
    #: The reason for every ability that it has not.
    why_not: Mapping[Ability, str] = field(default_factory=dict)

    @property
    def abilities(self) -> frozenset[Ability]:
        return frozenset(Ability) - self.why_not.keys()
