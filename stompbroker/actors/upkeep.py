"""Finds expired messages in the store, and counts what a topic retained before the start.

Reads in a thread, in pages; topics decide, and deletions go to the journal as units. After a failure of the store it
tries again in the next round. Cancelling it leaves work for the next start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog
import trio

from stompbroker.changes import Purged, Unit
from stompbroker.delivery import Mark, withdrawing
from stompbroker.storage import StoreDamaged, StoreFailing

if TYPE_CHECKING:
    from stompbroker.changes import Journal
    from stompbroker.clock import Clock
    from stompbroker.delivery import Registry, Topic
    from stompbroker.ids import Offset
    from stompbroker.journal import Health
    from stompbroker.message import Message
    from stompbroker.storage import Store, Stretch

#: Time between two rounds, in seconds.
ROUND_S: Final = 5.0
#: Expired messages in one query and one unit: giving one up takes about 2 µs for every subscription.
EXPIRED_PER_LOOK: Final = 500

log = structlog.get_logger()


async def run(registry: Registry, journal: Journal, store: Store, clock: Clock, health: Health) -> None:
    """Run until cancelled."""
    limiter = trio.CapacityLimiter(1)
    while True:
        try:
            for topic in list(registry.topics.values()):
                if topic.retained is not None and not topic.retained.is_counted and not topic.is_removed:
                    await _count(topic, store, clock, limiter)
            await _expire(registry, journal, store, clock, limiter, health)
        except StoreDamaged as damage:
            health.note_damage(str(damage))
        except StoreFailing as failure:
            log.debug("the store cannot be looked into", reason=str(failure))
        await trio.sleep(ROUND_S)


async def _count(topic: Topic, store: Store, clock: Clock, limiter: trio.CapacityLimiter) -> None:
    """Count what a topic retained before the start. Until then nothing of it is deleted."""
    assert topic.retained is not None
    assert topic.store_id is not None
    retained, topic_id, now_ns = topic.retained, topic.store_id, clock.now_ns()

    def read() -> list[Stretch]:
        stop = retained.counts_from
        extent = store.surveys.extent(topic_id, 0, stop)
        span_ns = now_ns - (extent.first_published_at_ns or 0)
        return store.surveys.stretches(topic_id, retained.mark_size(extent.messages, extent.tail_bytes, span_ns), stop)

    found = await trio.to_thread.run_sync(read, limiter=limiter, abandon_on_cancel=True)
    begun_at_ns = [0, *(stretch.last_published_at_ns for stretch in found)]
    retained.note_earlier(
        Mark(stretch.stop, stretch.messages, stretch.tail_bytes, begun_ns, stretch.last_published_at_ns)
        for stretch, begun_ns in zip(found, begun_at_ns, strict=False)
    )


async def _expire(
    registry: Registry, journal: Journal, store: Store, clock: Clock, limiter: trio.CapacityLimiter, health: Health
) -> None:
    """Give up expired messages, and have them deleted unless a consumer still works on them."""
    if not any(topic.is_in_store for topic in registry.topics.values()):
        return
    after: tuple[int, int, int] | None = None
    while not journal.is_overfull:
        found = await trio.to_thread.run_sync(
            store.surveys.expired, clock.now_ns(), after, EXPIRED_PER_LOOK, limiter=limiter, abandon_on_cancel=True
        )
        if not found:
            return
        by_id = {topic.store_id: topic for topic in registry.topics.values() if topic.is_in_store}
        purged: dict[Topic, dict[Offset, Message]] = {}
        now_ns = clock.now_ns()
        for _, topic_id, offset, message in found:
            topic = by_id.get(topic_id)
            if message is None:
                where = "" if topic is None else f"topic {topic.name}: "
                health.note_damage(f"{where}the message at offset {offset} is not as it was written")
            elif topic is not None and withdrawing.expire(topic, offset, message, now_ns):
                purged.setdefault(topic, {})[offset] = message
        if purged:
            await _purge(purged, journal)
        if len(found) < EXPIRED_PER_LOOK:
            return
        after = found[-1].place


async def _purge(purged: dict[Topic, dict[Offset, Message]], journal: Journal) -> None:
    done = trio.Event()

    def note_refused(reason: str) -> None:
        log.error("expired messages cannot be deleted", reason=reason)
        done.set()

    effects = [Purged(topic, messages) for topic, messages in purged.items()]
    journal.submit(Unit([*effects], then=done.set, owes_receipt=False, refused=note_refused))
    await done.wait()
