"""Lists topics, queues among them, and shows one with its policy and who reads it."""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, get_args

from stompbroker.clock import iso_time
from stompbroker.control.kept import dead_letter_count, stored_messages
from stompbroker.control.last_values import LAST_VALUE, last_value_of
from stompbroker.control.listing import described, list_params, page_of, seen, take_page
from stompbroker.control.records import DESTINATION_KIND, Record, Shown, alike, fields_of
from stompbroker.control.request import Method, NotFound, Param, named_topic
from stompbroker.delivery import TopicPolicy

if TYPE_CHECKING:
    from collections.abc import Callable

    from stompbroker.control.caller import Caller
    from stompbroker.control.parts import BrokerParts
    from stompbroker.control.records import SortFields
    from stompbroker.delivery import Pattern, Reading, Subscription, Topic

#: Subscriptions and publishers that are named with one topic.
MAX_NAMED: Final = 100


def _of_queue(find: Callable[[Subscription], int]) -> Callable[[BrokerParts, Topic], int | None]:
    """Of the subscription that all consumers of a queue share. It may be gone while the queue is being deleted."""
    return lambda _, topic: sum(map(find, topic.readings)) if topic.is_queue else None


def _dead_letters(broker: BrokerParts, topic: Topic) -> int | None:
    """None for a topic of dead letters: those that die again stay in it."""
    if topic.is_of_dead_letters:
        return None
    letters = broker.registry.topics.get(topic.destination.dead_letters.key)
    return 0 if letters is None else dead_letter_count(letters)


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
        "backlog": Shown(
            int | None, _of_queue(lambda group: group.backlog), "Of a queue: messages that are still to be sent."
        ),
        "in_flight": Shown(int | None, _of_queue(lambda group: group.in_flight), "Of a queue."),
        "members": Shown(int | None, _of_queue(lambda group: len(group.consumers)), "Of a queue: its consumers."),
        "dead_letters": Shown(int | None, _dead_letters, "null: the caller does not see them, or these are some."),
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
        "held_up": Shown(int, lambda _, reading: reading.cursor.held_up_count, "Behind another message of their key."),
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
        "members": Shown(int, lambda _, reading: len(reading.subscription.consumers), "Consumers attached to it."),
        **READING.fields,
    },
)


def _last_value(broker: BrokerParts, destination: Pattern) -> dict[str, Any] | None:
    value = last_value_of(broker, destination)
    return None if value is None else LAST_VALUE.describe(broker, value)


_TOPIC_DETAILS: Final[Record[Topic]] = Record(
    "TopicDetails",
    {
        **TOPIC.fields,
        "stored_bytes": Shown(int | None),
        "policy": Shown(_POLICY, lambda broker, topic: _POLICY.describe(broker, topic.policy)),
        "last_value": Shown((LAST_VALUE, None), lambda broker, topic: _last_value(broker, topic.destination)),
        "publisher_connections": Shown([int]),
        "subscriptions": Shown([_TOPIC_READING], says="Those that the caller sees."),
    },
)
_OF_QUEUES: Final = TOPIC.sorted_by("backlog", "in_flight", "members")
_SORT_FIELDS: Final[SortFields[Topic]] = {
    **TOPIC.sorted_by(
        "name", "published", "rate", "subscribers", "publishers", "kept_messages", "kept_bytes", "stored_messages"
    ),
    # Topics count as 0.
    **{name: partial(lambda find, broker, topic: find(broker, topic) or 0, find) for name, find in _OF_QUEUES.items()},
}


async def _list(broker: BrokerParts, caller: Caller, kind: str | None = None, **wanted: Any) -> dict[str, Any]:
    """Topics and queues."""
    of_kind = (topic for topic in broker.registry.topics.values() if kind in (None, topic.destination.kind.value))
    topics = await seen(broker, caller, of_kind, lambda topic: topic.destination)
    page = await take_page(broker, topics, lambda topic: [topic.destination.key], _SORT_FIELDS, **wanted)
    return page.answer("topics", await described(partial(_describe, broker, caller), page.items, broker.looking))


def _describe(broker: BrokerParts, caller: Caller, topic: Topic) -> dict[str, Any]:
    return TOPIC.describe(broker, topic, **_hidden_from(caller, topic))


def _hidden_from(caller: Caller, topic: Topic) -> dict[str, None]:
    """Dead letters have permissions of their own."""
    return {} if caller.sees(topic.destination.dead_letters) else {"dead_letters": None}


async def _show(broker: BrokerParts, caller: Caller, name: str) -> dict[str, Any]:
    """One topic or queue, with its policy and who reads it."""
    topic = find(broker, caller, name)
    extent = await broker.kept.extent(topic, topic.collected_up_to, topic.log.end_offset)
    readings = (
        reading
        for subscription, reading in topic.readings.items()
        if not subscription.is_closed and caller.sees(subscription.pattern)
    )
    return _TOPIC_DETAILS.describe(
        broker,
        topic,
        stored_bytes=None if extent is None else extent.tail_bytes,
        publisher_connections=[] if caller.is_restricted else list(islice(topic.publishers, MAX_NAMED)),
        subscriptions=[_TOPIC_READING.describe(broker, reading) for reading in islice(readings, MAX_NAMED)],
        **_hidden_from(caller, topic),
    )


def find(broker: BrokerParts, caller: Caller, name: str) -> Topic:
    """Raises NotFound, ControlError."""
    pattern = named_topic(name)
    topic = broker.registry.topics.get(pattern.key)
    if topic is None or not caller.sees(pattern):
        raise NotFound(f"there is no {pattern.kind.value} {pattern.name!r}")
    return topic


METHODS: Final = {
    "topics": Method(
        _list,
        page_of("topics", TOPIC),
        list_params(_SORT_FIELDS)
        | {"kind": Param(says="Only topics, or only queues.", choices=get_args(DESTINATION_KIND))},
    ),
    "topic": Method(
        _show,
        _TOPIC_DETAILS,
        {"name": Param(says="Its name, such as orders.paid; of a queue /queue/NAME.", is_required=True)},
    ),
}
