"""What somebody wants to receive, whether or not anybody is connected for it; and who is served next.

Law: a subscription owns its readings (one per topic), its wishes and its counters; consumers attach to it, and the
registry decides how many may. A transient subscription ends with its consumer; a durable one stays until it is deleted.
Queues are first in, first out, and nobody stands in one twice.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, fields
from enum import Enum
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Protocol, final
from zlib import crc32

from stompbroker.delivery.destination import DestinationKind
from stompbroker.delivery.policy import DeliveryWishes
from stompbroker.signals import Signal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stompbroker.delivery.consumer import Consumer
    from stompbroker.delivery.destination import Pattern
    from stompbroker.delivery.identity import Durability, Identity
    from stompbroker.delivery.reading import Reading
    from stompbroker.delivery.retained import Replay
    from stompbroker.delivery.topic import Topic
    from stompbroker.ids import ConnectionId


@final
@dataclass(slots=True, eq=False)
class ReadingQueue:
    """The readings of one subscription that have something to send; each gets a slice in turn.

    Invariants:
        reading.listed_in is _token exactly if the reading is in the queue
    """

    #: Written here only; whoever asks whether there are any looks at it.
    readings: deque[Reading] = field(default_factory=deque)
    #: Stands for the queue in its readings, until it is cleared: then none of them has to be touched.
    _token: object = field(default_factory=object)

    def put(self, reading: Reading) -> None:
        if reading.listed_in is not self._token:
            reading.listed_in = self._token
            self.readings.append(reading)

    def remove(self, reading: Reading) -> None:
        """Nothing to do if it is not in it."""
        if reading.listed_in is self._token:
            reading.listed_in = None
            if self.readings[-1] is reading:  # as it is when it was just served
                self.readings.pop()
            else:
                self.readings.remove(reading)

    def count_up_to(self, limit: int) -> int:
        """How many messages they have to send; beyond `limit`, perhaps not all of them."""
        count = 0
        for reading in self.readings:
            count += reading.new_count + reading.again_count
            if count >= limit:
                break
        return count

    def clear(self) -> None:
        if self.readings:
            self.readings.clear()
            self._token = object()

    def next(self, *, only_again: bool) -> Reading | None:
        """The one whose turn it is; if `only_again`, of those that have something to send once more."""
        for _ in range(len(self.readings)):
            reading = self.readings.popleft()
            if not reading.has_more:
                reading.listed_in = None
                continue
            self.readings.append(reading)
            if not only_again or reading.cursor.free_count:
                return reading
        return None

    def put_back(self, reading: Reading) -> None:
        """It was next, and is so again. Nothing to do if it is not in the queue."""
        if self.readings and self.readings[-1] is reading:
            self.readings.rotate(1)

    def check_invariants(self, readings: Iterable[Reading]) -> None:
        listed = [reading for reading in readings if reading.listed_in is self._token]
        assert len(listed) == len(self.readings)
        assert set(map(id, listed)) == set(map(id, self.readings))


@final
@dataclass(slots=True, eq=False)
class ReadyQueue:
    """The consumers that could be sent something now, and the blocked topics that were delivered from. The distributor
    is woken unless a turn is about to be taken anyway (`is_attended`).

    Invariants:
        consumer.is_queued == (consumer is in the queue)
    """

    #: Written here only; who takes turns looks at it.
    consumers: deque[Consumer] = field(default_factory=deque)
    _filled: Signal = field(default_factory=Signal)
    _moved: dict[Topic, None] = field(default_factory=dict)
    is_attended: bool = False
    #: How often `wait` was satisfied, for the guard that counts wake-ups per message.
    wake_ups: int = 0

    def __len__(self) -> int:
        return len(self.consumers)

    @property
    def has_work(self) -> bool:
        """Whether a turn would do anything."""
        return bool(self.consumers or self._moved)

    def put(self, consumer: Consumer) -> None:
        if not consumer.is_queued:
            consumer.is_queued = True
            self.consumers.append(consumer)
            if not self.is_attended:
                self._filled.wake()

    def take(self) -> Consumer:
        consumer = self.consumers.popleft()
        consumer.is_queued = False
        return consumer

    def leave(self) -> None:
        """Nobody attends any more; who is still ready is left to the distributor."""
        self.is_attended = False
        if self.consumers:
            self._filled.wake()

    def note_moved(self, topic: Topic) -> None:
        """Something was delivered from a blocked topic."""
        self._moved[topic] = None

    def take_moved(self) -> Iterable[Topic]:
        """The blocked topics that were delivered from since the last call: perhaps their publishers can go on."""
        moved, self._moved = self._moved, {}
        return moved

    async def wait(self) -> None:
        """Until a consumer is ready."""
        while not self.consumers:
            await self._filled.wait()
        self.wake_ups += 1


NO_WISHES: Final = DeliveryWishes({})


@final
class AckMode(Enum):
    AUTO = "auto"
    CLIENT = "client"
    INDIVIDUAL = "client-individual"


@final
@dataclass(slots=True, eq=False)
class Counters:
    """Written on the hot path once per run, and read for statistics."""

    #: Settled by ACK, or by having been sent in `auto` mode: of a transient subscription, put into the outbox.
    acked: int = 0
    #: Failed as often as they may, or refused for good: put with the dead letters, or not (`discarded`).
    dead: int = 0
    #: Deliveries handed to the outbox, redeliveries included.
    delivered: int = 0
    discarded: int = 0
    #: Given up because the subscriber was too slow.
    dropped: int = 0
    #: Not delivered, or not again, because their time was over.
    expired: int = 0
    #: Answers that came late: to a message that waited, had been sent again or was settled already.
    late: int = 0
    nacked: int = 0
    #: Not answered within the deadline.
    overdue: int = 0
    redelivered: int = 0

    def values(self) -> tuple[int, ...]:
        """All of them, in the order of `COUNTER_NAMES`."""
        counts: tuple[int, ...] = _counts_of(self)
        return counts


COUNTER_NAMES: Final = tuple(each.name for each in fields(Counters))
_counts_of: Final = attrgetter(*COUNTER_NAMES)


class Browser(Protocol):
    """What a subscription does that looks at a queue and takes nothing (`browsing`)."""

    def __bool__(self) -> bool:
        """Whether its consumer can be shown something now."""

    def begin(self, group: Reading | None) -> None: ...

    def deliver_slice(self, consumer: Consumer, now_ns: int) -> None: ...


class Greeting(Protocol):
    """What newcomers are shown first (`last_values`)."""

    def deliver_slice(self, consumer: Consumer, now_ns: int) -> None: ...


@final
@dataclass(slots=True, eq=False, repr=False, kw_only=True)
class Subscription:
    """
    Invariants:
        waiting == sum of the waiting offsets of all its readings, and pending that of the pending ones
        readings[topic] is topic.readings[self] for every topic that knows of it
    """

    #: The id in its latest SUBSCRIBE; in STOMP 1.0 there may be none.
    name: str | None
    #: As the subscriber wrote it.
    destination: str
    pattern: Pattern
    ack_mode: AckMode
    #: Whether messages from its own connection are kept from it.
    is_no_local: bool
    #: Whether later messages wait behind a refused one.
    is_ordered: bool = False
    #: Whether it is a group: several consumers may attach, and each message goes to one of them. If it is exclusive,
    #: that is always the one that has been there for longest.
    is_shared: bool = False
    is_exclusive: bool = False
    #: How a group that is not stored is known, and its number: one that ends with its last member, or a queue's.
    transient_group: tuple[Identity, int] | None = None
    wishes: DeliveryWishes = NO_WISHES
    #: For one that only looks at a queue: then no topic knows it, and it has no readings.
    browser: Browser | None = None
    #: The last values that it is still to be shown, before anything else.
    greeting: Greeting | None = None
    durability: Durability | None = None
    #: Where it begins in its topic; None for new messages only.
    starts_at: Replay | None = None
    #: The connection it is, or was last, attached to; that connection's name as a publisher; its address.
    connection_id: ConnectionId | None = None
    connection_name: str = ""
    peer: str = ""
    readings: dict[Topic, Reading] = field(default_factory=dict)
    #: The readings that have something to send; empty while nobody is attached.
    to_read: ReadingQueue = field(default_factory=ReadingQueue)
    consumers: dict[Consumer, None] = field(default_factory=dict)
    counters: Counters = field(default_factory=Counters)
    #: Messages set aside, and messages pending, over all topics.
    waiting: int = 0
    pending: int = 0
    #: Whether it gets what is published from now on.
    has_begun: bool = False
    is_closed: bool = False
    #: Whether its removal is on its way to the store.
    is_leaving: bool = False
    #: Whether an operator has paused it; a restart forgets that.
    is_paused: bool = False

    @property
    def is_durable(self) -> bool:
        return self.durability is not None

    @property
    def tells_outcomes(self) -> bool:
        """Whether publishers that ask are told how their messages end here: not by transient subscriptions."""
        return self.durability is not None or self.is_shared

    @property
    def is_queue(self) -> bool:
        """Whether its consumers are those of a queue. It is there as long as the queue, also without a store."""
        return self.pattern.kind is DestinationKind.QUEUE and self.browser is None

    @property
    def is_ordered_by_key(self) -> bool:
        """Whether of the messages with one key one at a time is in flight. A single consumer has an order anyway."""
        return self.is_shared and not self.is_exclusive

    def share(self, *, is_shared: bool, is_exclusive: bool) -> None:
        """As its next consumers want it; nobody is attached."""
        was_ordered_by_key = self.is_ordered_by_key
        self.is_shared, self.is_exclusive = is_shared, is_exclusive
        if self.is_ordered_by_key is not was_ordered_by_key:
            for reading in self.readings.values():
                reading.change_order()

    @property
    def begins_with_values(self) -> bool:
        """Whether it is shown last values when it is new. Members of a group share messages, and values are none; who
        asks where to begin reads them as messages."""
        is_other = self.is_shared or self.browser is not None or self.starts_at is not None
        return self.pattern.kind is DestinationKind.TOPIC and not is_other

    @property
    def identity(self) -> Identity | None:
        return None if self.durability is None else self.durability.identity

    @property
    def public_id(self) -> str:
        """Its unique name for programs, fit for a URL."""
        if self.durability is not None:
            return f"d{self.durability.store_id:x}"
        if self.transient_group is not None:
            return f"g{self.transient_group[1]}"
        return f"t{self.connection_id}-{0 if self.consumer is None else self.consumer.ordinal}"

    @property
    def consumer(self) -> Consumer | None:
        """The one that has been attached for longest; the only one, unless it is shared."""
        return next(iter(self.consumers), None)

    @property
    def in_flight(self) -> int:
        return sum(consumer.in_flight for consumer in self.consumers)

    @property
    def held_up(self) -> int:
        """How many messages wait behind another one of their key."""
        return sum(reading.cursor.held_up_count for reading in self.readings.values())

    @property
    def keys_held_up(self) -> int:
        """How many keys have such messages."""
        return sum(reading.lines.keys_held_up for reading in self.readings.values() if reading.lines is not None)

    @property
    def jitter_seed(self) -> int:
        """Spreads its retries; a durable subscription has the same seed after a restart."""
        return crc32(self.public_id.encode())

    @property
    def store_id(self) -> int | None:
        """Its number in the store, if it is durable."""
        return None if self.durability is None else self.durability.store_id

    @property
    def key(self) -> str:
        """Its name for people."""
        if self.transient_group is not None:
            return self.transient_group[0].key
        return str(self.name) if self.durability is None else self.durability.identity.key

    @property
    def backlog(self) -> int:
        """How many messages it has still to get, for the first time or again."""
        return sum(reading.backlog for reading in self.readings.values())

    def resume(self) -> None:
        self.is_paused = False
        self.wake()

    def offer(self, reading: Reading) -> None:
        """This reading has something to send: wake the consumers that may receive. Of a group, not more of them than
        there are messages, beginning with the one that has been waiting for longest."""
        if self.consumers and reading.missing is None:
            self.to_read.put(reading)
            if self.is_shared and len(self.consumers) > 1:
                self._wake_some(reading.new_count + reading.again_count)
            else:
                for consumer in self.consumers:
                    consumer.wake()

    def wake(self) -> None:
        """Its consumers may be able to receive now."""
        for consumer in self.consumers:
            if not consumer.is_queued:
                consumer.wake()

    def pass_on(self) -> None:
        """One that was woken for a message cannot take it, or no more of them: others of its group are."""
        if self.is_shared and self.to_read.readings and len(self.consumers) > 1:
            self._wake_some(self.to_read.count_up_to(len(self.consumers)))

    def wake_others(self, consumer: Consumer) -> None:
        for each in self.consumers:
            if each is not consumer and not each.is_queued:
                each.wake()

    def _wake_some(self, count: int) -> None:
        for consumer in self.consumers:
            if not consumer.is_queued:
                consumer.wake()
            count -= consumer.is_queued
            if count <= 0:
                return

    def note_served(self, consumer: Consumer) -> None:
        """It got something: others are next."""
        if self.is_shared and not self.is_exclusive and consumer in self.consumers:
            del self.consumers[consumer]
            self.consumers[consumer] = None

    def leave(self, consumer: Consumer) -> None:
        del self.consumers[consumer]
        if not self.consumers:
            self.to_read.clear()

    @property
    def unsettled(self) -> int:
        """Its backlog, what is in flight, and what is pending."""
        return self.pending + sum(reading.backlog + reading.cursor.in_flight for reading in self.readings.values())

    @property
    def may_go_again(self) -> bool:
        """Whether sent messages must be kept until they are settled: in `auto` mode nothing goes again."""
        return self.is_shared or self.ack_mode is not AckMode.AUTO
