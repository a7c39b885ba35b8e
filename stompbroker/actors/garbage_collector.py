"""Removes what nobody needs any more, and whom nobody can wait for.

Law: a round every second, in slices with a written size. It trims topics of what every subscription has settled, drops
topics that nobody uses, lets blocked topics go on when memory has eased, and disconnects the subscriber that
has kept a topic blocked for too long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog
import trio

from stompbroker.clock import NANOSECONDS

if TYPE_CHECKING:
    from stompbroker.clock import Clock
    from stompbroker.topics import Registry

__all__ = ["run"]

#: Time between two rounds.
ROUND_S: Final = 1.0
#: Topics looked at between two checkpoints, about 3 µs each.
TOPICS_PER_SLICE: Final = 256

log = structlog.get_logger()


async def run(
    registry: Registry,
    clock: Clock,
    *,
    topic_idle_ns: int,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Collect until cancelled. Cancelling between two slices only leaves work for the next round."""
    task_status.started()
    while True:
        with trio.move_on_after(ROUND_S):
            await registry.budget.eased.wait()
        _look_after_blocked(registry, clock.now_ns())
        await _collect_topics(registry, clock, topic_idle_ns)


def _look_after_blocked(registry: Registry, now_ns: int) -> None:
    for topic in list(registry.blocked):
        topic.try_to_unblock(now_ns)
        if not topic.is_blocked or now_ns - topic.progress_at_ns < topic.policy.block_timeout_s * NANOSECONDS:
            continue
        topic.progress_at_ns = now_ns
        for reading in topic.disconnect_pinning():
            log.warning(
                "disconnected a subscriber that blocked its topic",
                topic=topic.name,
                subscription=reading.subscription.name,
                connection=reading.subscription.connection_id,
                blocked_for_s=topic.policy.block_timeout_s,
            )


async def _collect_topics(registry: Registry, clock: Clock, topic_idle_ns: int) -> None:
    topics = list(registry.topics.values())
    for first in range(0, len(topics), TOPICS_PER_SLICE):
        unused_since_ns = clock.now_ns() - topic_idle_ns
        for topic in topics[first : first + TOPICS_PER_SLICE]:
            if not topic.is_removed:
                registry.collect(topic, unused_since_ns=unused_since_ns)
        await trio.lowlevel.checkpoint()
