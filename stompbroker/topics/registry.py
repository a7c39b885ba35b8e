"""All topics and all subscriptions.

Law: the only place that makes and removes topics, and that attaches and detaches subscriptions. Synchronous: two
workers that name one new topic at once get the same one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from stompbroker.errors import PeerViolation
from stompbroker.topics.pattern_tree import PatternTree
from stompbroker.topics.ready_queue import ReadyQueue
from stompbroker.topics.redeliveries import Redeliveries
from stompbroker.topics.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stompbroker.memory_budget import MemoryBudget
    from stompbroker.topics.consumer import Consumer
    from stompbroker.topics.destination import Pattern
    from stompbroker.topics.policy import TopicPolicies
    from stompbroker.topics.subscription import Subscription
    from stompbroker.totals import Totals

__all__ = ["Registry"]


@final
class Registry:
    """
    Invariants:
        topics[name].name == name, and no topic in it is removed
        every exact subscription has a reading in its topic; every wildcard one is in `patterns`
    """

    __slots__ = (
        "_max_topics",
        "_patterns",
        "_policies",
        "_totals",
        "blocked",
        "budget",
        "ready",
        "redeliveries",
        "subscriptions",
        "topics",
    )

    def __init__(self, policies: TopicPolicies, budget: MemoryBudget, totals: Totals, *, max_topics: int) -> None:
        self.topics: dict[str, Topic] = {}
        self.subscriptions: dict[Subscription, None] = {}
        #: Topics whose publishers are held back.
        self.blocked: dict[Topic, None] = {}
        self.ready = ReadyQueue()
        self.redeliveries = Redeliveries()
        self.budget = budget
        self._patterns: PatternTree[Subscription] = PatternTree()
        self._policies = policies
        self._max_topics = max_topics
        self._totals = totals

    def topic(self, name: Pattern, now_ns: int) -> Topic:
        """The topic of that name, which exists from now on. Raises PeerViolation if there are too many to make it."""
        topic = self.topics.get(name.name)
        if topic is None:
            if len(self.topics) >= self._max_topics:
                raise PeerViolation(
                    "too many topics",
                    f"there are {len(self.topics)}, which is all there may be (max_topics); those that nobody uses "
                    "go by themselves after a while",
                )
            topic = Topic(name, self._policies.find(name), self.budget, self._patterns, self.blocked, now_ns)
            self.topics[name.name] = topic
        return topic

    def attach(self, subscription: Subscription, consumer: Consumer, now_ns: int) -> None:
        """`subscription` is served from now on, through `consumer`. Raises PeerViolation as `topic` does."""
        if subscription.pattern.is_exact:
            self.topic(subscription.pattern, now_ns).add_reading(subscription)
        else:
            self._patterns.add(subscription.pattern, subscription)
        subscription.consumer = consumer
        self.subscriptions[subscription] = None

    def close(self, subscriptions: Iterable[Subscription], now_ns: int) -> None:
        """These subscriptions are gone, with everything that was in flight or waiting for them.

        The topics of a wildcard subscription may be many; they notice by themselves, at their next use or the
        collector's next round. Only those that hold publishers back are told at once.
        """
        affected: dict[Topic, None] = {}
        for subscription in subscriptions:
            subscription.is_closed = True
            subscription.consumer = None
            del self.subscriptions[subscription]
            self._totals.delivered += subscription.counters.delivered
            if subscription.pattern.is_exact:
                topic = self.topics[subscription.pattern.name]
                topic.remove_reading(subscription, now_ns)
                affected[topic] = None
            else:
                self._patterns.remove(subscription.pattern, subscription)
                affected.update(self.blocked)
            subscription.readings.clear()
        for topic in affected:
            topic.try_to_unblock(now_ns)

    def collect(self, topic: Topic, *, unused_since_ns: int) -> bool:
        """Trim a topic, and remove it if it can go and nobody has used it since. True if it was removed."""
        topic.forget_closed_readings()
        if topic.log.message_count:
            topic.trim()
        if topic.last_used_at_ns > unused_since_ns or topic.is_blocked or not topic.is_unused:
            return False
        for subscription, reading in topic.readings.items():
            if subscription.consumer is not None:
                subscription.consumer.withdraw(reading)
            subscription.readings.pop(topic, None)
            reading.close()
        topic.readings.clear()
        topic.is_removed = True
        del self.topics[topic.name]
        self._totals.published += topic.published
        return True

    def check_invariants(self) -> None:
        for name, topic in self.topics.items():
            assert topic.name == name
            assert not topic.is_removed
            topic.check_invariants()
        for subscription in self.subscriptions:
            assert not subscription.is_closed
            if subscription.pattern.is_exact:
                assert self.topics[subscription.pattern.name].readings[subscription].subscription is subscription
            if subscription.consumer is not None:
                subscription.consumer.check_invariants()
        kept_bytes = sum(topic.log.size_bytes for topic in self.topics.values())
        assert kept_bytes <= self.budget.used_bytes
