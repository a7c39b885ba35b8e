"""Queues, made when they are first named.

Law: a queue is a topic with one group of consumers, both made in one step. Where there is a store, the group is stored
before anything that is sent to the queue, since its unit is submitted first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from stompbroker.changes.effects import Created
from stompbroker.changes.journal import Unit
from stompbroker.delivery import (
    QUEUE_PREFIX,
    AckMode,
    DestinationKind,
    Durability,
    Subscription,
    parse_topic_name,
    queue_identity,
)

if TYPE_CHECKING:
    from stompbroker.changes.journal import Journal
    from stompbroker.delivery import Pattern, Registry, Topic


@final
@dataclass(frozen=True, slots=True)
class Queues:
    _registry: Registry
    _journal: Journal

    def declare(self, now_ns: int) -> None:
        """Make those that the settings name."""
        for name in self._registry.policies.queues:
            self.topic(parse_topic_name(QUEUE_PREFIX + name), now_ns)

    def topic(self, name: Pattern, now_ns: int) -> Topic:
        """What is published to; a queue has its group from then on. Raises PeerViolation if there are too many."""
        topic = self._registry.topic(name, now_ns)
        if name.kind is DestinationKind.QUEUE:
            self.group(name, now_ns)
        return topic

    def topic_of_dead_letters(self, name: Pattern, now_ns: int) -> Topic:
        """Of a queue it is a queue, and can be consumed."""
        topic = self._registry.topic_of_dead_letters(name, now_ns)
        if topic.is_queue:
            self.group(topic.destination, now_ns)
        return topic

    def group(self, name: Pattern, now_ns: int) -> Subscription:
        """The subscription that all consumers of a queue share. Raises PeerViolation if there are too many topics."""
        registry, identity = self._registry, queue_identity(name)
        found = registry.find_group(identity)
        if found is not None:
            return found
        topic = registry.topics.get(name.key) or registry.topic(name, now_ns)
        topic.is_orphaned = False
        group = Subscription(
            name=None,
            destination=str(name),
            pattern=name,
            ack_mode=AckMode.INDIVIDUAL,
            is_no_local=False,
            is_shared=True,
        )
        if self._journal.can_store:
            number = self._journal.next_subscription_id()
            group.durability = Durability(identity, number, created_at_ns=now_ns, last_seen_at_ns=now_ns)
            registry.add_durable(group)
            self._journal.submit(Unit([Created(group, registry)], owes_receipt=False))
        else:
            registry.add_transient_group(group, identity)
            registry.begin(group, now_ns)
        return group
