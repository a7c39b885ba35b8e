"""One topic: its log, who reads it, and its window.

Law: the only mutator of its log. All mutation is synchronous, so it is atomic between checkpoints; `async` only waits.
The window bounds what is not yet sent to somebody: a full one is first trimmed of what nobody needs, and then the
policy decides at whose cost it becomes shorter.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Final, final

from stompbroker.commitlog import Log, OffsetRanges
from stompbroker.errors import PeerViolation
from stompbroker.ids import Offset
from stompbroker.signals import Signal
from stompbroker.topics.policy import SlowSubscriber
from stompbroker.topics.reading import Reading

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stompbroker.memory_budget import MemoryBudget
    from stompbroker.message import Message
    from stompbroker.topics.destination import Pattern
    from stompbroker.topics.pattern_tree import PatternTree
    from stompbroker.topics.policy import TopicPolicy
    from stompbroker.topics.subscription import Subscription

__all__ = ["Topic"]

_body_bytes_of: Final = attrgetter("body_bytes")

#: What a topic's window shrinks to while the memory budget is tight.
TIGHT_WINDOW_BYTES: Final = 64 * 1024
#: A log is trimmed when it has grown to twice what it was after the last time, but not below these.
MIN_TRIM_MESSAGES: Final = 1024
MIN_TRIM_BYTES: Final = 256 * 1024
#: A blocked topic takes messages again when its window is this far from full, so that it does not flutter.
UNBLOCK_SHARE: Final = 0.75


@final
class Topic:
    """
    Invariants:
        the size of the log is charged to the memory budget
        no message is kept that every reading has settled, longer than until the next trim
        is_blocked exactly when the topic is in the registry's set of blocked topics
        a reading of a subscription that has closed is ignored, and removed at the next refresh
    """

    __slots__ = (
        "_blocked_topics",
        "_forgotten_version",
        "_matched_version",
        "_patterns",
        "_pinned_at",
        "_trim_bytes",
        "_trim_messages",
        "budget",
        "is_blocked",
        "is_removed",
        "last_used_at_ns",
        "log",
        "name",
        "policy",
        "progress_at_ns",
        "published",
        "published_bytes",
        "readings",
        "segments",
        "unblocked",
    )

    def __init__(
        self,
        pattern: Pattern,
        policy: TopicPolicy,
        budget: MemoryBudget,
        patterns: PatternTree[Subscription],
        blocked_topics: dict[Topic, None],
        now_ns: int,
    ) -> None:
        self.name = pattern.name
        self.segments = pattern.segments
        self.policy = policy
        self.budget = budget
        self.log = Log(Offset(0))
        self.readings: dict[Subscription, Reading] = {}
        self.published = 0
        self.published_bytes = 0
        self.last_used_at_ns = now_ns
        self.is_removed = False
        #: Whether publishers are held back.
        self.is_blocked = False
        #: While blocked: when a reading that pins the window last moved.
        self.progress_at_ns = now_ns
        self.unblocked = Signal()
        self._pinned_at = Offset(0)
        self._patterns = patterns
        #: The version of the patterns up to which new ones have been noticed, and closed ones.
        self._matched_version = -1
        self._forgotten_version = -1
        self._blocked_topics = blocked_topics
        self._trim_messages = MIN_TRIM_MESSAGES
        self._trim_bytes = MIN_TRIM_BYTES

    # Publishing ------------------------------------------------------------------------------------------------------

    def append(self, messages: Sequence[Message], now_ns: int) -> None:
        """Take in messages, offer them to every reading, and keep the window within its bounds."""
        self.last_used_at_ns = now_ns
        self.refresh_readings()
        self.published += len(messages)
        self.published_bytes += sum(map(_body_bytes_of, messages))
        if not self.readings:
            self.log.skip(len(messages))
            if self.log.message_count:
                self.trim()
            return
        # Judged by what is there before: a message larger than the window is nobody's fault, and reaches everybody.
        laggards = self._relieve() if self._is_full() else []
        before_bytes = self.log.size_bytes
        first = self.log.append(messages)
        self.budget.adjust(self.log.size_bytes - before_bytes)
        for reading in laggards:
            reading.subscription.counters.dropped += reading.drop_newest(first)
        for reading in self.readings.values():
            consumer = reading.subscription.consumer
            if consumer is not None:
                consumer.offer(reading)
        if self.log.message_count >= self._trim_messages or self.log.size_bytes >= self._trim_bytes:
            self.trim()
        if self.policy.slow_subscriber is SlowSubscriber.BLOCK and self._is_full():
            self.trim(only_unsent=True)
            if self._is_full():
                self._block(now_ns)

    # Readings --------------------------------------------------------------------------------------------------------

    def add_reading(self, subscription: Subscription) -> Reading:
        """`subscription` reads from here on."""
        reading = Reading(subscription, self, self.log.end_offset)
        self.readings[subscription] = reading
        subscription.readings[self] = reading
        return reading

    def remove_reading(self, subscription: Subscription, now_ns: int) -> None:
        """What was kept for it goes with the next trim."""
        self.readings.pop(subscription).close()
        self.last_used_at_ns = now_ns

    def refresh_readings(self) -> None:
        """Take notice of wildcard subscriptions that came or went since the last time.

        A wildcard subscription costs nothing per topic until a message is published there: this runs before every
        append, so a subscription that came in between starts with that very message.
        """
        if self._matched_version == self._patterns.version:
            return
        self._matched_version = self._patterns.version
        self.forget_closed_readings()
        for subscription in self._patterns.match(self.segments):
            if subscription not in self.readings:
                self.add_reading(subscription)

    def forget_closed_readings(self) -> None:
        """Let go of wildcard subscriptions that have gone."""
        if self._forgotten_version == self._patterns.version:
            return
        self._forgotten_version = self._patterns.version
        for subscription in [subscription for subscription in self.readings if subscription.is_closed]:
            self.readings.pop(subscription).close()

    @property
    def is_unused(self) -> bool:
        """Whether it can go: nothing kept, and nobody here who asked for this very topic or has something unsettled."""
        return self.log.message_count == 0 and all(
            not subscription.pattern.is_exact and reading.is_idle for subscription, reading in self.readings.items()
        )

    # Window ----------------------------------------------------------------------------------------------------------

    def trim(self, *, only_unsent: bool = False) -> None:
        """Drop what nobody needs from the log.

        What is sent and unsettled stays there, since it will mostly be settled soon. Only where it fills half of the
        window, or when asked for, the log keeps nothing but what is unsent, and those who may need the rest hold it.
        """
        log = self.log
        before_bytes = log.size_bytes
        readings = self.readings.values()
        log.drop(log.start_offset, min([reading.lowest_needed for reading in readings], default=log.end_offset))
        if only_unsent or self._is_half_full_of_sent():
            needed = OffsetRanges()
            for reading in readings:
                for start, stop in reading.unsent_ranges():
                    needed.add(start, stop)
            for start, stop in needed.gaps(log.start_offset, log.end_offset):
                for reading in readings:
                    reading.hold_unsettled(start, stop)
                log.drop(start, stop)
        self.budget.adjust(log.size_bytes - before_bytes)
        self._trim_messages = max(MIN_TRIM_MESSAGES, 2 * log.message_count)
        self._trim_bytes = max(MIN_TRIM_BYTES, 2 * log.size_bytes)

    def _is_half_full_of_sent(self) -> bool:
        """Whether what everybody has been sent fills half of the window by itself."""
        return self._fills(0.5) and self._fills(0.5, part=self._sent_part())

    def _sent_part(self) -> float:
        """Which part of the log everybody has been sent, and keeps only until it is settled."""
        return (self._lowest_unsent() - self.log.start_offset) / max(1, self.log.message_count)

    def try_to_unblock(self, now_ns: int) -> None:
        """Publishers are held back: see whether the window has moved, and let them go on when there is room.

        Nothing to do if they are not: whoever goes through the blocked topics may unblock others on the way.
        """
        if not self.is_blocked:
            return
        self.forget_closed_readings()
        self.trim()
        pinned_at = self._lowest_unsent()
        if pinned_at > self._pinned_at:
            self._pinned_at = pinned_at
            self.progress_at_ns = now_ns
        # What is sent and unsettled is not what the window bounds: a subscriber that works on it blocks nobody.
        if not self._fills(UNBLOCK_SHARE, part=1 - self._sent_part()):
            self.is_blocked = False
            del self._blocked_topics[self]
            self.unblocked.wake()

    def disconnect_pinning(self) -> list[Reading]:
        """Disconnect the subscribers that have read least; returns where they stood."""
        lowest = self._lowest_unsent()
        pinning = [reading for reading in self.readings.values() if reading.cursor.next_offset <= lowest]
        self._disconnect(pinning, f"nothing was taken from it for {self.policy.block_timeout_s:g} s")
        return pinning

    def _fills(self, share: float, *, part: float = 1.0) -> bool:
        """Whether the log, or a part of it, fills that share of the window."""
        window_bytes = TIGHT_WINDOW_BYTES if self.budget.is_tight else self.policy.window_bytes
        return (
            self.log.size_bytes * part >= window_bytes * share
            or self.log.message_count * part >= self.policy.window_messages * share
        )

    def _is_full(self) -> bool:
        return self._fills(1.0)

    def _lowest_unsent(self) -> Offset:
        return min([reading.cursor.next_offset for reading in self.readings.values()], default=self.log.end_offset)

    def _block(self, now_ns: int) -> None:
        if not self.is_blocked:
            self.is_blocked = True
            self.progress_at_ns = now_ns
            self._pinned_at = self._lowest_unsent()
            self._blocked_topics[self] = None

    def _relieve(self) -> list[Reading]:
        """The window is full and more is about to come: do what the policy says. Returns the readings that do not get
        what comes."""
        self.trim(only_unsent=True)
        if not self._is_full():
            return []
        match self.policy.slow_subscriber:
            case SlowSubscriber.BLOCK:
                pass  # whoever publishes all the same is not a client, or had begun before the window was full
            case SlowSubscriber.DROP_OLDEST:
                self._drop_oldest()
            case SlowSubscriber.DROP_NEWEST:
                return self._laggards()
            case SlowSubscriber.DISCONNECT:
                self._disconnect(self._laggards(), "it did not keep up with the topic's publishers")
        return []

    def _drop_oldest(self) -> None:
        """Drop the oldest quarter until the window is not full: one message at a time would trim at every append."""
        while self._is_full():
            before = self.log.message_count
            start, stop = self.log.start_offset, self.log.end_offset
            target = Offset(start + max(1, (stop - start) // 4))
            for reading in self.readings.values():
                reading.subscription.counters.dropped += reading.drop_oldest(target)
            self.trim(only_unsent=True)
            if self.log.message_count == before:
                break

    def _laggards(self) -> list[Reading]:
        """The readings that fill the window by themselves; if none does, those that have most before them."""
        unsent = {reading: reading.unsent for reading in self.readings.values()}
        average_bytes = self.log.size_bytes / max(1, self.log.message_count)
        bound = min(self.policy.window_messages, self.policy.window_bytes / max(1.0, average_bytes))
        bound = min(bound, max(unsent.values()))
        return [reading for reading, count in unsent.items() if count >= bound]

    def _disconnect(self, readings: list[Reading], why: str) -> None:
        for reading in readings:
            subscription = reading.subscription
            if subscription.consumer is not None:
                subscription.consumer.disconnect(
                    PeerViolation(
                        "subscriber too slow",
                        f"subscription {subscription.name!r} to {subscription.destination!r} fills the window of topic "
                        f"{self.name!r} with {reading.unsent} messages it has not been sent; {why}",
                    )
                )

    def check_invariants(self) -> None:
        self.log.check_invariants()
        assert self.is_blocked == (self in self._blocked_topics)
        for subscription, reading in self.readings.items():
            assert subscription.is_closed or subscription.readings[self] is reading
            if not subscription.is_closed:
                reading.check_invariants()
