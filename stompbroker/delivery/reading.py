"""One subscription reads one topic.

Law: pairs a cursor with the topic's log and keeps what neither can know: messages that left the log's window unsettled
and that no store has, how often each has failed, who has what in flight. All of it moves together with the cursor.

It has many methods since all who look at a subscription's place in a topic ask here. What is done with it is elsewhere:
`appending`, `sending`, `answering`, `withdrawing`, `collecting`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, final

from stompbroker.commitlog import disjoint
from stompbroker.delivery.accounting import Unrecorded, account_of
from stompbroker.delivery.keys import MAX_HELD_UP, KeyLines
from stompbroker.delivery.reading_notes import Owners, Range, Remembered, asked_by, offsets_between
from stompbroker.delivery.selection import Selection
from stompbroker.delivery.telling import TOLD, Ended, ended
from stompbroker.ids import Offset
from stompbroker.ledger.records import Outcome, Party
from stompbroker.message import size_of_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from stompbroker.commitlog import Claimed, Cursor, Log, OffsetRanges, Settlement
    from stompbroker.delivery.consumer import Consumer
    from stompbroker.delivery.policy import DeliveryPolicy, DeliveryWishes, Failure
    from stompbroker.delivery.retained import Replay
    from stompbroker.delivery.subscription import Subscription
    from stompbroker.delivery.telling import Untold
    from stompbroker.delivery.topic import Topic
    from stompbroker.message import Message


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
        while `lines` is None, no unsettled message that was sent has a key that counts, and none is held up
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
    #: The order of messages with keys; None while there are none.
    lines: KeyLines | None = None
    #: The policy that results from these wishes.
    _policy: DeliveryPolicy = field(init=False)
    _policy_of: DeliveryWishes | None = None

    def __post_init__(self) -> None:
        self.remembered = Remembered(self.topic.budget)

    @property
    def policy(self) -> DeliveryPolicy:
        """Looked up once for each message that fails: worked out when wishes are new."""
        wishes = self.subscription.wishes
        if wishes is not self._policy_of:
            self._policy_of, self._policy = wishes, wishes.laid_over(self.topic.policy.delivery)
        return self._policy

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
        if self.lines is not None:
            return self.again_count > 0 or self.new_count > 0
        return self.cursor.next_offset < self.topic.log.end_offset or self.cursor.free_count > 0

    @property
    def room_to_hold_up(self) -> int:
        """How many messages more may be passed over; without room, nothing new is looked at. Of what no store has, as
        much as a window holds."""
        policy, count = self.topic.policy, self.cursor.held_up_count
        if count and self.remembered.held_bytes >= policy.window_bytes:
            return 0
        return (MAX_HELD_UP if self.topic.is_in_store else min(MAX_HELD_UP, policy.window_messages)) - count

    @property
    def again_count(self) -> int:
        """How many messages may go that were sent or passed over before."""
        count = self.cursor.free_count
        return count if self.lines is None else count + len(self.lines.ready) + self.lines.unread.count

    @property
    def new_count(self) -> int:
        """How many messages may be looked at for the first time."""
        return 0 if self.lines is not None and self.room_to_hold_up <= 0 else self.unsent

    @property
    def is_idle(self) -> bool:
        return self.cursor.ack_floor == self.topic.log.end_offset

    @property
    def is_all_in_flight(self) -> bool:
        """Whether everything sent and unsettled is in flight."""
        return not (self.cursor.waiting_count or self.cursor.free_count or self.cursor.held_up_count)

    @property
    def unsent(self) -> int:
        return self.cursor.unsent_count(self.topic.log.end_offset)

    @property
    def backlog(self) -> int:
        """How many messages are still to be sent, for the first time or again."""
        return self.unsent + self.cursor.free_count + self.cursor.waiting_count + self.cursor.held_up_count

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

    def settle(self, start: int, stop: int, outcome: Outcome, settled_at_ns: int) -> Settlement:
        """Settle these offsets, none of them pending, in whatever state they are."""
        return self.settle_all([(start, stop)], outcome, settled_at_ns)

    def settle_all(
        self,
        ranges: list[Range],
        outcome: Outcome,
        settled_at_ns: int,
        *,
        sent_at_ns: int = 0,
        member: str | None = None,
    ) -> Settlement:
        """The same for several ranges; those in flight were sent then. What it can, it does once for all of them."""
        ranges = disjoint(ranges)
        if self.topic.context.records is not None or self.remembered.asking:
            unsettled = [found for start, stop in ranges for found in self.cursor.unsettled(start, stop)]
            self.record(unsettled, outcome, settled_at_ns, sent_at_ns, member)
            if self.remembered.asking:
                self.tell(self.outcomes(unsettled, outcome, was_sent=sent_at_ns > 0))
        return self.settle_unrecorded(ranges)

    def settle_unrecorded(self, ranges: list[Range]) -> Settlement:
        """The same without a record of it."""
        settlement = self.cursor.settle_all(ranges)
        if self.failures:
            self.note_failures_changed([each for start, stop in ranges for each in self._forget_failures(start, stop)])
        for start, stop in ranges:
            self.remembered.forget(start, stop)
        self.note_moved(settlement.total)
        if self.lines is not None:
            self._leave_lines(self.lines, ranges)
        return settlement

    def claim(self, ranges: list[tuple[int, int]]) -> Claimed:
        """These are pending from now on."""
        if self.lines is not None:
            for start, stop in ranges:
                self.lines.leave_ready(start, stop)
        return self.cursor.claim(ranges)

    def settle_claimed(self, claimed: Claimed) -> None:
        """The same for what was pending, and is settled in the store."""
        self.cursor.settle_claimed(claimed)
        for start, stop in claimed.ranges:
            self._forget_failures(start, stop)
            self.remembered.forget(start, stop)
        self.note_moved(claimed.total)
        if self.lines is not None:
            self._leave_lines(self.lines, claimed.ranges)

    def _leave_lines(self, lines: KeyLines, settled: Iterable[tuple[int, int]]) -> None:
        """The next of their keys may go, or something new if there is room again."""
        for start, stop in settled:
            lines.leave(start, stop, self.cursor)
        self.lines = lines or None
        if self.has_more:
            self.subscription.offer(self)

    def change_order(self) -> None:
        """The subscription has begun to heed keys, or does so no more; nobody is attached."""
        self.lines = (KeyLines.begun if self.subscription.is_ordered_by_key else KeyLines.ended)(self.cursor) or None

    def _forget_failures(self, start: int, stop: int) -> list[Offset]:
        """Returns those of which the store may have a row, which has to go. Most are settled before one is written."""
        stored: list[Offset] = []
        for offset in offsets_between(self.failures, start, stop):
            if self.failures.pop(offset).is_stored:
                stored.append(offset)
            else:
                self.changed_failures.pop(offset, None)
        return stored

    def step_over(self, stop: int) -> None:
        """What is unsent below `stop` will never be sent: it is settled."""
        if stop > self.cursor.next_offset:
            self.cursor.step_over(stop)
            if self.topic.store_id is not None:
                self.note_moved(1)

    def note_moved(self, deliveries: int) -> None:
        """So many deliveries changed: tell the store, if it knows this topic. Perhaps something can be collected."""
        topic = self.topic
        if topic.store_id is not None:
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

    # Telling publishers ----------------------------------------------------------------------------------------------

    def note_asking(self, first: Offset, messages: Sequence[Message]) -> None:
        """These messages in a row are about to be sent, or settled: perhaps their publishers ask how that ends."""
        if self.subscription.tells_outcomes:
            self.remembered.note_asking(first, messages)

    def outcomes(self, ranges: list[tuple[int, int]], outcome: Outcome, *, was_sent: bool) -> list[Untold]:
        """What publishers are told of messages that were sent and are about to be settled."""
        found = ended(self, self.subscription.key, ranges, outcome, was_sent=was_sent) if self.remembered.asking else []
        return self.topic.context.telling.render(found) if found else []

    def tell(self, untold: list[Untold]) -> None:
        """With the cursor, or at once if no store has that."""
        if not untold:
            return
        self.topic.budget.adjust(size_of_all([each.message for each in untold]))
        if self.subscription.is_durable:
            self.unrecorded.add_untold(untold)
            self.topic.context.unsaved.note_reading(self, 0)
        else:
            self.topic.context.telling.put(untold)

    def tell_unsent(self, message: Message, outcome: Outcome) -> None:
        """It will not be sent."""
        asked = asked_by(message)
        if asked is not None and outcome in TOLD and self.subscription.tells_outcomes:
            where = str(self.topic.destination)
            self.tell(self.topic.context.telling.render([Ended(asked, outcome, where, self.subscription.key)]))

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
            elif self.is_recorded and not self.cursor.is_held_up(offset):
                self.remembered.keep_stub(offset, message)
        self.remembered.hold(held)

    def check_invariants(self) -> None:
        self.cursor.check_invariants()
        self.owners.check_invariants(self.cursor)
        self.remembered.check_invariants()
        assert self.lines is None or self.lines
        (self.lines or KeyLines()).check_invariants(self.cursor)
        for offset in (*self.failures, *self.remembered):
            assert offset < self.cursor.next_offset
            assert not self.cursor.is_settled(offset, offset + 1)
        assert self.unsent == sum(stop - start for start, stop in self.cursor.unsent(self.topic.log.end_offset))
        assert not self.changed_failures or self.subscription.is_durable
        assert self.cursor.pending_count or self.subscription.is_leaving or not self.deferred
