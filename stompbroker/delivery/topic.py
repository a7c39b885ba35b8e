"""One topic: its log, who reads it, and whether its publishers are held back.

Law: appends to its log; its window drops from it. A topic is *stored* while somebody could need its messages later:
then everything published to it goes through the journal. It is *in the store* from the first time on until it is
removed. It has many methods since the log, the window, the readings and the store all meet here.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Final, final

from stompbroker.commitlog import Cursor, Log, OffsetRanges
from stompbroker.delivery.gate import Gate
from stompbroker.delivery.policy import SlowSubscriber
from stompbroker.delivery.reading import Reading
from stompbroker.delivery.retained import Retained
from stompbroker.delivery.window import Window
from stompbroker.ids import FIRST_OFFSET, Offset

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stompbroker.delivery.consumer import Unanswered
    from stompbroker.delivery.delivery_times import DeliveryTimes
    from stompbroker.delivery.destination import Pattern
    from stompbroker.delivery.pages import Pages
    from stompbroker.delivery.pattern_tree import PatternTree
    from stompbroker.delivery.policy import TopicPolicy
    from stompbroker.delivery.reading import Waiting
    from stompbroker.delivery.records import Records
    from stompbroker.delivery.subscription import Subscription
    from stompbroker.delivery.timetable import Timetable
    from stompbroker.delivery.unsaved import Unsaved
    from stompbroker.ids import ConnectionId
    from stompbroker.memory_budget import MemoryBudget
    from stompbroker.message import Message

__all__ = ["Topic", "TopicContext"]

_body_bytes_of: Final = attrgetter("body_bytes")

#: A blocked topic takes messages again when its window is this far from full, so that it does not flutter.
UNBLOCK_SHARE: Final = 0.75


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TopicContext:
    """What all topics of a broker share; the registry builds it once."""

    budget: MemoryBudget
    #: Wildcard subscriptions that are served, durable or not.
    patterns: PatternTree[Subscription]
    #: All durable subscriptions, exact ones too: what matches one is stored.
    durable: PatternTree[Subscription]
    #: Topics whose publishers are held back.
    blocked: dict[Topic, None]
    pages: Pages
    unsaved: Unsaved[Reading, Subscription, Topic]
    #: Messages that were set aside, and deliveries with a deadline.
    redeliveries: Timetable[Waiting]
    deadlines: Timetable[Unanswered]
    times: DeliveryTimes
    #: What the ledger gets to know; None without one.
    records: Records | None
    #: Whether anything outlives the process: otherwise nothing can be retained.
    can_store: bool


@final
class Topic:
    """
    Invariants:
        the size of the log is charged to the memory budget
        the gate is closed exactly when the topic is in the registry's set of blocked topics
        a reading of a subscription that has closed is ignored, and removed at the next refresh
    """

    __slots__ = (
        "_durable_version",
        "_forgotten_version",
        "_is_stored",
        "_matched_version",
        "_pinned_at",
        "between_holes",
        "budget",
        "collected",
        "collected_up_to",
        "context",
        "destination",
        "gate",
        "is_choosy",
        "is_removed",
        "last_used_at_ns",
        "log",
        "name",
        "pending_units",
        "policy",
        "progress_at_ns",
        "published",
        "published_bytes",
        "publishers",
        "readings",
        "retained",
        "store_id",
        "stored_end",
        "whole_from",
        "window",
    )

    def __init__(
        self,
        destination: Pattern,
        policy: TopicPolicy,
        context: TopicContext,
        now_ns: int,
        *,
        next_offset: Offset = FIRST_OFFSET,
    ) -> None:
        self.context = context
        self.destination = destination
        self.name = destination.name
        self.policy = policy
        self.budget = context.budget
        self.log = Log(next_offset)
        self.readings: dict[Subscription, Reading] = {}
        self.window = Window(self.log, self.readings, policy, self.budget)
        self.published = 0
        #: Connections that publish here, as far as they have been noted, each with all topics it is noted for.
        self.publishers: dict[ConnectionId, dict[Topic, None]] = {}
        self.published_bytes = 0
        self.last_used_at_ns = now_ns
        self.is_removed = False
        #: Closed while publishers are held back.
        self.gate = Gate()
        #: While blocked: when a reading that pins the window last moved.
        self.progress_at_ns = now_ns
        #: Its number in the store, if it is there.
        self.store_id: int | None = None
        #: The offset up to which the store knows it; behind it nothing was published there.
        self.stored_end = next_offset
        #: Below it the store may have no message where it had one once, and nobody knows: it is from before that was
        #: written down.
        self.whole_from = Offset(0)
        #: Whether there may be messages that not everybody gets, or not for ever.
        self.is_choosy = False
        #: What of it the store has is at this offset or above, and not in these ranges.
        self.collected_up_to = next_offset
        self.collected = OffsetRanges()
        #: Ranges above the lowest ack floor that everybody has settled, for the journal to delete.
        self.between_holes: list[tuple[int, int]] = []
        #: What is kept for later subscribers; None if nothing is.
        self.retained: Retained | None = None
        if policy.retention and context.can_store:
            self.retained = Retained(policy.retention)
        #: Units on their way through the journal that publish here.
        self.pending_units = 0
        self._pinned_at = Offset(0)
        #: The version of the patterns up to which new ones have been noticed, and closed ones.
        self._matched_version = -1
        self._forgotten_version = -1
        #: Whether somebody could need its messages later, and for which version of the durable subscriptions.
        self._is_stored = False
        self._durable_version = -1

    # Storing ---------------------------------------------------------------------------------------------------------

    @property
    def is_stored(self) -> bool:
        """Whether what is published here must go through the journal."""
        durable = self.context.durable
        if self._durable_version != durable.version:
            self._durable_version = durable.version
            self._is_stored = self.is_retaining or bool(durable.match(self.destination))
        return self._is_stored

    @property
    def is_retaining(self) -> bool:
        """Whether messages are kept for later subscribers."""
        return self.retained is not None

    @property
    def is_of_dead_letters(self) -> bool:
        return self.destination.is_of_dead_letters

    @property
    def is_in_store(self) -> bool:
        return self.store_id is not None

    def enter_store(self, store_id: int) -> None:
        """It has a place in the store from now on. What the log holds by now is not there."""
        self.store_id = store_id
        self.collected_up_to = self.stored_end = self.log.end_offset
        self.window.enter_store()

    def has_stored(self, offset: Offset) -> bool:
        """Whether a message that is in the log is in the store too."""
        return self.is_in_store and not self.window.has_unstored(offset)

    def source(self, offset: Offset) -> Log | None:
        """Where to read on from `offset`: the log, or behind the window a page; None if that has to be read first."""
        if self.store_id is None or offset >= self.log.start_offset:
            return self.log
        page = self.page(offset)
        if page is not None:
            self.context.pages.read_ahead(self, page.end_offset)
        return page

    def page(self, offset: Offset) -> Log | None:
        """What the store has at `offset` and behind it; None if that has to be read first."""
        assert self.is_in_store, f"offset {offset} of {self.name} is unsettled but not kept"
        return self.context.pages.find(self, offset)

    @property
    def settled_floor(self) -> Offset:
        """Everything below it is settled by everybody."""
        return min([reading.cursor.ack_floor for reading in self.readings.values()], default=self.log.end_offset)

    def note_collected(self, start: int, stop: int) -> None:
        """The store has nothing at these offsets, from the batch on that is being formed."""
        if start <= self.collected_up_to:
            self.collected_up_to = max(self.collected_up_to, Offset(stop))
            self.collected.forget_below(self.collected_up_to)
        else:
            self.collected.add(start, stop)
        if self.retained is not None:
            self.retained.forget_below(self.collected_up_to)

    def keep_between_holes(self) -> None:
        """What was found there is needed again, and the log has it no more: whoever reads it asks the store."""
        self.between_holes = []
        self.window.trim(only_unsent=True)

    @property
    def stored_messages(self) -> int:
        """How many messages the store may have of it: some offsets in between may have none."""
        return self.log.end_offset - self.collected_up_to - self.collected.count if self.is_in_store else 0

    # Publishing ------------------------------------------------------------------------------------------------------

    def append(self, messages: Sequence[Message], now_ns: int, *, reserved: Offset | None = None) -> None:
        """Take in messages, offer them to every reading, and keep the window within its bounds.

        `reserved`: the first of their offsets, under which the journal has written those that are persistent.
        """
        is_stored = reserved is not None
        assert reserved == self.log.end_offset or not (is_stored or self.log.has_reserved), "out of turn"
        self.last_used_at_ns = now_ns
        self.refresh_readings()
        self.published += len(messages)
        self.published_bytes += sum(map(_body_bytes_of, messages))
        if not self.readings:
            if self.retained is not None and is_stored:
                self.retained.note(self.log.end_offset, messages)
            self.log.skip(len(messages))
            if self.log.message_count:
                self.window.trim()
            return
        # Judged by what is there before: a message larger than the window is nobody's fault, and reaches everybody.
        laggards = self.window.relieve() if self.window.is_full else []
        before_bytes = self.log.size_bytes
        first = self.log.append(messages)
        self.budget.adjust(self.log.size_bytes - before_bytes)
        if self.store_id is not None:
            self.window.note_unstored(first, messages, is_stored=is_stored)
        if self.retained is not None and is_stored:
            self.retained.note(first, messages)
        for reading in laggards:
            reading.drop_newest(first)
        for reading in self.readings.values():
            reading.subscription.offer(reading)
        if self.window.is_overgrown:
            self.window.trim()
        if self.policy.slow_subscriber is SlowSubscriber.BLOCK and self.window.is_full:
            self.window.shorten()
            if self.window.is_full:
                self._block(now_ns)

    # Readings --------------------------------------------------------------------------------------------------------

    def add_reading(self, subscription: Subscription, cursor: Cursor | None = None) -> Reading:
        """`subscription` reads from here on, or from where it stood, or from where it asked to."""
        replay = subscription.starts_at
        position = self.log.end_offset if replay is None else min(replay.start, self.log.end_offset)
        reading = Reading(subscription, self, cursor or Cursor(position))
        if replay is not None:
            # One that has read on has been told what was missing; what is older than it asked for it never gets.
            is_at_start = reading.cursor.next_offset <= replay.start
            reading.replay = replay if is_at_start else replay._replace(asked_for=None, is_whole=True)
        self.readings[subscription] = reading
        subscription.readings[self] = reading
        return reading

    def remove_reading(self, subscription: Subscription, now_ns: int) -> None:
        """What was kept for it goes with the next trim."""
        self.readings.pop(subscription).close()
        self.last_used_at_ns = now_ns
        self.note_collectable()

    def refresh_readings(self) -> None:
        """Take notice of wildcard subscriptions that came or went since the last time.

        A wildcard subscription costs nothing per topic until a message is published there: this runs before every
        append, so a subscription that came in between starts with that very message.
        """
        if self._matched_version == self.context.patterns.version:
            return
        self._matched_version = self.context.patterns.version
        self.forget_closed_readings()
        for subscription in self.context.patterns.match(self.destination):
            if subscription not in self.readings:
                self.add_reading(subscription)

    def forget_closed_readings(self) -> None:
        """Let go of wildcard subscriptions that have gone."""
        if self._forgotten_version == self.context.patterns.version:
            return
        self._forgotten_version = self.context.patterns.version
        closed = [subscription for subscription in self.readings if subscription.is_closed]
        for subscription in closed:
            self.readings.pop(subscription).close()
        if closed:
            self.note_collectable()

    def note_collectable(self) -> None:
        """Perhaps nobody needs any more what the store has."""
        if self.is_in_store and self.collected_up_to < self.log.end_offset:
            self.context.unsaved.collectable[self] = None

    def remove(self) -> None:
        """It is gone: nobody reads it or is known to publish to it any more, and nothing refers to it for that."""
        self.is_removed = True
        for subscription, reading in self.readings.items():
            subscription.to_read.remove(reading)
            subscription.readings.pop(self, None)
            reading.close()
        self.readings.clear()
        for noted in self.publishers.values():
            noted.pop(self, None)
        self.publishers.clear()

    # Holding back ----------------------------------------------------------------------------------------------------

    def try_to_unblock(self, now_ns: int) -> None:
        """Publishers are held back: see whether the window has moved, and let them go on when there is room.

        Nothing to do if they are not: whoever goes through the blocked topics may unblock others on the way.
        """
        if not self.gate.is_blocked:
            return
        self.forget_closed_readings()
        self.window.trim()
        if self.is_in_store and self.window.is_full:
            self.window.shorten()
        pinned_at = self.window.lowest_unsent
        if pinned_at > self._pinned_at:
            self._pinned_at = pinned_at
            self.progress_at_ns = now_ns
        # What is sent and unsettled is not what the window bounds: a subscriber that works on it blocks nobody.
        if not self.window.fills(UNBLOCK_SHARE, part=1 - self.window.sent_part):
            del self.context.blocked[self]
            self.gate.open()

    def disconnect_pinning(self) -> list[Reading]:
        """Disconnect the subscribers that have read least; returns where they stood."""
        lowest = self.window.lowest_unsent
        pinning = [reading for reading in self.window.connected() if reading.cursor.next_offset <= lowest]
        for reading in pinning:
            reading.disconnect(f"nothing was taken from it for {self.policy.block_timeout_s:g} s")
        return pinning

    def _block(self, now_ns: int) -> None:
        if not self.gate.is_blocked:
            self.gate.close(f"topic {self.name!r} is full", waits_for_consumers=True)
            self.progress_at_ns = now_ns
            self._pinned_at = self.window.lowest_unsent
            self.context.blocked[self] = None

    def check_invariants(self) -> None:
        self.log.check_invariants()
        assert self.gate.is_blocked == (self in self.context.blocked)
        for subscription, reading in self.readings.items():
            assert subscription.is_closed or subscription.readings[self] is reading
            if not subscription.is_closed:
                reading.check_invariants()
        self.window.check_invariants()
        assert self.collected_up_to <= self.log.end_offset
        self.collected.check_invariants()
        if self.retained is not None:
            self.retained.check_invariants()
