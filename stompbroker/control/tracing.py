"""What has become of one message, for every subscription.

Law: from an id to the places where the message lies, and at each to the state it is in for everybody who reads there.
What everybody has settled is not kept, so of that it can only be said that it is so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from stompbroker.clock import iso_time
from stompbroker.control.request import ControlError, NotFound, named_topic

if TYPE_CHECKING:
    from stompbroker.control.kept import KeptMessages, Place
    from stompbroker.control.request import Methods
    from stompbroker.delivery import Reading, Registry
    from stompbroker.ids import Offset
    from stompbroker.message import Message
    from stompbroker.message_ids import MessageIds

__all__ = ["TraceMethods", "describe_delivery"]


@final
class TraceMethods:
    def __init__(self, registry: Registry, kept: KeptMessages, message_ids: MessageIds) -> None:
        self._registry = registry
        self._kept = kept
        self._message_ids = message_ids
        self.methods: Methods = {
            "trace": (self._trace, frozenset({"message_id", "topic"})),
        }

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
                raise NotFound(self._why_not(message_id))
        found = [described for place in places if (described := await self._at(place)) is not None]
        return {"message_id": message_id, "found": found, "note": None if found else self._why_not(message_id)}

    async def _at(self, place: Place) -> dict[str, Any] | None:
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

    def _why_not(self, message_id: str) -> str:
        if self._message_ids.was_made(message_id):
            return (
                f"{message_id} is not kept any more: every subscription has settled it, it has expired, or nobody "
                "subscribed to its topic"
            )
        return f"no message was ever called {message_id!r} by this broker"


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
    last_sent_ns = reading.last_sent_ns(offset)
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
