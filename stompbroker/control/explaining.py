"""Why a topic keeps what it keeps, and what has become of one message for every subscription.

Law: looks at what delivery and the garbage collector look at, and says it in words. How much the store has is asked of
the store, a topic at a time. What everybody has settled is not kept, so of that it can only be said that it is so.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any, Final, final

from stompbroker.clock import iso_time
from stompbroker.control.request import ControlError, NotFound, named_topic, number, optional_text
from stompbroker.delivery import collecting

if TYPE_CHECKING:
    from stompbroker.clock import Clock
    from stompbroker.control.kept import KeptMessages, Place
    from stompbroker.control.request import Methods
    from stompbroker.delivery import Reading, Registry, Topic
    from stompbroker.ids import Offset
    from stompbroker.message import Message
    from stompbroker.message_ids import MessageIds

__all__ = ["ExplainingMethods", "describe_delivery"]

#: Topics in one answer, and subscriptions that are named for each.
MAX_TOPICS: Final = 100
MAX_PINNING: Final = 5


@final
class ExplainingMethods:
    def __init__(self, registry: Registry, kept: KeptMessages, message_ids: MessageIds, clock: Clock) -> None:
        self._registry = registry
        self._kept = kept
        self._message_ids = message_ids
        self._clock = clock
        self.methods: Methods = {
            "explain_collection": (self._explain, frozenset({"topic", "after", "limit"})),
            "trace": (self._trace, frozenset({"message_id", "topic"})),
        }

    # What is kept ----------------------------------------------------------------------------------------------------

    async def _explain(self, topic: object = None, after: object = "", limit: object = MAX_TOPICS) -> dict[str, Any]:
        """Of one topic, or of all, sorted by name; `after` is the last name of the answer before."""
        topics = self._registry.topics
        if topic is not None:
            name = named_topic(topic).key
            if name not in topics:
                raise NotFound(f"there is no topic {name!r}; list them with: stompbroker stats")
            return {"total": 1, "topics": [await self._explained(topics[name])]}
        names = sorted(topics)
        first = bisect_right(names, optional_text("after", after) or "")
        shown = names[first : first + number("limit", limit, 1, MAX_TOPICS)]
        found = [await self._explained(topics[name]) for name in shown if name in topics]
        return {"total": len(names), "topics": found}

    async def _explained(self, topic: Topic) -> dict[str, Any]:
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
        floor = collecting.collectable_up_to(topic, self._clock.now_ns())
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
            "why": _why_kept(topic, pinned_by, len(pinning), collectable, 0 if stored is None else stored.messages),
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

    # One message -----------------------------------------------------------------------------------------------------

    async def _trace(self, message_id: object = None, topic: object = None) -> dict[str, Any]:
        """Wherever it lies; or, if a topic is named, there and among its dead letters, and it must be there."""
        if not isinstance(message_id, str) or not message_id:
            raise ControlError("message_id is the id of a message, as its MESSAGE frame has it")
        places = await self._kept.find(message_id)
        if topic is not None:
            name = named_topic(topic)
            wanted = {name.key, name.dead_letters.key}
            places = [place for place in places if place.topic.destination.key in wanted]
            if not places:
                raise NotFound(self._why_not_found(message_id))
        found = [described for place in places if (described := await self._traced(place)) is not None]
        return {"message_id": message_id, "found": found, "note": None if found else self._why_not_found(message_id)}

    async def _traced(self, place: Place) -> dict[str, Any] | None:
        topic, offset = place
        message = await self._kept.get(topic, offset)
        is_kept = topic.is_in_store or any(
            offset >= reading.cursor.next_offset or not reading.cursor.is_settled(offset, offset + 1)
            for reading in topic.readings.values()
        )
        if message is None or not is_kept:
            return None  # gone in the meantime, or about to be
        expires_at_ns = message.expires_at_ns
        return {
            "topic": topic.destination.key,
            "offset": offset,
            "is_dead_letter": topic.is_of_dead_letters,
            "published_at": iso_time(message.published_at_ns),
            "expires_at": None if expires_at_ns is None else iso_time(expires_at_ns),
            "body_bytes": message.body_bytes,
            "subscriptions": [
                _described(reading, offset, message)
                for subscription, reading in topic.readings.items()
                if not subscription.is_closed
            ],
        }

    def _why_not_found(self, message_id: str) -> str:
        if self._message_ids.was_made(message_id):
            return (
                f"{message_id} is not kept any more: every subscription has settled it, it has expired, or nobody "
                "subscribed to its topic"
            )
        return f"no message was ever called {message_id!r} by this broker"


def _why_kept(topic: Topic, pinned_by: list[dict[str, Any]], pins: int, collectable: int, stored: int) -> str:
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


def _described(reading: Reading, offset: Offset, message: Message) -> dict[str, Any]:
    subscription = reading.subscription
    is_for_it = message.origin.only_for in (None, subscription.store_id)
    return {
        "subscription": subscription.key,
        "durable": subscription.is_durable,
        "connected": subscription.consumer is not None,
        **describe_delivery(reading, offset, is_for_it=is_for_it),
    }


def describe_delivery(reading: Reading, offset: Offset, *, is_for_it: bool = True) -> dict[str, Any]:
    """How one subscription stands to one message."""
    failure = reading.failures.get(offset)
    state = _state(reading, offset) if is_for_it else "not for it"
    is_in_flight = state == "in flight"
    attempts = None if state in ("settled", "not for it") else (0 if failure is None else failure.count) + is_in_flight
    first_sent_ns = reading.first_sent_ns(offset)
    last_sent_ns = _last_sent_ns(reading, offset)
    return {
        "state": state,
        "attempts": attempts,
        "first_attempt_at": _time(first_sent_ns or last_sent_ns),
        "last_attempt_at": _time(last_sent_ns),
        "next_attempt_at": _time(failure.due_ns) if failure is not None and state == "waiting" else None,
        "reason": None if failure is None else failure.reason or None,
    }


def _state(reading: Reading, offset: Offset) -> str:
    cursor = reading.cursor
    if offset >= cursor.next_offset:
        return "not sent"
    if cursor.is_settled(offset, offset + 1):
        return "settled"
    if cursor.is_waiting(offset):
        return "waiting"
    if cursor.pending(offset, offset + 1):
        return "pending"
    return "in flight" if cursor.is_in_flight(offset) else "ready"


def _time(at_ns: int | None) -> str | None:
    return iso_time(at_ns) if at_ns else None


def _last_sent_ns(reading: Reading, offset: Offset) -> int | None:
    """When an unsettled message was sent for the last time, if that is known."""
    failure = reading.failures.get(offset)
    if reading.cursor.is_in_flight(offset):
        holders = (each for each in reading.subscription.consumers if reading.owners.has(each, offset))
        return next((each.sent.sent_at_ns(reading, offset) for each in holders), None)
    if failure is not None and failure.last_attempt_ns:
        return failure.last_attempt_ns
    return reading.remembered.first_sent_ns(offset)
