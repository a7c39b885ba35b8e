"""What a topic may keep, and what happens to a subscriber that cannot keep up.

Law: values and their choice by name; nothing here acts.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from stompbroker.topics.destination import Pattern

__all__ = ["SlowSubscriber", "TopicPolicies", "TopicPolicy"]


@final
class SlowSubscriber(Enum):
    """What to do when a topic's window is full of messages that a subscriber has not been sent yet."""

    BLOCK = "block"
    DROP_OLDEST = "drop-oldest"
    DROP_NEWEST = "drop-newest"
    DISCONNECT = "disconnect"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPolicy:
    slow_subscriber: SlowSubscriber = SlowSubscriber.BLOCK
    #: The window: how much may be kept that is not yet sent to somebody.
    window_bytes: int = 8 * 1024 * 1024
    window_messages: int = 50_000
    #: How long publishers are held back without progress before the subscription that pins the window is disconnected.
    block_timeout_s: float = 30.0


@final
@dataclass(frozen=True, slots=True)
class TopicPolicies:
    """The default, and overrides by pattern: the first one that matches counts."""

    default: TopicPolicy
    overrides: tuple[tuple[Pattern, TopicPolicy], ...] = ()

    def find(self, name: Pattern) -> TopicPolicy:
        for pattern, policy in self.overrides:
            if pattern.matches(name.segments):
                return policy
        return self.default
