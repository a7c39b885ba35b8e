"""What a topic may keep, and what happens to a subscriber that cannot keep up or is not there.

Law: values and their choice by name; nothing here acts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, final

from stompbroker.delivery.delivery_policy import DeliveryPolicy

if TYPE_CHECKING:
    from stompbroker.delivery.destination import Pattern


@final
class SlowSubscriber(Enum):
    """What to do when a topic's window is full of messages that a subscriber has not been sent yet."""

    BLOCK = "block"
    DROP_OLDEST = "drop-oldest"
    DROP_NEWEST = "drop-newest"
    DISCONNECT = "disconnect"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """What is kept for later subscribers although everybody has settled it: what is within every bound that is not 0.
    All 0 means nothing.
    """

    age_s: float = 0.0
    max_bytes: int = 0
    max_messages: int = 0

    def __bool__(self) -> bool:
        return bool(self.age_s or self.max_bytes or self.max_messages)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class IdlePolicy:
    """What happens to a durable subscription that nobody attaches to."""

    #: When it is warned of, and when it is deleted; 0 means never.
    warn_after_s: float = 604_800.0
    delete_after_s: float = 0.0
    #: Whether it is deleted also when there is something it has not settled, which is then lost to it.
    deletes_unsettled: bool = False


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPolicy:
    slow_subscriber: SlowSubscriber = SlowSubscriber.BLOCK
    #: The window: how much may be kept that is not yet sent to somebody.
    window_bytes: int = 8 * 1024 * 1024
    window_messages: int = 50_000
    #: How long publishers are held back without progress before the subscription that pins the window is disconnected.
    block_timeout_s: float = 30.0
    delivery: DeliveryPolicy = field(default_factory=DeliveryPolicy)
    #: How long a message lives whose publisher does not say; 0 means for ever.
    message_ttl_ms: int = 0
    retention: Retention = field(default_factory=Retention)
    #: For durable subscriptions whose pattern a table's pattern matches.
    idle: IdlePolicy = field(default_factory=IdlePolicy)


@final
@dataclass(frozen=True, slots=True)
class TopicPolicies:
    """The default, one for topics of dead letters, and overrides by pattern: the first one that matches counts."""

    default: TopicPolicy
    overrides: tuple[tuple[Pattern, TopicPolicy], ...] = ()
    dead_letters: TopicPolicy | None = None

    def find(self, name: Pattern) -> TopicPolicy:
        for pattern, policy in self.overrides:
            if pattern.matches(name):
                return policy
        if self.dead_letters is not None and name.is_of_dead_letters:
            return self.dead_letters
        return self.default
