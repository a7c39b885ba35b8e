"""Lists topics, and shows one with its policy and who reads it."""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from stompbroker.clock import iso_time
from stompbroker.control.kept import stored_messages
from stompbroker.control.listing import described, list_params, page_of, take_page
from stompbroker.control.records import DESTINATION_KIND, Record, Shown, alike, fields_of
from stompbroker.control.request import Method, NotFound, Param, named_topic
from stompbroker.delivery import TopicPolicy

if TYPE_CHECKING:
    from stompbroker.control.parts import BrokerParts
    from stompbroker.delivery import Reading, Topic

#: Subscriptions and publishers that are named with one topic.
MAX_NAMED: Final = 100

TOPIC: Final[Record[Topic]] = Record(
    "Topic",
    {
        "name": Shown(str),
        "kind": Shown(DESTINATION_KIND, lambda _, topic: topic.destination.kind.value),
        "destination": Shown(str, lambda _, topic: str(topic.destination)),
        "is_of_dead_letters": Shown(bool),
        "publishers": Shown(int, lambda _, topic: len(topic.publishers)),
        "subscribers": Shown(int, lambda _, topic: len(topic.readings)),
        **alike(int, "published", "published_bytes"),
        "rate": Shown(float, lambda broker, topic: round(broker.sampler.latest.rates_of(topic)[0], 1)),
        "byte_rate": Shown(float, lambda broker, topic: round(broker.sampler.latest.rates_of(topic)[1], 1)),
        "kept_messages": Shown(int, lambda _, topic: topic.log.message_count, "In memory."),
        "kept_bytes": Shown(int, lambda _, topic: topic.log.size_bytes),
        "stored": Shown(bool, lambda _, topic: topic.is_stored, "Whether what is published goes through the store."),
        "retains": Shown(
            bool, lambda _, topic: topic.retained is not None, "Whether messages are kept for later subscribers."
        ),
        "stored_messages": Shown(int, lambda _, topic: stored_messages(topic)),
        "first_offset": Shown(
            int, lambda _, topic: topic.collected_up_to if topic.is_in_store else topic.log.start_offset
        ),
        "next_offset": Shown(int, lambda _, topic: topic.log.end_offset),
        "blocked": Shown(bool, lambda _, topic: topic.gate.is_blocked, "Whether publishers are held back."),
        "last_used_at": Shown(str, lambda _, topic: iso_time(topic.last_used_at_ns)),
    },
)
#: Where a subscription stands in a topic.
READING: Final[Record[Reading]] = Record(
    "Reading",
    {
        "ack_floor": Shown(int, lambda _, reading: reading.cursor.ack_floor),
        "next_offset": Shown(int, lambda _, reading: reading.cursor.next_offset),
        "backlog": Shown(int),
        "in_flight": Shown(int, lambda _, reading: reading.cursor.in_flight),
        "waiting": Shown(int, lambda _, reading: reading.cursor.waiting_count),
    },
)
_POLICY: Final[Record[TopicPolicy]] = Record(
    # "idle" is about subscriptions.
    "Policy",
    {name: shown for name, shown in fields_of(TopicPolicy).items() if name != "idle"},
)
_TOPIC_READING: Final[Record[Reading]] = Record(
    "TopicReading",
    {
        "id": Shown(str, lambda _, reading: reading.subscription.public_id),
        "key": Shown(str, lambda _, reading: reading.subscription.key),
        "durable": Shown(bool, lambda _, reading: reading.subscription.is_durable),
        **READING.fields,
    },
)
_TOPIC_DETAILS: Final[Record[Topic]] = Record(
    "TopicDetails",
    {
        **TOPIC.fields,
        "stored_bytes": Shown(int | None),
        "policy": Shown(_POLICY, lambda broker, topic: _POLICY.describe(broker, topic.policy)),
        "publisher_connections": Shown([int], lambda _, topic: list(islice(topic.publishers, MAX_NAMED))),
        "subscriptions": Shown(
            [_TOPIC_READING],
            lambda broker, topic: [
                _TOPIC_READING.describe(broker, reading)
                for subscription, reading in islice(list(topic.readings.items()), MAX_NAMED)
                if not subscription.is_closed
            ],
        ),
    },
)
_SORT_FIELDS: Final = TOPIC.sorted_by(
    "name", "published", "rate", "subscribers", "publishers", "kept_messages", "kept_bytes", "stored_messages"
)


async def _list(broker: BrokerParts, **wanted: Any) -> dict[str, Any]:
    """Topics."""
    topics = broker.registry.topics.values()
    page = await take_page(broker, topics, lambda topic: [topic.destination.key], _SORT_FIELDS, **wanted)
    return page.answer("topics", await described(partial(TOPIC.describe, broker), page.items, broker.looking))


async def _show(broker: BrokerParts, name: str) -> dict[str, Any]:
    """One topic, with its policy and who reads it."""
    pattern = named_topic(name)
    topic = broker.registry.topics.get(pattern.key)
    if topic is None:
        raise NotFound(f"there is no topic {pattern.name!r}")
    extent = await broker.kept.extent(topic, topic.collected_up_to, topic.log.end_offset)
    return _TOPIC_DETAILS.describe(broker, topic, stored_bytes=None if extent is None else extent.tail_bytes)


METHODS: Final = {
    "topics": Method(_list, page_of("topics", TOPIC), list_params(_SORT_FIELDS)),
    "topic": Method(_show, _TOPIC_DETAILS, {"name": Param(says="Its name, such as orders.paid.", is_required=True)}),
}
