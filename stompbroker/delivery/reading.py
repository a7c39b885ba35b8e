"""One subscription reads one topic.

Law: pairs a cursor with the topic's log and keeps what the two cannot know: messages that left the log's window
while unsettled and that no store has, how often each has failed, and what was given up ahead of the cursor. Synchronous
throughout: what is neither in the log nor in a page is named in `missing`, and tried again when the page has come.

It is long because each of these must move together with the cursor, and all of it is checked by one set of invariants.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, final

from stompbroker.commitlog import Cursor, OffsetRanges, Settlement
from stompbroker.delivery.accounting import account_of
from stompbroker.delivery.failure import Failing
from stompbroker.delivery.owners import Owners
from stompbroker.delivery.remembered import Remembered, offsets_between
from stompbroker.delivery.selecting import Selection
from stompbroker.delivery.sent_runs import Part
from stompbroker.delivery.unrecorded import Unrecorded
from stompbroker.errors import PeerViolation
from stompbroker.ids import DeliveryNumber, Offset
from stompbroker.ledger.outcome import Outcome
from stompbroker.ledger.settled import Party
from stompbroker.message import tails_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from stompbroker.commitlog import Claimed, Log
    from stompbroker.delivery.consumer import Consumer
    from stompbroker.delivery.delivery_policy import DeliveryPolicy
    from stompbroker.delivery.failure import Failure, Refusal
    from stompbroker.delivery.replay import Replay
    from stompbroker.delivery.subscription import Subscription
    from stompbroker.delivery.topic import Topic
    from stompbroker.message import Message

__all__ = ["Again", "Reading", "Waiting"]


class Found(NamedTuple):
    """What is at an offset: a message, or nothing; or that has to be read first."""

    message: Message | None
    is_known: bool


class Waiting(NamedTuple):
    """A message that was set aside."""

    reading: Reading
    offset: Offset


class Again(NamedTuple):
    """Messages to be sent once more, from `offset` on in a row: as many failures, reasons and times of the first
    delivery as one header block can tell."""

    offset: Offset
    messages: list[Message]
    failure: Failure | None
    first_sent_ns: int | None

    def goes_on_with(self, offset: Offset, failure: Failure | None, first_sent_ns: int | None) -> bool:
        """Whether what is known of that message is known of these, and it comes next."""
        if offset != self.offset + len(self.messages) or first_sent_ns != self.first_sent_ns:
            return False
        if failure is None or self.failure is None:
            return failure is self.failure
        return failure.count == self.failure.count and failure.reason == self.failure.reason


@final
class Reading:
    """
    Invariants:
        every unsettled sent message that may have to go again is in the log, in the store, or held in `remembered`
        failures and what is remembered are of unsettled offsets only
        every settled message of a durable subscription is in `unrecorded` once, or in the ledger, unless it was lost
        unsent == end of the log - cursor.next_offset - what was given up ahead of it
    """

    __slots__ = (
        "_deferred",
        "_deferred_settling",
        "_given_up_ahead",
        "changed_failures",
        "cursor",
        "failures",
        "generation",
        "listed_in",
        "missing",
        "owners",
        "remembered",
        "replay",
        "subscription",
        "told_missing",
        "topic",
        "unrecorded",
    )

    def __init__(self, subscription: Subscription, topic: Topic, cursor: Cursor) -> None:
        self.subscription = subscription
        self.topic = topic
        self.cursor = cursor
        self.failures: dict[Offset, Failure] = {}
        #: Where `failures` differs from what the store was last told, longest first; only for durable subscriptions.
        self.changed_failures: dict[Offset, None] = {}
        #: The offset that has to be read from the store before anything more can be sent.
        self.missing: Offset | None = None
        self.remembered = Remembered(topic.budget)
        #: How often it was moved to another place.
        self.generation = 0
        #: Answers that wait until something pending is decided, and what those of them mean that count at once. They
        #: are as many as the units on their way, and one more for each pending message; mostly there are none.
        self._deferred: list[Callable[[], None]] | None = None
        self._deferred_settling: OffsetRanges | None = None
        #: Only for durable subscriptions.
        self.unrecorded = Unrecorded()
        #: Where it was asked to begin, until its first message has been sent; None if with what comes.
        self.replay: Replay | None = None
        #: With which message it was told that something is missing, and below what.
        self.told_missing: tuple[Offset, Offset] | None = None
        #: Unsent offsets that will never be sent: the window was full (`drop-newest`), or they have expired.
        self._given_up_ahead: OffsetRanges | None = None
        #: Whether it is among those that have something to send; the queue's to set.
        self.listed_in: object = None
        self.owners: Owners[Consumer] = Owners()

    @property
    def has_more(self) -> bool:
        """Whether there is anything to send, for the first time or again."""
        return self.cursor.free_count > 0 or self.cursor.next_offset < self.topic.log.end_offset

    @property
    def policy(self) -> DeliveryPolicy:
        return self.subscription.wishes.laid_over(self.topic.policy.delivery)

    @property
    def unsent(self) -> int:
        dropped = self._given_up_ahead.count if self._given_up_ahead is not None else 0
        return self.topic.log.end_offset - self.cursor.next_offset - dropped

    @property
    def backlog(self) -> int:
        """How many messages it has still to get, for the first time or again."""
        return self.unsent + self.cursor.free_count + self.cursor.waiting_count

    @property
    def lowest_needed(self) -> Offset:
        """The log may drop everything below without anybody having to hold it."""
        if not self.subscription.consumers and self.topic.is_in_store:
            return self.topic.log.end_offset  # whoever is not there reads from the store when it returns
        needs_sent = self.subscription.may_go_again or self.is_recorded
        return self.cursor.ack_floor if needs_sent else self.cursor.next_offset

    @property
    def log(self) -> Log:
        return self.topic.log

    @property
    def party(self) -> Party:
        """Whose deliveries of what these are, as the ledger has it."""
        subscription, identity = self.subscription, self.subscription.identity
        if identity is None:
            name = "" if subscription.name is None else subscription.name
            # Ids of transient subscriptions are chosen by their clients, each for itself.
            key, client_id = f"{subscription.connection_name}#{name}", None
        else:
            key, name, client_id = identity.key, identity.name, identity.client_id
        return Party(
            topic=self.topic.name,
            subscription=key,
            client_id=client_id,
            name=name,
            is_durable=identity is not None,
            ack_mode=subscription.ack_mode.value,
            generation=self.generation,
            kind=self.topic.destination.kind.value,
        )

    @property
    def is_recorded(self) -> bool:
        """Whether the ledger gets to know of every message."""
        return self.topic.records is not None and self.subscription.is_durable

    @property
    def is_idle(self) -> bool:
        """Whether nothing is owed or expected here."""
        return self.cursor.ack_floor == self.topic.log.end_offset

    def unsettled_ranges(self) -> list[tuple[int, int]]:
        """The offsets that must be kept for it."""
        return self.cursor.unsettled(self.cursor.ack_floor, self.cursor.next_offset) + self._unsent_ranges()

    def unclaimed_ranges(self) -> list[tuple[int, int]]:
        """The same without what is pending."""
        return self.cursor.unclaimed(self.cursor.ack_floor, self.cursor.next_offset) + self._unsent_ranges()

    def unsent_ranges(self) -> list[tuple[int, int]]:
        """The offsets that the window is still needed for."""
        if not self.subscription.consumers and self.topic.is_in_store:
            return []
        return self._unsent_ranges()

    def _unsent_ranges(self) -> list[tuple[int, int]]:
        start, stop = self.cursor.next_offset, self.topic.log.end_offset
        if self._given_up_ahead is not None:
            return self._given_up_ahead.gaps(start, stop)
        return [(start, stop)] if start < stop else []

    def take_new(self, taker: Consumer, limit: int, limit_bytes: int, now_ns: int) -> tuple[Offset, list[Message]]:
        """The next messages to be sent for the first time, in a row, and from now on in flight to `taker`.

        At least one if there is one, however large. It may be none although there are more: then some were stepped
        over, and the next call goes on behind them; or what comes next is `missing`.
        """
        cursor = self.cursor
        stop = self.topic.log.end_offset if self._given_up_ahead is None else self._step_over_given_up()
        source = self.topic.source(cursor.next_offset)
        if source is None:
            self.missing = cursor.next_offset
            return cursor.next_offset, []
        first, messages = source.read(cursor.next_offset, limit)
        if source is not self.topic.log:
            first, messages = self._within_page(first, messages)
        if first + len(messages) > stop:
            messages = messages[: max(0, stop - first)]
        self._step_over(first)
        if self.topic.is_choosy or self.subscription.is_no_local or source is not self.topic.log or self.replay:
            messages = self._selected(messages, now_ns)
            first = cursor.next_offset
        if tails_bytes(messages) > limit_bytes:
            messages = _within(messages, limit_bytes)
        if source is not self.topic.log and self.is_recorded:
            for offset, message in enumerate(messages, first):
                self.remembered.keep_stub(Offset(offset), message)
        if messages:
            self.owners.expect(taker, cursor)
            cursor.advance(Offset(first + len(messages)))
            self.owners.note(taker, first, first + len(messages))
        return first, messages

    def _within_page(self, first: Offset, messages: list[Message]) -> tuple[Offset, list[Message]]:
        """A page knows nothing of what only the log has: from the log's start on, the log is read."""
        start = self.topic.log.start_offset
        return min(first, start), messages[: max(0, start - first)]

    def take_again(self, taker: Consumer, limit: int, limit_bytes: int, now_ns: int) -> list[Again]:
        """Messages to be sent once more, lowest offset first, from now on in flight to `taker`.

        One at least if there is one; none if the next is `missing`. What has expired, or is nowhere any more, is
        settled instead.
        """
        again: list[Again] = []
        while not again and self.missing is None and self.cursor.free_count and limit > 0:
            self.owners.expect(taker, self.cursor)
            self._take_again(again, limit, limit_bytes, now_ns)
        for offset, messages, _, _ in again:
            self.owners.note(taker, offset, offset + len(messages))
        return again

    def _take_again(self, again: list[Again], limit: int, limit_bytes: int, now_ns: int) -> None:
        is_each_its_own = self.topic.is_retaining or self.told_missing is not None
        gone: list[tuple[Offset, Message | None]] = []
        taken = 0
        for offset in self.cursor.lowest_free(limit):
            message, is_known = self.get(offset)
            if not is_known:
                self.missing = offset
                break
            taken += 1
            if message is None or message.has_expired(now_ns):
                gone.append((offset, message))
                continue
            self.remember(offset, message)
            failure, first_sent_ns = self.failures.get(offset), self.first_sent_ns(offset)
            if again and not is_each_its_own and again[-1].goes_on_with(offset, failure, first_sent_ns):
                again[-1].messages.append(message)
            else:
                again.append(Again(offset, [message], failure, first_sent_ns))
            limit_bytes -= message.size_bytes
            if limit_bytes <= 0:
                break
        self.cursor.take_lowest_free(taken)
        for offset, gone_message in gone:
            if gone_message is None:
                self._pass_over(offset, now_ns)
            else:
                self.subscription.counters.expired += 1
                self.remember(offset, gone_message)
                self.settle(offset, offset + 1, Outcome.EXPIRED, now_ns)

    def _pass_over(self, offset: Offset, now_ns: int) -> None:
        """A message that was sent is nowhere any more. It has a record if it was taken away by an operator, while it
        was in flight. A `persistent:false` message that was lost has none: mostly nobody knows any more what it was."""
        if any(message.origin.is_persistent for _, message in self.remembered.recalled(offset, offset + 1)):
            self.settle(offset, offset + 1, Outcome.SKIPPED, now_ns)
        else:
            self._settle(offset, offset + 1)

    def note_sent_again(self, first: Offset, count: int, first_number: int) -> None:
        """These messages, from offset `first` on, go under the numbers from that one on: earlier ones are late."""
        for number, offset in enumerate(range(first, first + count), first_number):
            failure = self.failures.get(Offset(offset))
            if failure is not None:
                failure.last_number = DeliveryNumber(number)

    def get(self, offset: Offset) -> Found:
        """What is at an offset that is not settled."""
        message = self.remembered.get(offset) or self.topic.log.get(offset)
        if message is not None or not self.topic.is_in_store:
            return Found(message, is_known=True)
        page = self.topic.page(offset)
        return Found(None, is_known=False) if page is None else Found(page.get(offset), is_known=True)

    def ask_for(self, offset: Offset) -> None:
        """Nothing more can be sent before it is known what is at `offset`."""
        self.missing = offset
        self.topic.pages.call_when_read(self.topic, offset, self.resume)

    def resume(self) -> None:
        """What was `missing` has been read."""
        self.missing = None
        self.subscription.offer(self)

    def settle(self, start: int, stop: int, outcome: Outcome, settled_at_ns: int, *, sent_at_ns: int = 0) -> Settlement:
        """These offsets, none of them pending, are done with, whatever state they were in; those that are in flight
        were sent then."""
        if self.topic.records is not None:
            self._record(self.cursor.unsettled(start, stop), outcome, settled_at_ns, sent_at_ns)
        return self._settle(start, stop)

    def settle_sent(self, start: int, stop: int) -> Settlement:
        """These, none of them pending, have been sent, which is enough."""
        if not self.is_recorded:
            return self._settle(start, stop)
        assert self.topic.records is not None
        now_ns = self.topic.records.now_ns()
        return self.settle(start, stop, Outcome.SENT, now_ns, sent_at_ns=now_ns)

    def _settle(self, start: int, stop: int) -> Settlement:
        settlement = self.cursor.settle(start, stop)
        if self.failures:
            settled = offsets_between(self.failures, start, stop)
            for offset in settled:
                del self.failures[offset]
            self._note_failures_changed(settled)
        self.remembered.forget(start, stop)
        self._note_moved(settlement.total)
        return settlement

    def _note_moved(self, deliveries: int) -> None:
        """The store has to be told of so many, if it knows this topic, and perhaps something can be collected."""
        topic = self.topic
        if topic.is_in_store:
            topic.unsaved.collectable[topic] = None
            if self.subscription.is_durable:
                topic.unsaved.note_reading(self, deliveries)

    # Pending ---------------------------------------------------------------------------------------------------------

    def split_pending(self, part: Part[Reading]) -> tuple[list[Part[Reading]], list[Part[Reading]]]:
        """What of it is not pending, and what is: that has to wait (`defer`)."""
        _, start, stop, sent_at_ns = part
        if self.subscription.is_leaving:
            return [], [part]
        pending = self.cursor.pending(start, stop)
        if not pending:
            return [part], []
        unclaimed = self.cursor.unclaimed(start, stop)
        return (
            [Part(self, low, high, sent_at_ns) for low, high in unclaimed],
            [Part(self, low, high, sent_at_ns) for low, high in pending],
        )

    def defer(self, repeat: Callable[[], None]) -> None:
        """A transaction's answer has met something pending: it is given once more when that is decided."""
        if self._deferred is None:
            self._deferred = []
        self._deferred.append(repeat)

    def defer_settling(self, part: Part[Reading], repeat: Callable[[], None]) -> None:
        """The same for an answer that counts at once: of several that mean the same message the first is enough."""
        self._deferred_settling = self._deferred_settling or OffsetRanges()
        if self._deferred_settling.add(part.start, part.stop):
            self.defer(repeat)

    def repeat_deferred(self) -> None:
        """Something that was pending is decided: who has answered meanwhile is heard, and waits again if need be."""
        deferred, self._deferred, self._deferred_settling = self._deferred, None, None
        for repeat in deferred or ():
            repeat()

    def settle_claimed(self, claimed: Claimed) -> None:
        """What was pending is settled, in the store as well."""
        self.cursor.settle_claimed(claimed)
        for start, stop in claimed.ranges:
            for offset in offsets_between(self.failures, start, stop):
                del self.failures[offset]
            self.remembered.forget(start, stop)
        self._note_moved(claimed.total)

    def set_aside_claimed(self, claimed: Claimed, failures: Mapping[Offset, Failure]) -> None:
        """What was pending has failed, in the store as well: it waits for its time."""
        self.cursor.set_aside_claimed(claimed)
        self.failures.update(failures)
        for offset, failure in failures.items():
            self._schedule(offset, failure)

    def schedule_again(self, offsets: Iterable[int]) -> None:
        """These wait again: they go when they are due, perhaps at once."""
        for offset in map(Offset, offsets):
            self._schedule(offset, self.failures[offset])

    def _record(self, ranges: list[tuple[int, int]], outcome: Outcome, settled_at_ns: int, sent_at_ns: int = 0) -> None:
        """Account for messages that are about to be settled."""
        records = self.topic.records
        if records is None:
            return
        if not self.subscription.is_durable:
            records.sample(self, ranges, outcome, settled_at_ns, sent_at_ns)
            return
        self.unrecorded.add(account_of(self, ranges, outcome, settled_at_ns, sent_at_ns))
        if self.unrecorded:
            self.topic.unsaved.note_record(self)

    def known_one_by_one(self, start: int, stop: int) -> list[Offset]:
        """The unsettled offsets of which more is known than that they were sent with others; sorted."""
        found = self.remembered.first_sent_between(start, stop)
        if self.failures:
            found += offsets_between(self.failures, start, stop)
        return sorted(set(found)) if found else found

    @property
    def is_all_in_flight(self) -> bool:
        """Whether everything that was sent and is not settled is in flight."""
        return not self.cursor.waiting_count and not self.cursor.free_count

    def remember(self, offset: Offset, message: Message) -> None:
        """It will be asked for when it is settled, and perhaps only the store has it by then."""
        if self.is_recorded and self.topic.log.get(offset) is None:
            self.remembered.keep_stub(offset, message)

    def set_aside(self, part: Part[Reading], refusal: Refusal, *, holder: Consumer | None) -> int:
        """Deliveries have failed: they wait for their time. Returns how many; only those that were in flight to
        `holder`, or that are free if there is none."""
        _, start, stop, sent_at_ns = part
        if holder is None:
            offsets = [offset for offset in map(Offset, range(start, stop)) if self.cursor.suspend(offset)]
        elif self.owners.is_alone(holder):
            offsets = self.cursor.set_aside(start, stop)
        else:
            meant = self.owners.within(holder, [(start, stop)])
            offsets = [offset for low, high in meant for offset in self.cursor.set_aside(low, high)]
            self.owners.take_away(meant, len(offsets))
        if not offsets:
            return 0
        due: dict[int, list[Waiting]] = {}
        for offset, failure in self.failures_after(offsets, refusal, sent_at_ns).items():
            self.failures[offset] = failure
            due.setdefault(failure.due_ns, []).append(Waiting(self, offset))
        for due_ns, waiting in due.items():
            self.topic.redeliveries.schedule(due_ns, *waiting)
        self._note_failures_changed(offsets)
        return len(offsets)

    def note_lost(self, offset: Offset, refusal: Refusal, *, sent_at_ns: int) -> None:
        """Its consumer was lost over it: what is free again at once has failed once more. It waits only if it is not to
        be tried again."""
        (failure,) = self.failures_after([offset], refusal._replace(delay_ns=0), sent_at_ns).values()
        self.failures[offset] = failure
        self._note_failures_changed([offset])
        if failure.is_used_up(self.policy) and self.cursor.suspend(offset):
            self.subscription.waiting += 1
            self._schedule(offset, failure)

    def failures_after(self, offsets: Sequence[Offset], refusal: Refusal, sent_at_ns: int) -> dict[Offset, Failure]:
        """What is known of these messages when they have been refused in one go."""
        failing = Failing(refusal, self.policy, self.subscription.jitter_seed)
        is_noted = bool(self.remembered.first_sent_between(offsets[0], offsets[-1] + 1))
        found: dict[Offset, Failure] = {}
        for offset in offsets:
            before = self.failures.get(offset)
            first_sent_ns = before.first_attempt_ns if before is not None else 0
            if not first_sent_ns and is_noted:
                first_sent_ns = self.remembered.first_sent_ns(offset) or 0
            found[offset] = failing.failure_after(
                before, first_sent_ns=first_sent_ns or sent_at_ns, sent_at_ns=sent_at_ns
            )
        return found

    def _schedule(self, offset: Offset, failure: Failure) -> None:
        self.topic.redeliveries.schedule(failure.due_ns, Waiting(self, offset))

    def is_used_up(self, offset: Offset) -> bool:
        """Whether a message that was refused is not tried again."""
        failure = self.failures.get(offset)
        return failure is not None and failure.is_used_up(self.policy)

    def give_up(self, offset: Offset, outcome: Outcome, now_ns: int, message: Message | None = None) -> bool:
        """It will not be sent any more, for the first time or again. False if there is nothing to give up: it is
        settled, or in flight, where it can still be acknowledged, or pending."""
        if self.subscription.is_leaving:
            return False
        if offset >= self.cursor.next_offset:
            if self._is_given_up(offset):
                return False
            if message is not None:
                self.remember(offset, message)
            self._record([(offset, offset + 1)], outcome, now_ns)
            self._give_up_ahead(offset)
            return True
        if not self.cursor.is_waiting(offset) and not self.cursor.is_free(offset):
            if message is not None and self.is_recorded and not self.cursor.is_settled(offset, offset + 1):
                self.remembered.keep_stub(offset, message)  # for when it is refused, and nowhere any more
            return False
        if message is not None:
            self.remember(offset, message)
        self.subscription.waiting -= self.settle(offset, offset + 1, outcome, now_ns).waiting
        self.subscription.wake()  # fewer messages wait: perhaps it may get new ones
        return True

    def pass_by(self, offset: Offset) -> None:
        """It is gone, and was never meant for this subscriber: there was no delivery to account for."""
        if offset >= self.cursor.next_offset and not self._is_given_up(offset):
            self._give_up_ahead(offset)

    def _set_of_given_up(self) -> OffsetRanges:
        """Made for the few that need it."""
        if self._given_up_ahead is None:
            self._given_up_ahead = OffsetRanges()
        return self._given_up_ahead

    def _is_given_up(self, offset: Offset) -> bool:
        return self._given_up_ahead is not None and offset in self._given_up_ahead

    def _give_up_ahead(self, offset: Offset) -> None:
        self.remembered.drop_stub(offset)
        self._set_of_given_up().add(offset, offset + 1)
        if offset == self.cursor.next_offset:
            self._step_over_given_up()
        self._note_moved(1)

    @property
    def given_up_ahead(self) -> list[tuple[int, int]]:
        """What is settled although the cursor has not come there yet."""
        return [] if self._given_up_ahead is None else list(self._given_up_ahead)

    def restore_given_up(self, ranges: Iterable[tuple[int, int]]) -> None:
        """What was given up ahead of the cursor when it was last written down."""
        for start, stop in ranges:
            self._set_of_given_up().add(start, stop)

    def restore_failure(self, offset: Offset, failure: Failure) -> bool:
        """It was waiting for its time when it was last written down. False if it has been settled since."""
        if not self.cursor.suspend(offset):
            return False
        self.failures[offset] = failure
        self.subscription.waiting += 1
        self._schedule(offset, failure)
        return True

    def _note_failures_changed(self, offsets: Sequence[Offset]) -> None:
        if offsets and self.subscription.is_durable:
            self.changed_failures.update(dict.fromkeys(offsets))
            self._note_moved(len(offsets))

    def discard(self, offset: Offset, now_ns: int) -> None:
        """Its attempts are used up, and that is all."""
        self.subscription.counters.discarded += self.give_up(offset, Outcome.DISCARDED, now_ns)

    def become_due(self, offset: Offset) -> None:
        """What was set aside may go again, unless it has been settled in the meantime."""
        if self.cursor.release(offset):
            self.subscription.waiting -= 1
            self.subscription.offer(self)

    @property
    def missing_before(self) -> Offset | None:
        """For the first message after a replay was asked for: below which offset nothing of that is there any more."""
        if self.replay is None:
            return None
        start, replay = self.topic.collected_up_to, self.replay
        if replay.asked_for is not None:
            is_missing = start > replay.asked_for
        else:
            is_missing = replay.since_ns > 0 and not replay.is_whole and start >= replay.start > 0
        return start if is_missing else None

    def missing_told_with(self, offset: Offset) -> Offset | None:
        """What a message said that was missing, for when it is sent again."""
        if self.told_missing is None or self.told_missing[0] != offset:
            return None
        return self.told_missing[1]

    def first_sent_ns(self, offset: Offset) -> int | None:
        """When an unsettled message was sent for the first time, if that is known."""
        failure = self.failures.get(offset)
        if failure is not None and failure.first_attempt_ns:
            return failure.first_attempt_ns
        return self.remembered.first_sent_ns(offset)

    def last_sent_ns(self, offset: Offset) -> int | None:
        """When an unsettled message was sent for the last time, if that is known."""
        failure = self.failures.get(offset)
        if self.cursor.is_in_flight(offset):
            holders = (each for each in self.subscription.consumers if self.owners.has(each, offset))
            return next((each.sent.sent_at_ns(self, offset) for each in holders), None)
        if failure is not None and failure.last_attempt_ns:
            return failure.last_attempt_ns
        return self.remembered.first_sent_ns(offset)

    def note_sent_before(self, start: int, stop: int, sent_at_ns: int) -> None:
        """A consumer that has left was sent these at that time: who gets what is unsettled of it will be told."""
        for low, high in self.cursor.unsettled(start, stop):
            self.remembered.note_first_sent(map(Offset, range(low, high)), sent_at_ns)

    def is_waiting(self, offset: Offset) -> bool:
        return self.cursor.is_waiting(offset) and not self.subscription.is_closed

    def is_in_flight_to(self, consumer: Consumer, offset: int, number: int) -> bool:
        """Whether it is, and was not sent to it again under a number higher than that."""
        return (
            self.owners.has(consumer, offset)
            and self.cursor.is_in_flight(offset)
            and not self.was_sent_again(offset, after=number)
        )

    def release_in_flight_of(self, consumer: Consumer) -> None:
        """It is gone: what was in flight to it may go again at once."""
        lost = self.owners.leave(consumer, self.cursor)
        if lost:
            self.cursor.release_ranges(lost)
            self._note_moved(1)

    def was_sent_again(self, offset: int, *, after: int) -> bool:
        """Whether the message has been sent again under a number higher than `after`."""
        failure = self.failures.get(Offset(offset))
        return failure is not None and failure.last_number > after

    def hold_unsettled(self, start: int, stop: int) -> None:
        """The log is about to drop [start, stop): keep what of it is sent, unsettled and may have to go again, unless
        the store has it."""
        if not self.subscription.may_go_again and not self.is_recorded:
            return
        held: dict[Offset, Message] = {}
        for low, high in self.cursor.unsettled(start, stop):
            for offset in map(Offset, range(low, high)):
                message = self.topic.log.get(offset)
                if message is None:
                    continue
                if self.subscription.may_go_again and not self.topic.has_stored(offset):
                    held[offset] = message
                elif self.is_recorded:
                    self.remembered.keep_stub(offset, message)
        self.remembered.hold(held)

    @property
    def is_connected(self) -> bool:
        return bool(self.subscription.consumers)

    def disconnect(self, why: str) -> None:
        """Whoever is connected is too slow, and has to go."""
        subscription = self.subscription
        for consumer in list(subscription.consumers):
            consumer.sink.disconnect(
                PeerViolation(
                    "subscriber too slow",
                    f"subscription {subscription.name!r} to {subscription.destination!r} fills the window of topic "
                    f"{self.topic.name!r} with {self.unsent} messages it has not been sent; {why}",
                )
            )

    def drop_oldest(self, stop: Offset) -> None:
        """Give up what is unsent below `stop`."""
        before = self.unsent
        self._record_dropped(Offset(0), stop)
        self._step_over(stop)
        self.subscription.counters.dropped += max(before - self.unsent, 0)

    def lose(self, ranges: list[tuple[int, int]]) -> None:
        """These, which are unsent, are about to be nowhere any more."""
        self.subscription.counters.dropped += sum(stop - start for start, stop in ranges)
        if self.is_recorded:
            for start, stop in ranges:
                self._record_dropped(Offset(start), Offset(stop))
                self._set_of_given_up().add(start, stop)
            self._step_over_given_up()

    def drop_newest(self, start: Offset) -> None:
        """Give up what is unsent from `start` on."""
        start = max(start, self.cursor.next_offset)
        self._record_dropped(start, self.topic.log.end_offset)
        self.subscription.counters.dropped += self._set_of_given_up().add(start, self.topic.log.end_offset)

    def _record_dropped(self, start: Offset, stop: Offset) -> None:
        if self.topic.records is not None:
            unsent = [(max(low, start), min(high, stop)) for low, high in self._unsent_ranges()]
            unsent = [(low, high) for low, high in unsent if low < high]
            now_ns = self.topic.records.now_ns()
            self._record(self.meant(unsent, now_ns), Outcome.DROPPED, now_ns)

    def move_to(self, position: Offset, now_ns: int) -> None:
        """Read on from there, as if nothing from it on had been sent, and everything before it settled. Nobody may be
        attached."""
        assert not self.subscription.consumers
        assert not self.cursor.pending_count
        skipped = [(start, min(stop, position)) for start, stop in self.unsettled_ranges() if start < position]
        self._record(self.meant(skipped, now_ns), Outcome.SKIPPED, now_ns)
        self._settle(self.cursor.ack_floor, self.cursor.next_offset)
        self.unrecorded.end_generation(self)
        self.generation += 1
        self.subscription.waiting = sum(
            reading.cursor.waiting_count for reading in self.subscription.readings.values() if reading is not self
        )
        # It may have stopped at something that is lost.
        self._given_up_ahead = self.replay = self.missing = None
        if self.subscription.starts_at is not None:
            # Where it once asked to begin is over; a start of the broker must not go back to that.
            self.subscription.starts_at = None
            self.topic.unsaved.note_subscription(self.subscription)
        self.cursor = Cursor(position)
        if self.topic.is_in_store:
            self.topic.keep_between_holes()
            self._note_moved(1)

    def abandon(self, consumer: Consumer, now_ns: int) -> None:
        """A transient subscriber has gone with what it was sent and has not answered."""
        unanswered = self.owners.leave(consumer, self.cursor)
        if self.subscription.may_go_again:
            self._record(unanswered, Outcome.UNSUBSCRIBED, now_ns)

    def close(self) -> None:
        """Nobody reads here any more."""
        self.remembered.clear()

    def _step_over_given_up(self) -> Offset:
        """Move past what was given up; returns where the next of that begins, or the end."""
        ranges = self._unsent_ranges()
        start, stop = ranges[0] if ranges else (self.topic.log.end_offset, self.topic.log.end_offset)
        self._step_over(Offset(start))
        return Offset(stop)

    def _forget_given_up_behind(self) -> None:
        if self._given_up_ahead is not None:
            self._given_up_ahead.forget_below(self.cursor.next_offset)
            self._given_up_ahead = self._given_up_ahead or None

    def _step_over(self, stop: Offset) -> None:
        """What is unsent below `stop` will never be sent: it is settled."""
        if stop > self.cursor.next_offset:
            self.cursor.step_over(stop)
            self._forget_given_up_behind()
            self._note_moved(1)

    def selection(self, now_ns: int) -> Selection:
        """Which messages are for this subscriber, at that time."""
        subscription = self.subscription
        own = subscription.connection_name if subscription.is_no_local else None
        return Selection(now_ns, subscription.store_id, own)

    def meant(self, ranges: list[tuple[int, int]], now_ns: int) -> list[tuple[int, int]]:
        """Without what the log knows to be for others: that is nothing that becomes of a delivery."""
        if not (self.topic.is_choosy or self.subscription.is_no_local):
            return ranges
        takes, log, foreign = self.selection(now_ns).takes, self.topic.log, OffsetRanges()
        for start, stop in ranges:
            position = start
            while position < stop:
                first, messages = log.read(position, stop - position)
                for offset, message in enumerate(messages, first):
                    if not takes(message):
                        foreign.add(offset, offset + 1)
                position = first + max(1, len(messages))
        return [gap for start, stop in ranges for gap in foreign.gaps(start, stop)]

    def _selected(self, messages: list[Message], now_ns: int) -> list[Message]:
        """Step over what this subscriber does not get; what is left is the run up to the next such message."""
        subscription, selection = self.subscription, self.selection(now_ns)
        since_ns = 0 if self.replay is None else self.replay.since_ns
        if not since_ns and selection.takes_all(messages):
            return messages
        position = 0
        for message in messages:
            if selection.has_expired(message):
                if selection.takes(message) and message.published_at_ns >= since_ns:
                    subscription.counters.expired += 1
                    self._record_expired(Offset(self.cursor.next_offset + position), message, now_ns)
            elif selection.takes(message) and message.published_at_ns >= since_ns:
                break
            position += 1
        if since_ns and self.replay is not None and position and messages[0].published_at_ns < since_ns:
            self.replay = self.replay._replace(is_whole=True)
        self._step_over(Offset(self.cursor.next_offset + position))
        stop = position
        while stop < len(messages) and selection.takes(messages[stop]) and not selection.has_expired(messages[stop]):
            stop += 1
        return messages[position:stop]

    def _record_expired(self, offset: Offset, message: Message, now_ns: int) -> None:
        """It is about to be stepped over."""
        if self.topic.records is not None:
            self.remember(offset, message)
            self._record([(offset, offset + 1)], Outcome.EXPIRED, now_ns)
            self.remembered.drop_stub(offset)

    def check_invariants(self) -> None:
        self.cursor.check_invariants()
        self.owners.check_invariants(self.cursor)
        self.remembered.check_invariants()
        for offset in (*self.failures, *self.remembered):
            assert offset < self.cursor.next_offset
            assert not self.cursor.is_settled(offset, offset + 1)
        assert self.unsent == sum(stop - start for start, stop in self._unsent_ranges())
        assert not self.changed_failures or self.subscription.is_durable
        assert self.cursor.pending_count or self.subscription.is_leaving or not self._deferred


def _within(messages: list[Message], limit_bytes: int) -> list[Message]:
    """As many from the front as fit, but one at least."""
    total_bytes = 0
    for index, message in enumerate(messages):
        total_bytes += len(message.tail)
        if total_bytes > limit_bytes:
            return messages[: max(index, 1)]
    return messages
