"""One topic: its log, who reads it, and whether its publishers are held back; and what all topics share.

Law: state only; `appending` adds messages, its window drops them. A topic is *stored* while somebody could need its
messages later: then everything published to it goes through the journal. It is *in the store* from the first time on
until it is removed. It has many methods since the log, the window, the readings and the store all meet here.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, InitVar, dataclass, field
from typing import TYPE_CHECKING, Final, final

from stompbroker.clock import NANOSECONDS
from stompbroker.commitlog import Cursor, Log, OffsetRanges
from stompbroker.counting import SECONDS_BOUNDS, Histogram
from stompbroker.delivery.destination import DestinationKind, PatternTree
from stompbroker.delivery.reading import Reading
from stompbroker.delivery.retained import Retained
from stompbroker.delivery.telling import Telling
from stompbroker.delivery.window import Window
from stompbroker.ids import FIRST_OFFSET, Offset
from stompbroker.signals import Signal

if TYPE_CHECKING:
    from stompbroker.delivery.accounting import Records
    from stompbroker.delivery.consumer import Unanswered
    from stompbroker.delivery.destination import Pattern
    from stompbroker.delivery.pages import Pages
    from stompbroker.delivery.policy import TopicPolicy
    from stompbroker.delivery.reading import Waiting
    from stompbroker.delivery.subscription import Subscription
    from stompbroker.delivery.timetable import Timetable
    from stompbroker.ids import ConnectionId
    from stompbroker.memory_budget import MemoryBudget


#: Deliveries that may be settled before their cursors are written at once.
MANY_RECORDS: Final = 500


@final
@dataclass(slots=True, eq=False)
class Gate:
    """Whether publishers may go on. A topic closes its own while its window is full; the journal closes one for all
    stored topics while it has too much to write, or nowhere to write it."""

    is_blocked: bool = False
    unblocked: Signal = field(default_factory=Signal)
    #: While it is closed: the reason, for whoever is held back.
    why: str = ""
    #: Whether it opens when consumers have made room; otherwise there is nothing they could do.
    waits_for_consumers: bool = False
    #: Whether that has taken too long: publishers are refused.
    is_overdue: bool = False

    def close(self, why: str, *, waits_for_consumers: bool) -> None:
        self.is_blocked = True
        self.why = why
        self.waits_for_consumers = waits_for_consumers

    def open(self) -> None:
        if self.is_blocked:
            self.is_blocked = self.is_overdue = False
            self.unblocked.wake()

    def refuse(self) -> None:
        """Whoever is held back by it is refused now, until `is_overdue` is taken back."""
        self.is_overdue = True
        self.unblocked.wake()


@final
@dataclass(slots=True, eq=False)
class DeliveryTimes:
    """How long deliveries take, over all topics; filled once per run."""

    #: Seconds from publication to the first time a message is handed to a consumer's outbox.
    to_delivery: Histogram = field(default_factory=lambda: Histogram(SECONDS_BOUNDS))
    #: Seconds from there to its acknowledgement.
    to_acknowledgement: Histogram = field(default_factory=lambda: Histogram(SECONDS_BOUNDS))

    def note_delivered(self, published_at_ns: int, now_ns: int, count: int) -> None:
        self.to_delivery.add((now_ns - published_at_ns) / NANOSECONDS, count)

    def note_acknowledged(self, sent_at_ns: int, now_ns: int, count: int) -> None:
        self.to_acknowledgement.add((now_ns - sent_at_ns) / NANOSECONDS, count)


@final
@dataclass(slots=True, eq=False)
class Unsaved:
    """What has changed in memory since the store was last told. It names what changed, not how: the journal reads the
    state when it writes it, so ten thousand ACKs are one row.

    Invariants:
        every reading and subscription in it is a durable one
        `filled` was woken when the first thing was noted (unless `is_looked_at`), and when it became pressing
    """

    readings: dict[Reading, None] = field(default_factory=dict)
    subscriptions: dict[Subscription, None] = field(default_factory=dict)
    #: Topics some of whose stored messages may be settled by everybody.
    collectable: dict[Topic, None] = field(default_factory=dict)
    #: Store ids of topics, and of queues' subscriptions, that are gone.
    removed_topics: list[int] = field(default_factory=list)
    removed_subscriptions: list[int] = field(default_factory=list)
    #: How many deliveries were settled or refused since the last write.
    records: int = 0
    filled: Signal = field(default_factory=Signal)
    #: Whether the journal looks soon by itself and need not be woken.
    is_looked_at: bool = False

    def __bool__(self) -> bool:
        return bool(self.readings or self.subscriptions or self.removed_topics or self.removed_subscriptions)

    @property
    def is_pressing(self) -> bool:
        """Whether so much has changed that it should be written at once."""
        return self.records >= MANY_RECORDS

    def note_reading(self, reading: Reading, records: int) -> None:
        """A durable subscription has settled, or moved by, so many deliveries; or the ledger lacks a record of it."""
        is_pressing_now = self.records < MANY_RECORDS <= self.records + records
        if is_pressing_now or not (self or self.is_looked_at):
            self.filled.wake()
        self.readings[reading] = None
        self.records += records

    def note_subscription(self, subscription: Subscription) -> None:
        """The row of a durable subscription has changed."""
        self.subscriptions[subscription] = None
        self.filled.wake()

    def note_removed_topic(self, topic: Topic, store_id: int) -> None:
        self.removed_topics.append(store_id)
        self.collectable.pop(topic, None)
        self.filled.wake()

    def note_removed_subscription(self, store_id: int) -> None:
        self.removed_subscriptions.append(store_id)
        self.filled.wake()

    def take(self) -> tuple[list[Reading], list[Subscription]]:
        readings, subscriptions = list(self.readings), list(self.subscriptions)
        self.readings, self.subscriptions = {}, {}
        self.records = 0
        return readings, subscriptions

    def take_removed(self) -> tuple[list[int], list[int]]:
        """Topics, and subscriptions."""
        removed = self.removed_topics, self.removed_subscriptions
        self.removed_topics, self.removed_subscriptions = [], []
        return removed


@dataclass(slots=True, eq=False, repr=False, kw_only=True)
class TopicContext:
    """What all topics of a broker share; the registry is one."""

    budget: MemoryBudget
    #: Wildcard subscriptions that have begun, durable or not.
    patterns: PatternTree[Subscription] = field(default_factory=PatternTree)
    #: All durable subscriptions, exact ones too: topics that match one are stored.
    durable_patterns: PatternTree[Subscription] = field(default_factory=PatternTree)
    #: Topics whose publishers are held back.
    blocked: dict[Topic, None] = field(default_factory=dict)
    pages: Pages
    unsaved: Unsaved = field(default_factory=Unsaved)
    #: Messages set aside until then; deliveries that must be answered until then.
    redeliveries: Timetable[Waiting]
    deadlines: Timetable[Unanswered]
    times: DeliveryTimes = field(default_factory=DeliveryTimes)
    telling: Telling = field(default_factory=Telling)
    #: Samples of transient deliveries for the ledger; None without a ledger.
    records: Records | None
    #: Whether there is a store: otherwise nothing can be retained.
    can_store: bool


@final
@dataclass(slots=True, eq=False, repr=False)
class Topic:
    """
    Invariants:
        the size of the log is charged to the memory budget
        the gate is closed exactly when the topic is in the registry's set of blocked topics
        a reading of a subscription that has closed is ignored, and removed at the next refresh
    """

    destination: Pattern
    policy: TopicPolicy
    context: TopicContext
    now_ns: InitVar[int]
    _: KW_ONLY
    next_offset: InitVar[Offset] = FIRST_OFFSET
    name: str = field(init=False)
    budget: MemoryBudget = field(init=False)
    log: Log = field(init=False)
    readings: dict[Subscription, Reading] = field(default_factory=dict)
    window: Window[Reading] = field(init=False)
    published: int = 0
    published_bytes: int = 0
    #: Connections that are known to publish here, each with all topics it is noted for.
    publishers: dict[ConnectionId, dict[Topic, None]] = field(default_factory=dict)
    last_used_at_ns: int = field(init=False)
    is_removed: bool = False
    #: Whether it is a queue whose group is being deleted: it gets another one before anything is sent to it.
    is_orphaned: bool = False
    #: Closed while publishers are held back.
    gate: Gate = field(default_factory=Gate)
    #: While blocked: when the slowest reading last moved, and where it stands.
    progress_at_ns: int = field(init=False)
    pinned_at: Offset = FIRST_OFFSET
    #: Its number in the store, if it is there.
    store_id: int | None = None
    #: The end of the topic as far as the store knows.
    stored_end: Offset = field(init=False)
    #: From here on every gap in the store is written down; older stores did not keep that account.
    whole_from: Offset = FIRST_OFFSET
    #: Whether there may be messages that expire, or that not everybody gets.
    is_choosy: bool = False
    #: Whether there may be messages in its log whose publishers want to be told what becomes of them.
    is_asking: bool = False
    #: The store has nothing below this offset, and nothing in these ranges.
    collected_up_to: Offset = field(init=False)
    collected: OffsetRanges = field(default_factory=OffsetRanges)
    #: Ranges above the lowest ack floor that everybody has settled: the journal deletes them.
    between_holes: list[tuple[int, int]] = field(default_factory=list)
    #: What is kept for later subscribers; None if nothing is.
    retained: Retained | None = None
    #: Units on their way through the journal that publish here.
    pending_units: int = 0
    #: The version of the patterns at the last look for new ones, and for closed ones.
    matched_version: int = -1
    _forgotten_version: int = -1
    #: The answer of `is_stored`, and the version of the durable subscriptions it is for.
    _is_stored: bool = False
    _durable_version: int = -1

    def __post_init__(self, now_ns: int, next_offset: Offset) -> None:
        self.name = self.destination.name
        self.budget = self.context.budget
        self.log = Log(next_offset)
        self.window = Window(self.log, self.readings, self.policy, self.budget)
        self.last_used_at_ns = self.progress_at_ns = now_ns
        self.stored_end = self.collected_up_to = next_offset
        if self.policy.retention and self.context.can_store and not self.is_queue:
            self.retained = Retained(self.policy.retention)

    # Storing ---------------------------------------------------------------------------------------------------------

    @property
    def is_stored(self) -> bool:
        """Whether what is published here must go through the journal."""
        durable = self.context.durable_patterns
        if self._durable_version != durable.version:
            self._durable_version = durable.version
            self._is_stored = self.retained is not None or bool(durable.match(self.destination))
        return self._is_stored

    @property
    def is_gone(self) -> bool:
        """Whether it must be looked up again before anything is published."""
        return self.is_removed or self.is_orphaned

    @property
    def is_queue(self) -> bool:
        return self.destination.kind is DestinationKind.QUEUE

    @property
    def is_of_dead_letters(self) -> bool:
        return self.destination.is_of_dead_letters

    @property
    def is_in_store(self) -> bool:
        return self.store_id is not None

    def enter_store(self, store_id: int) -> None:
        """It has a place in the store from now on; messages already in the log are not stored."""
        self.store_id = store_id
        self.collected_up_to = self.stored_end = self.log.end_offset
        self.window.enter_store()

    def page(self, offset: Offset) -> Log | None:
        """What the store has from `offset` on; None if that has to be read first."""
        assert self.is_in_store, f"offset {offset} of {self.name} is unsettled but not kept"
        return self.context.pages.find(self, offset)

    @property
    def stored_messages(self) -> int:
        """An upper bound of the messages in the store: some offsets in between may have none."""
        return self.log.end_offset - self.collected_up_to - self.collected.count if self.is_in_store else 0

    # Readings --------------------------------------------------------------------------------------------------------

    def add_reading(self, subscription: Subscription, cursor: Cursor | None = None) -> Reading:
        """`subscription` reads from where it stood or asked to begin, or else new messages only."""
        replay = subscription.starts_at
        position = self.log.end_offset if replay is None else min(replay.start, self.log.end_offset)
        reading = Reading(subscription, self, cursor or Cursor(position))
        if replay is not None:
            # One that has read on was told before what is missing.
            is_at_start = reading.cursor.next_offset <= replay.start
            reading.replay = replay if is_at_start else replay._replace(asked_for=None, is_whole=True)
        self.readings[subscription] = reading
        subscription.readings[self] = reading
        return reading

    def remove_reading(self, subscription: Subscription, now_ns: int) -> None:
        """The next trim drops what was kept for it."""
        self.readings.pop(subscription).remembered.clear()
        self.last_used_at_ns = now_ns
        self.note_collectable()

    def refresh_readings(self) -> None:
        """Add readings of wildcard subscriptions that are new, and drop those that have gone. Runs before the first
        append after a change, so a new wildcard subscription costs nothing in topics where nothing is published."""
        self.matched_version = self.context.patterns.version
        self.forget_closed_readings()
        for subscription in self.context.patterns.match(self.destination):
            if subscription not in self.readings:
                self.add_reading(subscription)

    def forget_closed_readings(self) -> None:
        if self._forgotten_version == self.context.patterns.version:
            return
        self._forgotten_version = self.context.patterns.version
        closed = [subscription for subscription in self.readings if subscription.is_closed]
        for subscription in closed:
            self.readings.pop(subscription).remembered.clear()
        if closed:
            self.note_collectable()

    def note_collectable(self) -> None:
        """Perhaps the store can delete something."""
        if self.is_in_store and self.collected_up_to < self.log.end_offset:
            self.context.unsaved.collectable[self] = None

    def remove(self) -> None:
        """Cut all references to and from it, so that it is freed at once."""
        self.is_removed = True
        for subscription, reading in self.readings.items():
            subscription.to_read.remove(reading)
            subscription.readings.pop(self, None)
            reading.remembered.clear()
        self.readings.clear()
        for noted in self.publishers.values():
            noted.pop(self, None)
        self.publishers.clear()

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
