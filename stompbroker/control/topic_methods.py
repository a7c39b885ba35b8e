"""Topics, and one of them.

Law: looks and changes nothing.
"""

from __future__ import annotations

from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, final

from stompbroker.clock import iso_time
from stompbroker.control.kept import stored_messages
from stompbroker.control.listing import LIST_PARAMS, Wanted, described, take_page
from stompbroker.control.request import NotFound, named_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from stompbroker.control.kept import KeptMessages
    from stompbroker.control.looking import Looking
    from stompbroker.control.request import Methods
    from stompbroker.control.sampling import Sampler
    from stompbroker.delivery import Registry, Topic

__all__ = ["TopicMethods"]

#: Subscriptions and publishers that are named with one topic.
MAX_NAMED: Final = 100


@final
class TopicMethods:
    def __init__(self, registry: Registry, kept: KeptMessages, sampler: Sampler, looking: Looking) -> None:
        self._registry = registry
        self._looking = looking
        self._kept = kept
        self._sampler = sampler
        self._fields: Mapping[str, Callable[[Topic], Any]] = {
            "name": lambda topic: topic.name,
            "published": lambda topic: topic.published,
            "rate": lambda topic: self._rates(topic)[0],
            "subscribers": lambda topic: len(topic.readings),
            "publishers": lambda topic: len(topic.publishers),
            "kept_messages": lambda topic: topic.log.message_count,
            "kept_bytes": lambda topic: topic.log.size_bytes,
            "stored_messages": stored_messages,
        }
        self.methods: Methods = {
            "topics": (self._list, LIST_PARAMS),
            "topic": (self._show, frozenset({"name"})),
        }

    async def _list(self, **params: Any) -> dict[str, Any]:
        wanted = Wanted.read(params, tuple(self._fields))
        page = await take_page(
            wanted,
            self._registry.topics.values(),
            lambda topic: [topic.destination.key],
            self._fields[wanted.field],
            self._looking,
        )
        return page.described("topics", await described(self._described, page.items, self._looking))

    async def _show(self, name: object = None) -> dict[str, Any]:
        pattern = named_topic(name)
        topic = self._registry.topics.get(pattern.key)
        if topic is None:
            raise NotFound(f"there is no topic {pattern.name!r}")
        extent = await self._kept.extent(topic, topic.collected_up_to, topic.log.end_offset)
        policy = topic.policy
        return {
            **self._described(topic),
            "stored_bytes": None if extent is None else extent.tail_bytes,
            "policy": {
                "slow_subscriber": policy.slow_subscriber.value,
                "window_bytes": policy.window_bytes,
                "window_messages": policy.window_messages,
                "block_timeout_s": policy.block_timeout_s,
                "message_ttl_ms": policy.message_ttl_ms,
                "delivery": asdict(policy.delivery) | {"when_used_up": policy.delivery.when_used_up.value},
                "retention": asdict(policy.retention),
            },
            "publisher_connections": list(islice(topic.publishers, MAX_NAMED)),
            "subscriptions": [
                {
                    "id": subscription.public_id,
                    "key": subscription.key,
                    "durable": subscription.is_durable,
                    "ack_floor": reading.cursor.ack_floor,
                    "next_offset": reading.cursor.next_offset,
                    "backlog": reading.backlog,
                    "in_flight": reading.cursor.in_flight,
                    "waiting": reading.cursor.waiting_count,
                }
                for subscription, reading in islice(list(topic.readings.items()), MAX_NAMED)
                if not subscription.is_closed
            ],
        }

    def _described(self, topic: Topic) -> dict[str, Any]:
        rate, byte_rate = self._rates(topic)
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

    def _rates(self, topic: Topic) -> tuple[float, ...]:
        flow = self._sampler.latest.topics.get(topic)
        return (0.0, 0.0) if flow is None else flow.rates
