"""One subscription reads one topic.

Law: pairs a cursor with the topic's log and keeps what neither can know: messages that left the log's window unsettled
and that no store has, how often each has failed, who has what in flight. All of it moves together with the cursor.

It has many methods since all who look at a subscription's place in a topic ask here. What is done with it is elsewhere:
`appending`, `sending`, `answering`, `withdrawing`, `collecting`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple, final

from stompbroker.commitlog import OffsetRanges
from stompbroker.delivery.accounting import Unrecorded, account_of
from stompbroker.delivery.reading_notes import Owners, Range, Remembered, offsets_between
from stompbroker.ids import Offset
from stompbroker.ledger.records import Outcome, Party

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from stompbroker.commitlog import Claimed, Cursor, Log, Settlement
    from stompbroker.delivery.consumer import Consumer
    from stompbroker.delivery.policy import DeliveryPolicy, Failure
    from stompbroker.delivery.retained import Replay
    from stompbroker.delivery.subscription import Subscription
    from stompbroker.delivery.topic import Topic
    from stompbroker.message import Message

_origin_of: Final = attrgetter("origin")


@final
@dataclass(slots=True, eq=False)
class Selection:
    """Which messages a subscriber gets: not those for one other subscription alone, nor its own if it wants none.
    Hot path: mostly all messages of a run have one origin, and one look at it is enough."""

    #: The subscriber's number in the store, if it has one.
    _number: int | None
    #: The subscriber's name as a publisher, if it does not want its own messages.
    _own: str | None

    def takes_all(self, messages: Sequence[Message]) -> bool:
        """Whether the origins alone say that the subscriber gets every one of them."""
        own = self._own
        return all(
            origin.is_for_all_and_ever and (own is None or origin.publisher != own)
            for origin in set(map(_origin_of, messages))
        )

    def takes(self, message: Message) -> bool:
        """Whether the message is for the subscriber, unless it has expired."""
        only_for, own = message.origin.only_for, self._own
        return (only_for is None or only_for == self._number) and (own is None or message.origin.publisher != own)

    def meant_within(self, log: Log, ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """The ranges, without the messages of the log that are not for the subscriber."""
        foreign = OffsetRanges()
        for start, stop in ranges:
            position = start
            while position < stop:
                first, messages = log.read(position, stop - position)
                for offset, message in enumerate(messages, first):
                    if not self.takes(message):
                        foreign.add(offset, offset + 1)
                position = first + max(1, len(messages))
        return [gap for start, stop in ranges for gap in foreign.gaps(start, stop)]


class Found(NamedTuple):
    """What is at an offset: a message, or nothing. Not known if the store has to be asked first."""

    message: Message | None
    is_known: bool


class Waiting(NamedTuple):
    """A message that was set aside."""

    reading: Reading
    offset: Offset


@final
@dataclass(slots=True, eq=False, repr=False)
class Reading:
    """
    Invariants:
        every unsettled sent message that may have to go again is in the log, in the store, or held in `remembered`
        failures and what is remembered are of unsettled offsets only
        every settled message of a durable subscription is in `unrecorded` once, or in the ledger, unless it was lost
    """

    subscription: Subscription
    topic: Topic
    cursor: Cursor
    remembered: Remembered = field(init=False)
    failures: dict[Offset, Failure] = field(default_factory=dict)
    #: Where `failures` differs from the store, oldest change first; only for durable subscriptions.
    changed_failures: dict[Offset, None] = field(default_factory=dict)
    #: The offset that must be read from the store before anything more can be sent.
    missing: Offset | None = None
    #: How often an operator moved it to another place.
    generation: int = 0
    #: Answers that met something pending (see `answering`), and the offsets of those outside of transactions: at most
    #: one for each unit on its way and each pending message; mostly None.
    deferred: list[Callable[[], None]] | None = None
    deferred_settling: OffsetRanges | None = None
    #: What the ledger has yet to get; only for durable subscriptions.
    unrecorded: Unrecorded = field(default_factory=Unrecorded)
    #: Where it asked to begin, until its first message is sent; None for new messages only.
    replay: Replay | None = None
    #: The message that said that something is missing, and below which offset it is.
    told_missing: tuple[Offset, Offset] | None = None
    #: The queue of readings it stands in; that queue sets it.
    listed_in: object = None
    owners: Owners[Consumer] = field(default_factory=Owners)

    def __post_init__(self) -> None:
        self.remembered = Remembered(self.topic.budget)

    @property
    def policy(self) -> DeliveryPolicy:
        return self.subscription.wishes.laid_over(self.topic.policy.delivery)

    @property
    def log(self) -> Log:
        return self.topic.log

    @property
    def is_recorded(self) -> bool:
        """Whether the ledger gets every message."""
        return self.topic.context.records is not None and self.subscription.is_durable

    @property
    def is_connected(self) -> bool:
        """Whether the window keeps for it what no store has. A queue does so without consumers."""
        return bool(self.subscription.consumers) or self.subscription.is_queue

    @property
    def party(self) -> Party:
        """Whose deliveries these are, for the ledger."""
        subscription, identity = self.subscription, self.subscription.identity
        if identity is None:
            name = "" if subscription.name is None else subscription.name
            # Clients choose the ids of transient subscriptions, each for itself.
            key, client_id = f"{subscription.connection_name}#{name}", None
        else:
            key, name, client_id = identity.key, identity.name, identity.client_id
        return Party(
            topic=self.topic.name,
            subscription=key,
            client_id=client_id,
            subscription_name=name,
            is_durable=identity is not None,
            ack_mode=subscription.ack_mode.value,
            generation=self.generation,
            kind=self.topic.destination.kind.value,
        )

    # What is left to do ----------------------------------------------------------------------------------------------

    @property
    def has_more(self) -> bool:
        """Whether there is anything to send, for the first time or again."""
        return self.cursor.free_count > 0 or self.cursor.next_offset < self.topic.log.end_offset

    @property
    def is_idle(self) -> bool:
        return self.cursor.ack_floor == self.topic.log.end_offset

    @property
    def is_all_in_flight(self) -> bool:
        """Whether everything sent and unsettled is in flight."""
        return not self.cursor.waiting_count and not self.cursor.free_count

    @property
    def unsent(self) -> int:
        return self.cursor.unsent_count(self.topic.log.end_offset)

    @property
    def backlog(self) -> int:
        """How many messages are still to be sent, for the first time or again."""
        return self.unsent + self.cursor.free_count + self.cursor.waiting_count

    @property
    def unsettled(self) -> int:
        """How many messages it has not settled, sent or not."""
        return self.unsent + self.cursor.next_offset - self.cursor.ack_floor - self.cursor.settled_above

    @property
    def _reads_from_store(self) -> bool:
        """Nobody is attached: whoever returns reads from the store, and the window need not keep anything."""
        return not self.is_connected and self.topic.is_in_store

    @property
    def lowest_needed(self) -> Offset:
        """The log may drop everything below it."""
        if self._reads_from_store:
            return self.topic.log.end_offset
        needs_sent = self.subscription.may_go_again or self.is_recorded
        return self.cursor.ack_floor if needs_sent else self.cursor.next_offset

    def unsettled_ranges(self) -> list[tuple[int, int]]:
        """The offsets that must be kept for it."""
        cursor, end = self.cursor, self.topic.log.end_offset
        return cursor.unsettled(cursor.ack_floor, end) + cursor.unsent(end)

    def unclaimed_ranges(self) -> list[tuple[int, int]]:
        """The same without what is pending."""
        cursor, end = self.cursor, self.topic.log.end_offset
        return cursor.unclaimed(cursor.ack_floor, end) + cursor.unsent(end)

    def unsent_ranges(self) -> list[tuple[int, int]]:
        """The offsets that the window must keep for it."""
        return [] if self._reads_from_store else self.cursor.unsent(self.topic.log.end_offset)

    def get(self, offset: Offset) -> Found:
        """What is at an unsettled offset."""
        message = self.remembered.get(offset) or self.topic.log.get(offset)
        if message is not None or not self.topic.is_in_store:
            return Found(message, is_known=True)
        page = self.topic.page(offset)
        return Found(None, is_known=False) if page is None else Found(page.get(offset), is_known=True)

    def ask_for(self, offset: Offset) -> None:
        """Send nothing more until the store has said what is at `offset`."""
        self.missing = offset
        self.topic.context.pages.call_when_read(self.topic, offset, self._resume)

    def _resume(self) -> None:
        self.missing = None
        self.subscription.offer(self)

    def is_waiting(self, offset: Offset) -> bool:
        return self.cursor.is_waiting(offset) and not self.subscription.is_closed

    def is_used_up(self, offset: Offset) -> bool:
        failure = self.failures.get(offset)
        return failure is not None and failure.is_used_up(self.policy)

    def is_in_flight_to(self, consumer: Consumer, offset: int, number: int) -> bool:
        """Whether it is in flight to this consumer, and not sent again to it under a number above `number`."""
        is_in_flight = self.owners.has(consumer, offset) and self.cursor.is_in_flight(offset)
        return is_in_flight and not self.was_sent_again(offset, after=number)

    def was_sent_again(self, offset: int, *, after: int) -> bool:
        failure = self.failures.get(Offset(offset))
        return failure is not None and failure.last_number > after

    def first_sent_ns(self, offset: Offset) -> int | None:
        """When an unsettled message was sent for the first time, if that is known."""
        failure = self.failures.get(offset)
        if failure is not None and failure.first_attempt_ns:
            return failure.first_attempt_ns
        return self.remembered.first_sent_ns(offset)

    def known_one_by_one(self, start: int, stop: int) -> list[Offset]:
        """The unsettled offsets of which more is known than that they were sent with others; sorted."""
        found = self.remembered.first_sent_between(start, stop)
        if self.failures:
            found += offsets_between(self.failures, start, stop)
        return sorted(set(found)) if found else found

    # Settling --------------------------------------------------------------------------------------------------------

    def settle(
        self,
        start: int,
        stop: int,
        outcome: Outcome,
        settled_at_ns: int,
        *,
        sent_at_ns: int = 0,
        member: str | None = None,
    ) -> Settlement:
        """Settle these offsets, none of them pending, in whatever state they are; those in flight were sent then."""
        if self.topic.context.records is not None:
            self.record(self.cursor.unsettled(start, stop), outcome, settled_at_ns, sent_at_ns, member)
        return self.settle_unrecorded(start, stop)

    def settle_unrecorded(self, start: int, stop: int) -> Settlement:
        """The same without a record of it."""
        settlement = self.cursor.settle(start, stop)
        if self.failures:
            self.note_failures_changed(self._forget_failures(start, stop))
        self.remembered.forget(start, stop)
        self.note_moved(settlement.total)
        return settlement

    def settle_claimed(self, claimed: Claimed) -> None:
        """The same for what was pending, and is settled in the store."""
        self.cursor.settle_claimed(claimed)
        for start, stop in claimed.ranges:
            self._forget_failures(start, stop)
            self.remembered.forget(start, stop)
        self.note_moved(claimed.total)

    def _forget_failures(self, start: int, stop: int) -> list[Offset]:
        settled = offsets_between(self.failures, start, stop)
        for offset in settled:
            del self.failures[offset]
        return settled

    def step_over(self, stop: int) -> None:
        """What is unsent below `stop` will never be sent: it is settled."""
        if stop > self.cursor.next_offset:
            self.cursor.step_over(stop)
            self.note_moved(1)

    def note_moved(self, deliveries: int) -> None:
        """So many deliveries changed: tell the store, if it knows this topic. Perhaps something can be collected."""
        topic = self.topic
        if topic.is_in_store:
            topic.context.unsaved.collectable[topic] = None
            if self.subscription.is_durable:
                topic.context.unsaved.note_reading(self, deliveries)

    def note_failures_changed(self, offsets: Iterable[Offset]) -> None:
        if self.subscription.is_durable:
            changed = dict.fromkeys(offsets)
            if changed:
                self.changed_failures.update(changed)
                self.note_moved(len(changed))

    def record(
        self, ranges: list[Range], outcome: Outcome, settled_at_ns: int, sent_at_ns: int = 0, member: str | None = None
    ) -> None:
        """Tell the ledger of messages that are about to be settled."""
        records = self.topic.context.records
        if records is None:
            return
        if not self.subscription.is_durable:
            records.sample(self, ranges, outcome, settled_at_ns, sent_at_ns, member)
            return
        self.unrecorded.add(account_of(self, ranges, outcome, settled_at_ns, sent_at_ns, member))
        if self.unrecorded:
            self.topic.context.unsaved.note_reading(self, 0)

    def remember(self, offset: Offset, message: Message) -> None:
        """The ledger will ask for it when it is settled, and perhaps only the store has it by then."""
        if self.is_recorded and self.topic.log.get(offset) is None:
            self.remembered.keep_stub(offset, message)

    @property
    def selection(self) -> Selection:
        own = self.subscription.connection_name if self.subscription.is_no_local else None
        return Selection(self.subscription.store_id, own)

    def meant(self, ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Without messages that the log knows to be for others: those have no delivery to record."""
        if not (self.topic.is_choosy or self.subscription.is_no_local):
            return ranges
        return self.selection.meant_within(self.topic.log, ranges)

    # Consumers that leave --------------------------------------------------------------------------------------------

    def release_in_flight_of(self, consumer: Consumer) -> None:
        """The consumer is gone: what was in flight to it may go again at once."""
        lost = self.owners.leave(consumer, self.cursor)
        if lost:
            self.cursor.release_ranges(lost)
            self.note_moved(1)

    def abandon(self, consumer: Consumer, now_ns: int) -> None:
        """A transient subscriber has gone with what it had not answered."""
        unanswered = self.owners.leave(consumer, self.cursor)
        if self.subscription.may_go_again:
            self.record(unanswered, Outcome.UNSUBSCRIBED, now_ns, member=consumer.member)

    def hold_unsettled(self, start: int, stop: int) -> None:
        """The log is about to drop [start, stop): keep what is sent, may go again and is not in the store."""
        if not self.subscription.may_go_again and not self.is_recorded:
            return
        held: dict[Offset, Message] = {}
        unsettled = [offset for low, high in self.cursor.unsettled(start, stop) for offset in range(low, high)]
        for offset in map(Offset, unsettled):
            message = self.topic.log.get(offset)
            if message is None:
                continue
            is_stored = self.topic.is_in_store and not self.topic.window.has_unstored(offset)
            if self.subscription.may_go_again and not is_stored:
                held[offset] = message
            elif self.is_recorded:
                self.remembered.keep_stub(offset, message)
        self.remembered.hold(held)

    def check_invariants(self) -> None:
        self.cursor.check_invariants()
        self.owners.check_invariants(self.cursor)
        self.remembered.check_invariants()
        for offset in (*self.failures, *self.remembered):
            assert offset < self.cursor.next_offset
            assert not self.cursor.is_settled(offset, offset + 1)
        assert self.unsent == sum(stop - start for start, stop in self.cursor.unsent(self.topic.log.end_offset))
        assert not self.changed_failures or self.subscription.is_durable
        assert self.cursor.pending_count or self.subscription.is_leaving or not self.deferred
