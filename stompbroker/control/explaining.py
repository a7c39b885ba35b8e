"""Why a topic keeps what it keeps.

Law: looks at what the garbage collector looks at, and says it in words. How much the store has is asked of the store,
a topic at a time.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any, Final, final

from stompbroker.clock import iso_time
from stompbroker.control.request import NotFound, named_topic, number, optional_text

if TYPE_CHECKING:
    from stompbroker.clock import Clock
    from stompbroker.control.kept import KeptMessages
    from stompbroker.control.request import Methods
    from stompbroker.delivery import Reading, Registry, Topic

__all__ = ["CollectionMethods"]

#: Topics in one answer, and subscriptions that are named for each.
MAX_TOPICS: Final = 100
MAX_PINNING: Final = 5


@final
class CollectionMethods:
    def __init__(self, registry: Registry, kept: KeptMessages, clock: Clock) -> None:
        self._registry = registry
        self._kept = kept
        self._clock = clock
        self.methods: Methods = {
            "explain_collection": (self._explain, frozenset({"topic", "after", "limit"})),
        }

    async def _explain(self, topic: object = None, after: object = "", limit: object = MAX_TOPICS) -> dict[str, Any]:
        """Of one topic, or of all, sorted by name; `after` is the last name of the answer before."""
        topics = self._registry.topics
        if topic is not None:
            name = named_topic(topic).key
            if name not in topics:
                raise NotFound(f"there is no topic {name!r}; list them with: stompbroker stats")
            return {"total": 1, "topics": [await self._of(topics[name])]}
        names = sorted(topics)
        first = bisect_right(names, optional_text("after", after) or "")
        shown = names[first : first + number("limit", limit, 1, MAX_TOPICS)]
        found = [await self._of(topics[name]) for name in shown if name in topics]
        return {"total": len(names), "topics": found}

    async def _of(self, topic: Topic) -> dict[str, Any]:
        end = topic.log.end_offset
        pinning = sorted(
            (
                reading
                for reading in topic.readings.values()
                if not reading.is_idle and not reading.subscription.is_closed
            ),
            key=lambda reading: reading.cursor.ack_floor,
        )
        pinned_by = [await self._pinning(reading) for reading in pinning[:MAX_PINNING]]
        stored = await self._kept.extent(topic, topic.collected_up_to, end)
        floor = topic.collectable_up_to(self._clock.now_ns())
        below = await self._kept.extent(topic, topic.collected_up_to, floor)
        between = sum(stop - start for start, stop in topic.between_holes)
        collectable = between + (0 if below is None else below.messages)
        retained = topic.retained
        return {
            "topic": topic.destination.key,
            "in_memory": {"messages": topic.log.message_count, "bytes": topic.log.size_bytes},
            "stored": None
            if stored is None
            else {
                "first_offset": topic.collected_up_to,
                "next_offset": end,
                "messages": stored.messages,
                "bytes": stored.tail_bytes,
            },
            "retention": None
            if retained is None
            else {
                "age_s": topic.policy.retention.age_s,
                "max_bytes": topic.policy.retention.max_bytes,
                "max_messages": topic.policy.retention.max_messages,
                "messages": retained.messages,
                "bytes": retained.size_bytes,
            },
            "pinned_by": pinned_by,
            "collectable": {"messages": collectable},
            "why": _why(topic, pinned_by, len(pinning), collectable, 0 if stored is None else stored.messages),
        }

    async def _pinning(self, reading: Reading) -> dict[str, Any]:
        subscription, lowest = reading.subscription, reading.cursor.ack_floor
        oldest = reading.topic.log.get(lowest) or await self._kept.first_from(reading.topic, lowest)
        durability = subscription.durability
        return {
            "subscription": subscription.key,
            "destination": subscription.destination,
            "durable": subscription.is_durable,
            "connected": subscription.consumer is not None,
            "last_seen_at": None if durability is None else iso_time(durability.last_seen_at_ns),
            "lowest_unsettled": lowest,
            "unsettled": reading.backlog + reading.cursor.in_flight + reading.cursor.pending_count,
            "since": None if oldest is None else iso_time(oldest.published_at_ns),
        }


def _why(topic: Topic, pinned_by: list[dict[str, Any]], pins: int, collectable: int, stored: int) -> str:
    """One sentence: what keeps most of it."""
    if not stored and not topic.log.message_count:
        return "nothing is kept"
    if pinned_by:
        first = pinned_by[0]
        others = "" if pins == 1 else f", and {pins - 1} more have not settled everything"
        count = first["unsettled"]
        kind = "durable" if first["durable"] else "transient"
        state = (
            "which is connected"
            if first["connected"]
            else f"which nobody has attached to since {first['last_seen_at']}"
        )
        return (
            f"{count} {'message is' if count == 1 else 'messages are'} kept, from offset "
            f"{first['lowest_unsettled']} on, for the {kind} "
            f"subscription {first['subscription']!r}, {state}{others}"
        )
    if topic.is_retaining and stored > collectable:
        return "everybody has settled all of it; it is kept for later subscribers by the topic's retention"
    return "everybody has settled all of it; it goes with the next collections"
