"""One topic: its log, who reads it, and its window.

Law: the only mutator of its log. All mutation is synchronous, so it is atomic between checkpoints; `async` only waits.
The window bounds what is not yet sent to somebody: a full one is first trimmed of what nobody needs, then of what the
store has, and only then the policy decides at whose cost it becomes shorter.

A topic is *stored* while somebody could need its messages later: then everything published to it goes through the
journal. It is *in the store* from the first time it was, until it is removed; what it holds in memory only is known.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Final, final

from stompbroker.commitlog import Cursor, Log, OffsetRanges
from stompbroker.errors import PeerViolation
from stompbroker.ids import FIRST_OFFSET, Offset
from stompbroker.signals import Signal
from stompbroker.topics.policy import SlowSubscriber
from stompbroker.topics.reading import Reading

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stompbroker.message import Message
    from stompbroker.topics.destination import Pattern
    from stompbroker.topics.neighbourhood import Neighbourhood
    from stompbroker.topics.pages import Pages
    from stompbroker.topics.policy import TopicPolicy
    from stompbroker.topics.subscription import Subscription
    from stompbroker.topics.unsaved import Unsaved

__all__ = ["Topic"]

_body_bytes_of: Final = attrgetter("body_bytes")

#: What a topic's window shrinks to while the memory budget is tight.
TIGHT_WINDOW_BYTES: Final = 64 * 1024
#: A log is trimmed when it has grown to twice what it was after the last time, but not below these.
MIN_TRIM_MESSAGES: Final = 1024
MIN_TRIM_BYTES: Final = 256 * 1024
#: A blocked topic takes messages again when its window is this far from full, so that it does not flutter.
UNBLOCK_SHARE: Final = 0.75
#: What a full window of a stored topic is shortened to: one message at a time would trim at every append.
KEPT_SHARE: Final = 0.75


@final
class Topic:
    """
    Invariants:
        the size of the log is charged to the memory budget
        no message is kept that every reading has settled, longer than until the next trim
        is_blocked exactly when the topic is in the registry's set of blocked topics
        a reading of a subscription that has closed is ignored, and removed at the next refresh
        a message in the log is in the store too, unless the topic is not or `_unstored` has its offset
        what exists below the start of the log is in the store
    """

    __slots__ = (
        "_around",
        "_durable_version",
        "_forgotten_version",
        "_is_stored",
        "_matched_version",
        "_pinned_at",
        "_trim_bytes",
        "_trim_messages",
        "_unstored",
        "budget",
        "collected_up_to",
        "formed_units",
        "is_blocked",
        "is_removed",
        "last_used_at_ns",
        "log",
        "name",
        "pending_units",
        "policy",
        "progress_at_ns",
        "published",
        "published_bytes",
        "readings",
        "segments",
        "store_id",
        "unblocked",
    )

    def __init__(
        self,
        pattern: Pattern,
        policy: TopicPolicy,
        around: Neighbourhood,
        now_ns: int,
        *,
        next_offset: Offset = FIRST_OFFSET,
    ) -> None:
        self.name = pattern.name
        self.segments = pattern.segments
        self.policy = policy
        self.budget = around.budget
        self.log = Log(next_offset)
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
        #: Its number in the store, if it is there.
        self.store_id: int | None = None
        #: What of it the store has is at this offset or above.
        self.collected_up_to = next_offset
        #: Units on their way through the journal that publish here.
        self.pending_units = 0
        #: Those of them whose messages have been given their offsets: nothing may come in between.
        self.formed_units = 0
        self._around = around
        self._pinned_at = Offset(0)
        #: The version of the patterns up to which new ones have been noticed, and closed ones.
        self._matched_version = -1
        self._forgotten_version = -1
        #: Whether somebody could need its messages later, and for which version of the durable subscriptions.
        self._is_stored = False
        self._durable_version = -1
        #: Offsets in the log that the store does not have; means nothing unless the topic is in the store.
        self._unstored = OffsetRanges()
        self._trim_messages = MIN_TRIM_MESSAGES
        self._trim_bytes = MIN_TRIM_BYTES

    # Storing ---------------------------------------------------------------------------------------------------------

    @property
    def is_stored(self) -> bool:
        """Whether what is published here must go through the journal."""
        durable = self._around.durable
        if self._durable_version != durable.version:
            self._durable_version = durable.version
            self._is_stored = bool(durable.match(self.segments))
        return self._is_stored

    @property
    def is_in_store(self) -> bool:
        return self.store_id is not None

    @property
    def unsaved(self) -> Unsaved:
        return self._around.unsaved

    @property
    def pages(self) -> Pages:
        return self._around.pages

    def enter_store(self, store_id: int) -> None:
        """It has a place in the store from now on. What the log holds by now is not there."""
        self.store_id = store_id
        self.collected_up_to = self.log.end_offset
        self._unstored.add(self.log.start_offset, self.log.end_offset)

    def has_stored(self, offset: Offset) -> bool:
        """Whether a message that is in the log is in the store too."""
        return self.is_in_store and offset not in self._unstored

    def source(self, offset: Offset) -> Log | None:
        """Where to read on from `offset`: the log, or behind the window a page; None if that has to be read first."""
        if self.store_id is None or offset >= self.log.start_offset:
            return self.log
        page = self.page(offset)
        if page is not None:
            self.pages.read_ahead(self, page.end_offset)
        return page

    def page(self, offset: Offset) -> Log | None:
        """What the store has at `offset` and behind it; None if that has to be read first."""
        assert self.is_in_store, f"offset {offset} of {self.name} is unsettled but not kept"
        return self.pages.find(self, offset)

    @property
    def settled_floor(self) -> Offset:
        """Everything below it is settled by everybody."""
        return min([reading.cursor.ack_floor for reading in self.readings.values()], default=self.log.end_offset)

    # Publishing ------------------------------------------------------------------------------------------------------

    def append(self, messages: Sequence[Message], now_ns: int, *, is_stored: bool = False) -> None:
        """Take in messages, offer them to every reading, and keep the window within its bounds.

        `is_stored`: the journal has written those that are persistent.
        """
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
        if self.store_id is not None:
            self._note_unstored(first, messages, is_stored)
        for reading in laggards:
            reading.subscription.counters.dropped += reading.drop_newest(first)
        for reading in self.readings.values():
            consumer = reading.subscription.consumer
            if consumer is not None:
                consumer.offer(reading)
        if self.log.message_count >= self._trim_messages or self.log.size_bytes >= self._trim_bytes:
            self.trim()
        if self.policy.slow_subscriber is SlowSubscriber.BLOCK and self._is_full():
            self.shorten()
            if self._is_full():
                self._block(now_ns)

    def _note_unstored(self, first: Offset, messages: Sequence[Message], is_stored: bool) -> None:
        if not is_stored:
            self._unstored.add(first, self.log.end_offset)
        elif not all(message.origin.is_persistent for message in messages):
            for offset, message in enumerate(messages, first):
                if not message.origin.is_persistent:
                    self._unstored.add(offset, offset + 1)

    # Readings --------------------------------------------------------------------------------------------------------

    def add_reading(self, subscription: Subscription, cursor: Cursor | None = None) -> Reading:
        """`subscription` reads from here on, or from where it stood."""
        reading = Reading(subscription, self, cursor or Cursor(self.log.end_offset))
        self.readings[subscription] = reading
        subscription.readings[self] = reading
        return reading

    def remove_reading(self, subscription: Subscription, now_ns: int) -> None:
        """What was kept for it goes with the next trim."""
        self.readings.pop(subscription).close()
        self.last_used_at_ns = now_ns
        self._note_collectable()

    def refresh_readings(self) -> None:
        """Take notice of wildcard subscriptions that came or went since the last time.

        A wildcard subscription costs nothing per topic until a message is published there: this runs before every
        append, so a subscription that came in between starts with that very message.
        """
        if self._matched_version == self._around.patterns.version:
            return
        self._matched_version = self._around.patterns.version
        self.forget_closed_readings()
        for subscription in self._around.patterns.match(self.segments):
            if subscription not in self.readings:
                self.add_reading(subscription)

    def forget_closed_readings(self) -> None:
        """Let go of wildcard subscriptions that have gone."""
        if self._forgotten_version == self._around.patterns.version:
            return
        self._forgotten_version = self._around.patterns.version
        closed = [subscription for subscription in self.readings if subscription.is_closed]
        for subscription in closed:
            self.readings.pop(subscription).close()
        if closed:
            self._note_collectable()

    def _note_collectable(self) -> None:
        """Perhaps nobody needs any more what the store has."""
        if self.is_in_store:
            self.unsaved.collectable[self] = None

    @property
    def is_unused(self) -> bool:
        """Whether it can go: nothing kept or on its way, and nobody here who asked for this very topic or has something
        unsettled."""
        return not (self.log.message_count or self.pending_units) and all(
            not subscription.pattern.is_exact and reading.is_idle for subscription, reading in self.readings.items()
        )

    # Window ----------------------------------------------------------------------------------------------------------

    def trim(self, *, only_unsent: bool = False) -> None:
        """Drop what nobody needs from the log.

        What is sent and unsettled stays there, since it will mostly be settled soon. Only where it fills half of the
        window, or when asked for, the log keeps nothing but what is unsent, and those who may need the rest hold it
        unless the store does.
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
        if self._unstored:
            self._unstored.forget_below(log.start_offset)
        self._trim_messages = max(MIN_TRIM_MESSAGES, 2 * log.message_count)
        self._trim_bytes = max(MIN_TRIM_BYTES, 2 * log.size_bytes)

    def shorten(self) -> None:
        """Keep nothing but what is unsent, and while that fills the window, leave it to the store where it is there."""
        self.trim(only_unsent=True)
        if not self.is_in_store or not self._is_full():
            return
        # What only the log has must reach those who are connected.
        needed = [first for reading in self._connected() if (first := self._first_unstored(reading)) is not None]
        self._leave_to_store(min([self._first_to_keep(), *needed]))

    def _leave_to_store(self, stop: Offset) -> None:
        """Forget what is below `stop`; whoever needs it reads it from the store."""
        log = self.log
        before_bytes = log.size_bytes
        for reading in self.readings.values():
            reading.hold_unsettled(log.start_offset, stop)
        log.drop(log.start_offset, stop)
        self.budget.adjust(log.size_bytes - before_bytes)
        self._unstored.forget_below(log.start_offset)

    def _first_to_keep(self) -> Offset:
        """What lies from there on fills KEPT_SHARE of the window."""
        window_bytes, window_messages = self._window()
        share = KEPT_SHARE * min(window_bytes / self.log.size_bytes, window_messages / self.log.message_count)
        return Offset(self.log.end_offset - int(self.log.message_count * share))

    def _connected(self) -> list[Reading]:
        return [reading for reading in self.readings.values() if reading.subscription.consumer is not None]

    def _first_unstored(self, reading: Reading) -> Offset | None:
        """The first message that only the log has and that this reading has not been sent."""
        first = self._unstored.first_from(max(reading.cursor.next_offset, self.log.start_offset))
        return None if first is None else Offset(first)

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
        if self.is_in_store and self._is_full():
            self.shorten()
        pinned_at = self._lowest_unsent()
        if pinned_at > self._pinned_at:
            self._pinned_at = pinned_at
            self.progress_at_ns = now_ns
        # What is sent and unsettled is not what the window bounds: a subscriber that works on it blocks nobody.
        if not self._fills(UNBLOCK_SHARE, part=1 - self._sent_part()):
            self.is_blocked = False
            del self._around.blocked[self]
            self.unblocked.wake()

    @property
    def why(self) -> str:
        """Why publishers are held back, for whoever is."""
        return f"topic {self.name!r} is full"

    @property
    def waits_for_consumers(self) -> bool:
        """Whether it will take messages again when consumers have taken some: always."""
        return True

    def disconnect_pinning(self) -> list[Reading]:
        """Disconnect the subscribers that have read least; returns where they stood."""
        lowest = self._lowest_unsent()
        pinning = [reading for reading in self.readings.values() if reading.cursor.next_offset <= lowest]
        self._disconnect(pinning, f"nothing was taken from it for {self.policy.block_timeout_s:g} s")
        return pinning

    def _fills(self, share: float, *, part: float = 1.0) -> bool:
        """Whether the log, or a part of it, fills that share of the window."""
        window_bytes, window_messages = self._window()
        return (
            self.log.size_bytes * part >= window_bytes * share
            or self.log.message_count * part >= window_messages * share
        )

    def _window(self) -> tuple[int, int]:
        """Bytes and messages it may keep."""
        window_bytes = TIGHT_WINDOW_BYTES if self.budget.is_tight else self.policy.window_bytes
        return window_bytes, self.policy.window_messages

    def _is_full(self) -> bool:
        return self._fills(1.0)

    def _lowest_unsent(self) -> Offset:
        """Where whoever has read least in the window stands."""
        readings = self.readings.values()
        if self.is_in_store:
            positions = [max(reading.cursor.next_offset, self.log.start_offset) for reading in self._connected()]
        else:
            positions = [reading.cursor.next_offset for reading in readings]
        return min(positions, default=self.log.end_offset)

    def _block(self, now_ns: int) -> None:
        if not self.is_blocked:
            self.is_blocked = True
            self.progress_at_ns = now_ns
            self._pinned_at = self._lowest_unsent()
            self._around.blocked[self] = None

    def _relieve(self) -> list[Reading]:
        """The window is full and more is about to come: do what the policy says. Returns the readings that do not get
        what comes."""
        self.shorten()
        if not self._is_full():
            return []
        if self.is_in_store:
            self._relieve_of_unstored()
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

    def _relieve_of_unstored(self) -> None:
        """What fills the window is not in the store, and somebody who is connected has not been sent it. Whatever the
        policy, only such messages are dropped, the oldest: all others wait in the store."""
        first_to_keep = self._first_to_keep()
        pinning = {
            reading: first
            for reading in self._connected()
            if (first := self._first_unstored(reading)) is not None and first < first_to_keep
        }
        match self.policy.slow_subscriber:
            case SlowSubscriber.BLOCK:
                pass
            case SlowSubscriber.DISCONNECT:
                self._disconnect(list(pinning), "it did not keep up with the topic's publishers")
            case SlowSubscriber.DROP_OLDEST | SlowSubscriber.DROP_NEWEST:
                for reading, first in pinning.items():
                    stored = sum(stop - start for start, stop in self._unstored.gaps(first, first_to_keep))
                    reading.subscription.counters.dropped += first_to_keep - first - stored
                self._leave_to_store(first_to_keep)

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
        assert self.is_blocked == (self in self._around.blocked)
        for subscription, reading in self.readings.items():
            assert subscription.is_closed or subscription.readings[self] is reading
            if not subscription.is_closed:
                reading.check_invariants()
        if self.is_in_store:
            self._unstored.check_invariants()
            assert self.collected_up_to <= self.log.end_offset
            assert not any(start < self.log.start_offset for start, _ in self._unstored)
