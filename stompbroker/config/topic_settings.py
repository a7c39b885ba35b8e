"""What can be set for some topics alone, and the policy that comes of it.

Law: settings are flat, because people write them; a policy has parts, because each has its own reader. The two meet
here, and every setting that a `[[topics]]` table may have is in one of the tables below.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field

from stompbroker.config.quantities import (
    DAY_MS,
    DAY_S,
    DECADE_S,
    KIB,
    TIB,
    AckDeadline,
    ByteSize,
    Count,
    Factor,
    Kind,
    Milliseconds,
    Seconds,
    YesOrNo,
)
from stompbroker.delivery import DeliveryPolicy, IdlePolicy, Retention, SlowSubscriber, TopicPolicy, WhenUsedUp

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "Attempts",
    "BlockTimeout",
    "Deadline",
    "FirstDelay",
    "Jitter",
    "KeptBytes",
    "KeptMessages",
    "LongTime",
    "LongestDelay",
    "MessageLifetime",
    "Multiplier",
    "TopicSettings",
    "WindowBytes",
    "WindowMessages",
    "policy_from",
]

# The range is in the type, so that it is the same for the general setting and for a table.
WindowBytes = Annotated[ByteSize, Field(ge=KIB, le=TIB)]
WindowMessages = Annotated[Count, Field(ge=1, le=100_000_000)]
BlockTimeout = Annotated[Seconds, Field(ge=0, le=DAY_S)]
FirstDelay = Annotated[Milliseconds, Field(ge=0, le=DAY_MS)]
Multiplier = Annotated[Factor, Field(ge=1, le=100)]
LongestDelay = Annotated[Milliseconds, Field(ge=0, le=7 * DAY_MS)]
Jitter = Annotated[Factor, Field(ge=0, le=1)]
Attempts = Annotated[Count, Field(ge=0, le=1_000_000)]
Deadline = Annotated[AckDeadline, Field(ge=0, le=DAY_MS)]
MessageLifetime = Annotated[Milliseconds, Field(ge=0, le=DECADE_S * 1_000)]
LongTime = Annotated[Seconds, Field(ge=0, le=DECADE_S)]
KeptBytes = Annotated[ByteSize, Field(ge=0, le=64 * TIB)]
KeptMessages = Annotated[Count, Field(ge=0, le=1_000_000_000)]


class TopicSettings(BaseModel):
    """One `[[topics]]` table: for the topics that match `pattern`, what differs from the general settings."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pattern: Annotated[str, Field(min_length=1), Kind('a destination or a pattern such as "prices.*"')]
    slow_subscriber: SlowSubscriber | None = None
    window_bytes: WindowBytes | None = None
    window_messages: WindowMessages | None = None
    block_timeout_s: BlockTimeout | None = None
    redelivery_first_delay_ms: FirstDelay | None = None
    redelivery_multiplier: Multiplier | None = None
    redelivery_max_delay_ms: LongestDelay | None = None
    redelivery_jitter: Jitter | None = None
    max_attempts: Attempts | None = None
    ack_deadline_ms: Deadline | None = None
    when_used_up: WhenUsedUp | None = None
    message_ttl_ms: MessageLifetime | None = None
    retain_s: LongTime | None = None
    retain_bytes: KeptBytes | None = None
    retain_messages: KeptMessages | None = None
    idle_warning_s: LongTime | None = None
    idle_delete_s: LongTime | None = None
    idle_delete_unsettled: YesOrNo | None = None

    def overrides(self) -> dict[str, Any]:
        """What it sets, by the keys of the general settings."""
        return self.model_dump(exclude={"pattern"}, exclude_none=True)


#: They are called the same in a policy.
PLAIN: Final = ("slow_subscriber", "window_bytes", "window_messages", "block_timeout_s", "message_ttl_ms")

#: Field of a policy → what it is made of: field of that part → setting.
PARTS: Final[Mapping[str, tuple[type, Mapping[str, str]]]] = {
    "delivery": (
        DeliveryPolicy,
        {
            "first_delay_ms": "redelivery_first_delay_ms",
            "multiplier": "redelivery_multiplier",
            "max_delay_ms": "redelivery_max_delay_ms",
            "jitter": "redelivery_jitter",
            "max_attempts": "max_attempts",
            "ack_deadline_ms": "ack_deadline_ms",
            "when_used_up": "when_used_up",
        },
    ),
    "retention": (
        Retention,
        {"age_s": "retain_s", "max_bytes": "retain_bytes", "max_messages": "retain_messages"},
    ),
    "idle": (
        IdlePolicy,
        {
            "warn_after_s": "idle_warning_s",
            "delete_after_s": "idle_delete_s",
            "deletes_unsettled": "idle_delete_unsettled",
        },
    ),
}


def policy_from(values: Mapping[str, Any]) -> TopicPolicy:
    """The policy for these settings, all of which must be there, by their keys."""
    parts = {name: part(**{field: values[key] for field, key in keys.items()}) for name, (part, keys) in PARTS.items()}
    return TopicPolicy(**{key: values[key] for key in PLAIN}, **parts)
