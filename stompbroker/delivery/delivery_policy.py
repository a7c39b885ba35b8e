"""How often a message is tried, how long it waits in between (the back-off), and what happens after the last attempt.

Law: values and arithmetic. A policy comes from the settings of the topic; what a subscriber wishes in its SUBSCRIBE is
laid over it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, final

if TYPE_CHECKING:
    from collections.abc import Mapping

_NS_PER_MS: Final = 1_000_000
#: Odd factors that spread seeds and attempts over 32 bits.
_SPREAD_BY_SEED, _SPREAD_BY_ATTEMPT, _SPREAD_BITS = 0x9E3779B1, 0x85EBCA77, 32


@final
class WhenUsedUp(Enum):
    """What becomes of a message that has failed as often as it may."""

    DEAD_LETTER = "dead-letter"
    DISCARD = "discard"
    #: The subscription goes, not the message.
    EVICT = "evict"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryPolicy:
    #: The wait after the first failure; each further one is `multiplier` times as long, up to `max_delay_ms`.
    first_delay_ms: int = 1_000
    multiplier: float = 2.0
    max_delay_ms: int = 300_000
    #: The part of a wait that may be cut off, so that subscriptions do not all retry at once.
    jitter: float = 0.1
    #: Deliveries in all; 0 means without end.
    max_attempts: int = 10
    #: How long a message may be in flight before that counts as a failure; 0 means for ever.
    ack_deadline_ms: int = 0
    when_used_up: WhenUsedUp = WhenUsedUp.DEAD_LETTER

    def is_used_up(self, failures: int) -> bool:
        """Whether a message that has failed so often is not tried again."""
        return 0 < self.max_attempts <= failures

    def delay_ns(self, failures: int, seed: int) -> int:
        """How long a message waits after its `failures`-th failure, for the subscription with that seed.

        The jitter depends on subscription and attempt alone, so messages that failed as often keep their order.
        """
        delay_ms = min(self.max_delay_ms, self.first_delay_ms * self.multiplier ** min(failures - 1, 64))
        mixed = (seed * _SPREAD_BY_SEED + failures * _SPREAD_BY_ATTEMPT) % 2**_SPREAD_BITS
        return int(delay_ms * (1 - self.jitter * mixed / 2**_SPREAD_BITS) * _NS_PER_MS)

    @property
    def ack_deadline_ns(self) -> int:
        return self.ack_deadline_ms * _NS_PER_MS


@final
@dataclass(frozen=True, slots=True)
class DeliveryWishes:
    """Fields of the topic's `DeliveryPolicy` that a subscriber wants otherwise, by name; checked."""

    changed: Mapping[str, Any]

    def laid_over(self, policy: DeliveryPolicy) -> DeliveryPolicy:
        return replace(policy, **self.changed) if self.changed else policy

    def as_plain(self) -> dict[str, Any]:
        """For JSON."""
        return {name: value.value if isinstance(value, Enum) else value for name, value in self.changed.items()}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> DeliveryWishes:
        """The reverse of `as_plain`, without fields that this release does not know."""
        known = {field.name for field in fields(DeliveryPolicy)}
        changed = {name: value for name, value in plain.items() if name in known}
        if "when_used_up" in changed:
            changed["when_used_up"] = WhenUsedUp(changed["when_used_up"])
        return cls(changed)
