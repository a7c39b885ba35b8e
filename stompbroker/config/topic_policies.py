"""Which settings a topic's policy is made of.

Law: names only. Settings are flat, because people write them; a policy has parts, because each has its own reader. The
two meet here, and every setting that a `[[topics]]` table may have is in one of the tables below.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from stompbroker.delivery import DeliveryPolicy, IdlePolicy, Retention, TopicPolicy

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["policy_from"]

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
