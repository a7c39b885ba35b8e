"""All topics and all subscriptions.

Law: the only place that makes and removes topics, and that attaches and detaches consumers.

A consumer comes in two steps. `claim` is when its SUBSCRIBE is read: the subscription is its own from then on. `open`
is when that is durable, in the journal's order: a new subscription begins to read there, and sending begins.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, final

from stompbroker.delivery import collecting
from stompbroker.delivery.answering import count_in_flight_between, note_lost, repeat_deferred
from stompbroker.delivery.appending import try_to_unblock
from stompbroker.delivery.destination import DestinationKind, Pattern
from stompbroker.delivery.identity import queue_identity
from stompbroker.delivery.last_values import LastValues
from stompbroker.delivery.pages import Pages
from stompbroker.delivery.policy import Refusal, WhenUsedUp
from stompbroker.delivery.reading import Waiting
from stompbroker.delivery.subscription import COUNTER_NAMES, ReadyQueue
from stompbroker.delivery.timetable import Timetable
from stompbroker.delivery.topic import Topic, TopicContext
from stompbroker.errors import PeerViolation
from stompbroker.ids import FIRST_OFFSET, Offset
from stompbroker.signals import Signal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from stompbroker.counting import Totals
    from stompbroker.delivery.accounting import Records
    from stompbroker.delivery.consumer import Consumer, Unanswered
    from stompbroker.delivery.identity import Identity
    from stompbroker.delivery.policy import TopicPolicies
    from stompbroker.delivery.reading import Reading
    from stompbroker.delivery.subscription import Subscription
    from stompbroker.memory_budget import MemoryBudget


@final
class Leaving(Enum):
    """Why a consumer leaves its subscription."""

    #: Another connection took it over, an operator deleted it, or the broker is shutting down.
    TAKEN_AWAY = "taken away"
    UNSUBSCRIBED = "unsubscribed"
    #: Its client sent DISCONNECT, or was sent an ERROR.
    ENDED = "ended"
    #: Its client is gone, perhaps because of the message it was working on.
    LOST = "lost"


def _still_waits(entry: Waiting) -> bool:
    return entry.reading.is_waiting(entry.offset)


def _is_unanswered(entry: Unanswered) -> bool:
    return entry.consumer.is_open and count_in_flight_between(*entry) > 0


#: Bytes of last values.
DEFAULT_VALUES_BYTES: Final = 64 * 1024 * 1024


@final
class Registry(TopicContext):
    """
    Invariants:
        topics[key].destination.key == key, and no topic in it is removed
        every exact subscription that has begun has a reading in its topic; every wildcard one is in `patterns`
        every durable subscription is in `durable_patterns` until it is removed, and in `durable` until it is to be
    """

    def __init__(
        self,
        policies: TopicPolicies,
        budget: MemoryBudget,
        totals: Totals,
        *,
        max_topics: int,
        last_values_bytes: int = DEFAULT_VALUES_BYTES,
        can_store: bool = True,
        records: Records | None = None,
    ) -> None:
        changed = Signal()
        super().__init__(
            budget=budget,
            pages=Pages(budget),
            redeliveries=Timetable(_still_waits, changed),
            deadlines=Timetable(_is_unanswered, changed),
            records=records,
            can_store=can_store,
        )
        self.policies = policies
        #: By the key of their destination: kind and name.
        self.topics: dict[str, Topic] = {}
        #: The topics that hold dead letters.
        self.topics_of_dead_letters: dict[Topic, None] = {}
        self.subscriptions: dict[Subscription, None] = {}
        #: Durable subscriptions that can be subscribed to.
        self.durable: dict[Identity, Subscription] = {}
        #: Groups that are not stored: those that end with their last member, and of queues if there is no store.
        self.transient_groups: dict[Identity, Subscription] = {}
        self._next_group_number = 1
        self.last_values = LastValues(budget, last_values_bytes, can_store)
        self.ready = ReadyQueue()
        #: Woken to make the garbage collector look now.
        self.collection_wanted = Signal()
        #: Gives up messages whose attempts are used up; set by the composition root.
        self.bury: Callable[[Sequence[Waiting]], None] = lambda _used_up: None
        self._max_topics = max_topics
        self._totals = totals
        #: Takes what is sent to a temporary destination that has ended, and drops it. It counts that, too.
        gone = Pattern(("gone",), DestinationKind.TEMPORARY)
        self.nowhere = Topic(gone, policies.find(gone), self, 0)
        # Looked up anew each time: a destination whose owner lives may have a topic again.
        self.nowhere.is_orphaned = True

    # Topics ----------------------------------------------------------------------------------------------------------

    def topic(self, name: Pattern, now_ns: int) -> Topic:
        """The topic of that name, made if need be. Raises PeerViolation if there are too many to make it."""
        topic = self.topics.get(name.key)
        if topic is None:
            if len(self.topics) >= self._max_topics:
                raise PeerViolation(
                    "too many topics",
                    f"there are {len(self.topics)}, which is all there may be (max_topics); those that nobody uses "
                    "go by themselves after a while",
                )
            topic = self._make_topic(name, now_ns)
        return topic

    def topic_of_dead_letters(self, name: Pattern, now_ns: int) -> Topic:
        """Made if need be. It does not count towards `max_topics`: there is one for each topic at most."""
        name = name.dead_letters
        return self.topics.get(name.key) or self._make_topic(name, now_ns)

    def restore_topic(
        self,
        name: Pattern,
        store_id: int,
        first_stored: Offset,
        next_offset: Offset,
        now_ns: int,
        *,
        whole_from: Offset = FIRST_OFFSET,
    ) -> Topic:
        topic = self._make_topic(name, now_ns, next_offset=next_offset)
        topic.enter_store(store_id)
        topic.collected_up_to = first_stored
        topic.whole_from = whole_from
        if topic.retained is not None:
            topic.retained.note_start(next_offset)
        self.unsaved.collectable[topic] = None
        return topic

    def _make_topic(self, name: Pattern, now_ns: int, *, next_offset: Offset = FIRST_OFFSET) -> Topic:
        topic = Topic(name, self.policies.find(name), self, now_ns, next_offset=next_offset)
        self.topics[name.key] = topic
        if topic.is_of_dead_letters:
            self.topics_of_dead_letters[topic] = None
        return topic

    def collect(self, topic: Topic, now_ns: int, *, unused_since_ns: int) -> bool:
        """Collect what nobody needs of a topic, and remove it if nobody has used it since. True if it was removed."""
        collecting.collect(topic, now_ns)
        if topic.last_used_at_ns > unused_since_ns or topic.gate.is_blocked or not collecting.is_unused(topic):
            return False
        if topic.is_queue:
            self._end_queue(topic, now_ns)
        topic.remove()
        del self.topics[topic.destination.key]
        self.topics_of_dead_letters.pop(topic, None)
        self._totals.published += topic.published
        self._totals.published_bytes += topic.published_bytes
        if topic.store_id is not None:
            self.unsaved.note_removed_topic(topic, topic.store_id)
        return True

    def _end_queue(self, topic: Topic, now_ns: int) -> None:
        """Nothing is in the queue or on its way there, and nobody is attached: its group goes in the same step. A SEND
        that comes next makes another queue. The rows of this one go with the next batch."""
        for subscription in list(topic.readings):
            if subscription.durability is not None:
                self.unsaved.note_removed_subscription(subscription.durability.store_id)
                self.forget_durable(subscription)
                self.durable_patterns.remove(subscription.pattern, subscription)
            self._close([subscription], {}, now_ns)

    # Consumers -------------------------------------------------------------------------------------------------------

    def claim(self, consumer: Consumer, now_ns: int) -> None:
        """Attach this consumer to its subscription. Raises PeerViolation as `topic` does."""
        subscription = consumer.subscription
        if subscription.pattern.is_exact and subscription.browser is None:
            self.topic(subscription.pattern, now_ns).last_used_at_ns = now_ns
        assert subscription.is_shared or not subscription.consumers, "one at a time"
        subscription.consumers[consumer] = None
        self.subscriptions[subscription] = None
        self._note_seen(subscription, now_ns)

    def open(self, consumer: Consumer, now_ns: int) -> None:
        """The claim is durable: begin to send, unless the consumer has left meanwhile."""
        if consumer in consumer.subscription.consumers:
            self.begin(consumer.subscription, now_ns)
            if consumer.subscription.browser is not None:
                consumer.subscription.browser.begin(self._group_of(consumer.subscription.pattern))
            consumer.open()

    def begin(self, subscription: Subscription, now_ns: int) -> None:
        """It gets what is published from now on, unless it has begun before, is closed, or a browser's."""
        if subscription.has_begun or subscription.is_closed or subscription.browser is not None:
            return
        subscription.has_begun = True
        if not subscription.pattern.is_exact:
            self.patterns.add(subscription.pattern, subscription)
            return
        topic = self.topics.get(subscription.pattern.key) or self._make_topic(subscription.pattern, now_ns)
        if subscription not in topic.readings:
            topic.add_reading(subscription)

    def _group_of(self, queue: Pattern) -> Reading | None:
        """Where the consumers of a queue stand; None if there is no such queue."""
        topic, group = self.topics.get(queue.key), self.find_group(queue_identity(queue))
        return None if topic is None or group is None else topic.readings.get(group)

    def leave(self, consumers: Iterable[Consumer], now_ns: int, *, leaving: Leaving = Leaving.TAKEN_AWAY) -> None:
        """Detach these consumers. What was in flight to them may go again; transient subscriptions are closed."""
        transient = []
        affected: dict[Topic, None] = {}
        for consumer in consumers:
            subscription = consumer.subscription
            if consumer not in subscription.consumers:
                continue
            if not subscription.is_durable and not subscription.is_queue and len(subscription.consumers) == 1:
                self._bury_before(subscription)
                if self.records is not None:
                    for reading in consumer.served():
                        reading.abandon(consumer, now_ns)
                consumer.close()
                subscription.leave(consumer)
                transient.append(subscription)
                continue
            worked_on = consumer.oldest_in_flight() if leaving is Leaving.LOST else None
            consumer.close(is_answerable=leaving is Leaving.UNSUBSCRIBED)
            subscription.leave(consumer)
            for run in consumer.sent:  # so that whoever gets it next is told when it was first sent
                for start, stop in run.reading.cursor.unsettled(run.first_offset, run.first_offset + run.count):
                    run.reading.remembered.note_first_sent(map(Offset, range(start, stop)), run.sent_at_ns)
            for reading in consumer.served():
                reading.release_in_flight_of(consumer)
                subscription.offer(reading)
            subscription.wake()  # of a group, others may be next
            if worked_on is not None:
                refusal = Refusal(now_ns, "the connection was lost", is_lost=True)
                note_lost(consumer, worked_on, refusal)
            self._note_seen(subscription, now_ns)
            affected.update(self.blocked)
        self._close(transient, affected, now_ns)

    def _bury_before(self, subscription: Subscription) -> None:
        """What this subscription has refused for good becomes dead letters before it is closed."""
        if not subscription.waiting:
            return
        used_up = [
            Waiting(reading, offset)
            for reading in subscription.readings.values()
            for offset, failure in reading.failures.items()
            if reading.is_used_up(offset)
            and reading.is_waiting(offset)
            and (failure.is_final or reading.policy.when_used_up is not WhenUsedUp.EVICT)
        ]
        if used_up:
            self.bury(used_up)

    def _close(self, subscriptions: Iterable[Subscription], affected: dict[Topic, None], now_ns: int) -> None:
        """End these subscriptions, with everything that was in flight or waiting for them.

        A wildcard subscription may have many topics: they forget it at their next use or collection. Only those that
        hold publishers back are told at once.
        """
        for subscription in subscriptions:
            subscription.is_closed = True
            for consumer in list(subscription.consumers):
                subscription.leave(consumer)
            self.subscriptions.pop(subscription, None)
            if subscription.transient_group is not None:
                self.transient_groups.pop(subscription.transient_group[0], None)
            self._totals.add_counters(COUNTER_NAMES, subscription.counters.values())
            if not subscription.has_begun:
                continue
            if subscription.pattern.is_exact:
                topic = self.topics[subscription.pattern.key]
                topic.remove_reading(subscription, now_ns)
                affected[topic] = None
            else:
                self.patterns.remove(subscription.pattern, subscription)
                affected.update(self.blocked)
            subscription.readings.clear()
        for topic in affected:
            try_to_unblock(topic, now_ns)

    def find_group(self, identity: Identity) -> Subscription | None:
        """Stored or not."""
        return self.durable.get(identity) or self.transient_groups.get(identity)

    def add_transient_group(self, subscription: Subscription, identity: Identity) -> None:
        """From now on it can be joined, until its last member leaves; or, a queue's, until the queue is removed."""
        subscription.transient_group = identity, self._next_group_number
        self._next_group_number += 1
        self.transient_groups[identity] = subscription
        self.subscriptions[subscription] = None

    # Durable subscriptions -------------------------------------------------------------------------------------------

    def add_durable(self, subscription: Subscription) -> None:
        """From now on it can be resumed, and topics that it matches are stored."""
        assert subscription.durability is not None
        self.durable[subscription.durability.identity] = subscription
        self.subscriptions[subscription] = None
        self.durable_patterns.add(subscription.pattern, subscription)

    def can_adopt(self, subscription: Subscription, identity: Identity) -> bool:
        """Whether it may be known by this identity. Not while the store may still have another one under it."""
        is_free = identity not in self.durable and not any(
            each.is_leaving and each.identity == identity for each in self.subscriptions
        )
        return is_free and not subscription.is_leaving

    def adopt(self, subscription: Subscription, identity: Identity) -> None:
        """It gets an owner; that is stored with the next batch."""
        assert subscription.durability is not None
        assert self.can_adopt(subscription, identity)
        del self.durable[subscription.durability.identity]
        subscription.durability.identity = identity
        self.durable[identity] = subscription
        # Behind one that has given this identity up.
        self.unsaved.subscriptions.pop(subscription, None)
        self.unsaved.note_subscription(subscription)

    def forget_durable(self, subscription: Subscription) -> None:
        """Its removal has begun: it cannot be resumed any more. Topics that it matches are stored until it is gone."""
        assert subscription.durability is not None
        subscription.is_leaving = True
        if subscription.is_queue:
            for topic in subscription.readings:
                topic.is_orphaned = True
        if self.durable.get(subscription.durability.identity) is subscription:
            del self.durable[subscription.durability.identity]

    def remember_durable(self, subscription: Subscription) -> None:
        """The store refused its removal: it can be resumed again."""
        assert subscription.durability is not None
        self.durable.setdefault(subscription.durability.identity, subscription)
        subscription.is_leaving = False
        for reading in subscription.readings.values():
            repeat_deferred(reading)

    def remove_durable(self, subscription: Subscription, now_ns: int) -> None:
        """It is gone for good, unless it was before: it may have been refused and deleted at once."""
        if subscription.is_closed:
            return
        self.forget_durable(subscription)
        self.durable_patterns.remove(subscription.pattern, subscription)
        self._close([subscription], {}, now_ns)

    def _note_seen(self, subscription: Subscription, now_ns: int) -> None:
        if subscription.durability is not None:
            subscription.durability.last_seen_at_ns = now_ns
            subscription.durability.is_warned_of = False
            self.unsaved.note_subscription(subscription)

    def check_invariants(self) -> None:
        self.last_values.check_invariants()
        for key, topic in self.topics.items():
            assert topic.destination.key == key
            assert not topic.is_removed
            topic.check_invariants()
        assert set(self.topics_of_dead_letters) == {each for each in self.topics.values() if each.is_of_dead_letters}
        for subscription in self.subscriptions:
            assert not subscription.is_closed
            if subscription.pattern.is_exact and subscription.has_begun:
                assert self.topics[subscription.pattern.key].readings[subscription].subscription is subscription
            for consumer in subscription.consumers:
                consumer.check_invariants()
        for identity, subscription in self.durable.items():
            assert subscription.durability is not None
            assert subscription.durability.identity == identity
        self.pages.check_invariants()
        kept_bytes = sum(topic.log.size_bytes for topic in self.topics.values())
        assert kept_bytes <= self.budget.used_bytes
