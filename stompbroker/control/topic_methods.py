"""Lists topics, and shows one with its policy and who reads it."""

from __future__ import annotations

from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from stompbroker.clock import iso_time
from stompbroker.control.kept import stored_messages
from stompbroker.control.listing import described, list_params, take_page
from stompbroker.control.request import Method, NotFound, Param, named_topic

if TYPE_CHECKING:
    from stompbroker.control.listing import SortFields
    from stompbroker.control.parts import BrokerParts
    from stompbroker.delivery import Reading, Topic

#: Subscriptions and publishers that are named with one topic.
MAX_NAMED: Final = 100
_SORT_FIELDS: Final[SortFields[Topic]] = {
    "name": lambda _, topic: topic.name,
    "published": lambda _, topic: topic.published,
    "rate": lambda broker, topic: broker.sampler.latest.rates_of(topic)[0],
    "subscribers": lambda _, topic: len(topic.readings),
    "publishers": lambda _, topic: len(topic.publishers),
    "kept_messages": lambda _, topic: topic.log.message_count,
    "kept_bytes": lambda _, topic: topic.log.size_bytes,
    "stored_messages": lambda _, topic: stored_messages(topic),
}


async def _list(broker: BrokerParts, **wanted: Any) -> dict[str, Any]:
    """Topics."""
    topics = broker.registry.topics.values()
    page = await take_page(broker, topics, lambda topic: [topic.destination.key], _SORT_FIELDS, **wanted)
    return page.answer("topics", await described(lambda topic: _described(broker, topic), page.items, broker.looking))


async def _show(broker: BrokerParts, name: str) -> dict[str, Any]:
    """One topic, with its policy and who reads it."""
    pattern = named_topic(name)
    topic = broker.registry.topics.get(pattern.key)
    if topic is None:
        raise NotFound(f"there is no topic {pattern.name!r}")
    extent = await broker.kept.extent(topic, topic.collected_up_to, topic.log.end_offset)
    policy = asdict(topic.policy)
    del policy["idle"]  # is about subscriptions
    policy["slow_subscriber"] = topic.policy.slow_subscriber.value
    policy["delivery"]["when_used_up"] = topic.policy.delivery.when_used_up.value
    return {
        **_described(broker, topic),
        "stored_bytes": None if extent is None else extent.tail_bytes,
        "policy": policy,
        "publisher_connections": list(islice(topic.publishers, MAX_NAMED)),
        "subscriptions": [
            {
                "id": subscription.public_id,
                "key": subscription.key,
                "durable": subscription.is_durable,
                **reading_numbers(reading),
            }
            for subscription, reading in islice(list(topic.readings.items()), MAX_NAMED)
            if not subscription.is_closed
        ],
    }


def reading_numbers(reading: Reading) -> dict[str, int]:
    """Where a subscription stands in a topic."""
    return {
        "ack_floor": reading.cursor.ack_floor,
        "next_offset": reading.cursor.next_offset,
        "backlog": reading.backlog,
        "in_flight": reading.cursor.in_flight,
        "waiting": reading.cursor.waiting_count,
    }


def _described(broker: BrokerParts, topic: Topic) -> dict[str, Any]:
    rate, byte_rate = broker.sampler.latest.rates_of(topic)
    return {
        "name": topic.name,
        "kind": topic.destination.kind.value,
        "destination": str(topic.destination),
        "is_of_dead_letters": topic.is_of_dead_letters,
        "publishers": len(topic.publishers),
        "subscribers": len(topic.readings),
        "published": topic.published,
        "published_bytes": topic.published_bytes,
        "rate": round(rate, 1),
        "byte_rate": round(byte_rate, 1),
        "kept_messages": topic.log.message_count,
        "kept_bytes": topic.log.size_bytes,
        "stored": topic.is_stored,
        "retains": topic.is_retaining,
        "stored_messages": stored_messages(topic),
        "first_offset": topic.collected_up_to if topic.is_in_store else topic.log.start_offset,
        "next_offset": topic.log.end_offset,
        "blocked": topic.gate.is_blocked,
        "last_used_at": iso_time(topic.last_used_at_ns),
    }


METHODS: Final = {
    "topics": Method(_list, list_params(_SORT_FIELDS)),
    "topic": Method(_show, {"name": Param(says="Its name, such as orders.paid.", is_required=True)}),
}
