"""Why a topic keeps what it keeps, and where one message stands for every subscription.

Law: looks at what delivery and the garbage collector look at, and puts it into words. The store is asked how much it
has, a topic at a time.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any, Final, Literal

from stompbroker.clock import iso_time, iso_time_if_any
from stompbroker.control.listing import seen
from stompbroker.control.records import Record, Shown, alike, fields_of
from stompbroker.control.request import ControlError, Method, NotFound, Param, named_topic
from stompbroker.delivery import Pattern, Retention, collecting

if TYPE_CHECKING:
    from stompbroker.control.caller import Caller
    from stompbroker.control.kept import Place
    from stompbroker.control.parts import BrokerParts
    from stompbroker.delivery import Reading, Topic
    from stompbroker.ids import Offset
    from stompbroker.message import Message

#: Topics in one answer, and subscriptions that are named for each.
MAX_TOPICS: Final = 100
MAX_PINNING: Final = 5
_AMOUNT: Final = alike(int, "messages", "bytes")
_WHO: Final[dict[str, Shown[Reading]]] = {
    "subscription": Shown(str, lambda _, reading: reading.subscription.key),
    "durable": Shown(bool, lambda _, reading: reading.subscription.is_durable),
    "connected": Shown(bool, lambda _, reading: reading.subscription.consumer is not None),
    "members": Shown(int, lambda _, reading: len(reading.subscription.consumers), "Consumers attached to it."),
}
_PINNING: Final[Record[Reading]] = Record(
    "Pinning",
    {
        **_WHO,
        "destination": Shown(str, lambda _, reading: reading.subscription.destination),
        "last_seen_at": Shown(str | None),
        "lowest_unsettled": Shown(int, lambda _, reading: reading.cursor.ack_floor),
        "unsettled": Shown(
            int, lambda _, reading: reading.backlog + reading.cursor.in_flight + reading.cursor.pending_count
        ),
        "since": Shown(str | None),
        "held_up": Shown(int, lambda _, reading: reading.cursor.held_up_count, "Of these, behind others of their key."),
    },
)
_RETAINING: Final[Record[Retention]] = Record("Retaining", {**fields_of(Retention), **_AMOUNT})
_EXPLAINED: Final[Record[Any]] = Record(
    "TopicCollection",
    {
        "topic": Shown(str),
        "in_memory": Shown(Record("InMemory", _AMOUNT)),
        "stored": Shown((Record("InStore", {**alike(int, "first_offset", "next_offset"), **_AMOUNT}), None)),
        "retention": Shown((_RETAINING, None)),
        "pinned_by": Shown([_PINNING]),
        "collectable": Shown(Record("Collectable", alike(int, "messages"))),
        "why": Shown(str),
    },
)
#: The state of one message for one subscription.
DELIVERY_STATE: Final[Record[Any]] = Record(
    "DeliveryState",
    {
        "state": Shown(
            Literal["settled", "in flight", "waiting", "pending", "held up", "ready", "not sent", "not for it"]
        ),
        "attempts": Shown(int | None),
        **alike(str | None, "first_attempt_at", "last_attempt_at", "next_attempt_at", "reason"),
    },
)
_TRACED: Final[Record[Reading]] = Record("TracedDelivery", {**_WHO, **DELIVERY_STATE.fields})
_PLACE: Final[Record[Message]] = Record(
    "Place",
    {
        "topic": Shown(str),
        "offset": Shown(int),
        "is_dead_letter": Shown(bool),
        "published_at": Shown(str, lambda _, message: iso_time(message.published_at_ns)),
        "expires_at": Shown(str | None, lambda _, message: iso_time_if_any(message.expires_at_ns)),
        "body_bytes": Shown(int),
        "subscriptions": Shown([_TRACED]),
    },
)
_TRACE: Final[Record[Any]] = Record(
    "Trace", {"message_id": Shown(str), "found": Shown([_PLACE]), "note": Shown(str | None)}
)


# What is kept ---------------------------------------------------------------------------------------------------------


async def _explain(
    broker: BrokerParts, caller: Caller, topic: str | None = None, after: str = "", limit: int = MAX_TOPICS
) -> dict[str, Any]:
    """What is kept, for whom, since when, and what would be collected."""
    topics = broker.registry.topics
    if topic is not None:
        named = named_topic(topic)
        name = named.key
        if name not in topics or not caller.sees(topics[name].destination):
            raise NotFound(f"there is no {named.kind.value} {named.name!r}; list them with: stompbroker stats")
        return {"total": 1, "topics": [await _explained(broker, caller, topics[name])]}
    names = sorted(await seen(broker, caller, topics, Pattern.keyed))
    first = bisect_right(names, after)
    found = [await _explained(broker, caller, topics[name]) for name in names[first : first + limit] if name in topics]
    return {"total": len(names), "topics": found}


async def _explained(broker: BrokerParts, caller: Caller, topic: Topic) -> dict[str, Any]:
    first, end, retained = topic.collected_up_to, topic.log.end_offset, topic.retained
    pinning = sorted(
        (reading for reading in topic.readings.values() if not reading.is_idle and not reading.subscription.is_closed),
        key=lambda reading: reading.cursor.ack_floor,
    )
    named = [reading for reading in pinning if caller.sees(reading.subscription.pattern)]
    pinned_by = [await _pinning(broker, reading) for reading in named[:MAX_PINNING]]
    stored = await broker.kept.extent(topic, first, end)
    floor = collecting.collectable_up_to(topic, broker.clock.now_ns())
    below = await broker.kept.extent(topic, first, floor)
    between = sum(stop - start for start, stop in topic.between_holes)
    collectable = between + (0 if below is None else below.messages)
    return {
        "topic": topic.destination.key,
        "in_memory": {"messages": topic.log.message_count, "bytes": topic.log.size_bytes},
        "stored": None
        if stored is None
        else {"first_offset": first, "next_offset": end, "messages": stored.messages, "bytes": stored.tail_bytes},
        "retention": None
        if retained is None
        else _RETAINING.describe(broker, topic.policy.retention, messages=retained.messages, bytes=retained.size_bytes),
        "pinned_by": pinned_by,
        "collectable": {"messages": collectable},
        "why": _why_kept(topic, pinned_by, len(pinning), collectable, 0 if stored is None else stored.messages),
    }


async def _pinning(broker: BrokerParts, reading: Reading) -> dict[str, Any]:
    subscription, lowest = reading.subscription, reading.cursor.ack_floor
    oldest = reading.topic.log.get(lowest) or await broker.kept.first_from(reading.topic, lowest)
    durability = subscription.durability
    return _PINNING.describe(
        broker,
        reading,
        last_seen_at=None if durability is None else iso_time(durability.last_seen_at_ns),
        since=None if oldest is None else iso_time(oldest.published_at_ns),
    )


def _why_kept(topic: Topic, pinned_by: list[dict[str, Any]], pins: int, collectable: int, stored: int) -> str:
    """One sentence: what keeps most of it."""
    if not stored and not topic.log.message_count:
        return "nothing is kept"
    if pinned_by:
        first = pinned_by[0]
        count = first["unsettled"]
        others = "" if pins == 1 else f", and {pins - 1} more have not settled everything"
        return (
            f"{count} {'message is' if count == 1 else 'messages are'} kept, from offset {first['lowest_unsettled']} "
            f"on, for {_for_whom(topic, first)}{_held_up(first)}{others}"
        )
    if pins:
        return "it is kept for subscriptions that you may not see"
    if topic.is_queue:
        return "its consumers have settled all of it; it goes with the next collections"
    if topic.retained is not None and stored > collectable:
        return "everybody has settled all of it; it is kept for later subscribers by the topic's retention"
    return "everybody has settled all of it; it goes with the next collections"


def _held_up(pinning: dict[str, Any]) -> str:
    count = pinning["held_up"]
    return f"; {count} of them {'waits' if count == 1 else 'wait'} behind another of the same key" if count else ""


def _for_whom(topic: Topic, pinning: dict[str, Any]) -> str:
    members = pinning["members"]
    since = f" since {pinning['last_seen_at']}" if pinning["last_seen_at"] else ""
    if topic.is_queue:
        away = f"consumers to come: nobody has been attached{since}"
        return away if not members else "its consumer" if members == 1 else f"its {members} consumers"
    kind = "durable" if pinning["durable"] else "transient"
    state = "which is connected" if members else f"which nobody has attached to{since}"
    return f"the {kind} subscription {pinning['subscription']!r}, {state}"


# One message ----------------------------------------------------------------------------------------------------------


async def _trace(broker: BrokerParts, caller: Caller, message_id: str, topic: str | None = None) -> dict[str, Any]:
    """One message: its state for every subscription.

    If a topic is named, the message must be there or among its dead letters.
    """
    if not message_id:
        raise ControlError("message_id must not be empty: it is the id of a message, as its MESSAGE frame has it")
    if broker.message_ids.was_made(message_id):
        why_not_found = (
            f"{message_id} is not kept any more: every subscription has settled it, it has expired, or nobody "
            "subscribed to its topic"
        )
    else:
        why_not_found = f"no message was ever called {message_id!r} by this broker"
    places = [place for place in await broker.kept.find(message_id) if caller.sees(place.topic.destination)]
    if topic is not None:
        name = named_topic(topic)
        wanted = {name.key, name.dead_letters.key}
        places = [place for place in places if place.topic.destination.key in wanted]
        if not places:
            raise NotFound(why_not_found)
    found = [traced for place in places if (traced := await _traced(broker, caller, place)) is not None]
    return {"message_id": message_id, "found": found, "note": None if found else why_not_found}


async def _traced(broker: BrokerParts, caller: Caller, place: Place) -> dict[str, Any] | None:
    topic, offset = place
    message = await broker.kept.get(topic, offset)
    is_kept = topic.is_in_store or any(
        offset >= reading.cursor.next_offset or not reading.cursor.is_settled(offset, offset + 1)
        for reading in topic.readings.values()
    )
    if message is None or not is_kept:
        return None  # gone since it was found, or about to be
    return _PLACE.describe(
        broker,
        message,
        topic=topic.destination.key,
        offset=offset,
        is_dead_letter=topic.is_of_dead_letters,
        subscriptions=[
            _TRACED.describe(broker, reading, **describe_delivery(reading, offset, only_for=message.origin.only_for))
            for subscription, reading in topic.readings.items()
            if not subscription.is_closed and caller.sees(subscription.pattern)
        ],
    )


def describe_delivery(reading: Reading, offset: Offset, *, only_for: int | None = None) -> dict[str, Any]:
    """The state of one message for one subscription."""
    failure = reading.failures.get(offset)
    state = _state(reading, offset) if only_for in (None, reading.subscription.store_id) else "not for it"
    is_sent_now = state == "in flight"
    attempts = None if state in ("settled", "not for it") else (0 if failure is None else failure.count) + is_sent_now
    last_sent_ns = _last_sent_ns(reading, offset)
    return {
        "state": state,
        "attempts": attempts,
        "first_attempt_at": iso_time_if_any(reading.first_sent_ns(offset) or last_sent_ns),
        "last_attempt_at": iso_time_if_any(last_sent_ns),
        "next_attempt_at": iso_time_if_any(failure.due_ns) if failure is not None and state == "waiting" else None,
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
    if cursor.is_held_up(offset):
        return "held up"
    return "in flight" if cursor.is_in_flight(offset) else "ready"


def _last_sent_ns(reading: Reading, offset: Offset) -> int | None:
    """When an unsettled message was sent for the last time, if that is known."""
    failure = reading.failures.get(offset)
    if reading.cursor.is_in_flight(offset):
        holders = (each for each in reading.subscription.consumers if reading.owners.has(each, offset))
        return next((each.sent.sent_at_ns(reading, offset) for each in holders), None)
    if failure is not None and failure.last_attempt_ns:
        return failure.last_attempt_ns
    return reading.remembered.first_sent_ns(offset)


METHODS: Final = {
    "explain_collection": Method(
        _explain,
        Record("Collection", {"total": Shown(int), "topics": Shown([_EXPLAINED])}),
        {
            "topic": Param(says="Only of this topic, or of the queue /queue/NAME."),
            "after": Param(says="The last topic of the answer before."),
            "limit": Param(says="Topics in one answer.", kind=int, low=1, high=MAX_TOPICS),
        },
    ),
    "trace": Method(
        _trace,
        _TRACE,
        {
            "topic": Param(says="The topic it was published to, or the queue /queue/NAME."),
            "message_id": Param(says="Its message-id.", is_required=True),
        },
    ),
}
