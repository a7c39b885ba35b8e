"""What a client's frames do to topics.

Law: one method per command, synchronous. What frames change is handed to the journal as one unit: at the end of a
chunk, and before any frame whose effect must not be mixed with what came before it. Mistakes are raised as
PeerViolation; the session sends the ERROR, and parks frames that are held back.

Hot path: `apply`, for all SENDs of one head at once. `make bench` (topic 1→1) and
`tests/sessions/test_hot_path.py` guard it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from itertools import chain, count, groupby
from operator import sub
from typing import TYPE_CHECKING, Final, final

from stompbroker.clock import NANOSECONDS
from stompbroker.delivery import Leaving
from stompbroker.errors import PeerViolation
from stompbroker.sessions.client import Consumers
from stompbroker.sessions.gathering import Transactions, UnitBuilder
from stompbroker.sessions.headers import read_refusal
from stompbroker.sessions.publishing import Publishing, check_number_in_transaction
from stompbroker.sessions.reporting import Reporting
from stompbroker.sessions.subscribe_headers import asks_for_durable
from stompbroker.sessions.subscribing import Subscribing
from stompbroker.sessions.temporaries import Temporaries
from stompbroker.stomp import AnswerRun, SendRun, forbid_body, render_receipts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from stompbroker.changes import Lane, Unit
    from stompbroker.delivery import Consumer, Gate, Topic
    from stompbroker.sessions.client import Client, Named
    from stompbroker.sessions.outbox import Outbox
    from stompbroker.sessions.publishing import Question, SendPlan
    from stompbroker.sessions.session_context import SessionContext
    from stompbroker.stomp import Frame


class _HeldBack(Exception):
    """A frame has to wait; `held_by` says for what."""


@final
@dataclass(slots=True, eq=False, repr=False)
class Commands:
    """
    Invariants:
        nothing is applied once `is_over` is set
        the unit being built is empty between two calls from outside
    """

    _context: SessionContext
    _client: Client
    _outbox: Outbox
    _lane: Lane
    #: When the frames came that are being applied.
    _applied_at_ns: int = 0
    _temporaries: Temporaries = field(init=False)
    _publishing: Publishing = field(init=False)
    _reporting: Reporting = field(init=False)
    _subscribing: Subscribing = field(init=False)
    _unit: UnitBuilder = field(init=False)
    transactions: Transactions = field(init=False)
    consumers: Consumers = field(init=False)
    #: The gate of the topic or the journal for which a frame was last held back.
    held_by: Gate | None = None
    #: Answers to deliveries of subscriptions that were closed already.
    late_answers: int = 0
    #: NACKs and messages since the session last set them to 0.
    refusals: int = 0
    published: int = 0
    is_over: bool = False

    def __post_init__(self) -> None:
        context, settings = self._context, self._context.settings
        self._unit = UnitBuilder(context.registry.last_values)
        self._temporaries = Temporaries(context.registry, settings.max_subscriptions)
        self._publishing = Publishing(context, self._client, self._temporaries)
        self._reporting = Reporting(context, self._client, self._outbox, self._lane)
        self.transactions = Transactions(settings.limits)
        self.consumers = Consumers(context.message_ids, settings.max_subscriptions, self._client, context.usage)
        self._subscribing = Subscribing(
            context, self._client, self.consumers, self._temporaries, self._outbox, self._lane
        )

    # For the session -------------------------------------------------------------------------------------------------

    @property
    def commit_by_ns(self) -> int | None:
        """When the oldest open transaction times out; None if there is none."""
        oldest = next(iter(self.transactions.open.values()), None)
        return None if oldest is None else oldest.begun_at_ns + self._context.settings.transaction_timeout_ns

    def check_transactions(self, now_ns: int) -> None:
        """Raise PeerViolation if one is open for too long."""
        if self.commit_by_ns is not None and now_ns >= self.commit_by_ns:
            timeout_s = self._context.settings.transaction_timeout_ns / NANOSECONDS
            raise PeerViolation(
                "transaction open too long",
                f"{next(iter(self.transactions.open))!r} was neither committed nor aborted within {timeout_s:g} s; "
                "COMMIT sooner",
            )

    def apply(self, frames: Sequence[Frame], now_ns: int) -> int:
        """Apply frames in order until one has to be held back; returns how many were applied.

        Raises PeerViolation for a wrong frame; those before it have been applied by then.
        """
        self._applied_at_ns = now_ns
        applied = 0
        try:
            for frame in frames:
                if isinstance(frame, SendRun):
                    try:
                        plan = self._publishing.plan(frame.head)
                        self._check_not_held(plan.topic)
                        if plan.sets_value:
                            self._publishing.check_values_fit({plan.topic: len(frame.bodies[-1])})
                        if plan.replies:
                            self._read_replies(plan.replies)
                        if plan.question is not None:
                            self._check_reply_to_not_held(plan.question)
                    except PeerViolation as violation:
                        violation.receipt = frame.receipt
                        raise
                    if plan.question is None:
                        self._publishing.gather(plan, frame, self._unit, now_ns)
                    else:
                        self._send_and_ask(frame, plan, plan.question)
                    self.published += len(frame.bodies)
                else:
                    self._apply_other(frame)
                applied += 1
                if self.is_over:
                    return len(frames)
        except _HeldBack:
            pass
        finally:
            self._hand_over()
        return applied

    def abandon(self, leaving: Leaving) -> None:
        """End all its open transactions and subscriptions, and apply nothing more."""
        self.is_over = True
        self.transactions.clear()
        self._temporaries.end()
        self._client.leave_topics()
        self._context.registry.leave(self.consumers.clear(), self._context.clock.now_ns(), leaving=leaving)

    def check_invariants(self) -> None:
        self.transactions.check_invariants()
        assert not self._unit
        assert not self.is_over or not self.consumers

    def _check_not_held(self, topic: Topic) -> None:
        """Raise _HeldBack if what is published to this topic has to wait, for the topic or for the journal."""
        if topic.gate.is_blocked:
            if topic.gate.is_overdue:
                raise PeerViolation(
                    "queue is full",
                    f"{topic.gate.why}, and nobody has taken anything from it for {topic.policy.block_timeout_s:g} s; "
                    "send less, or start consumers",
                )
            self.held_by = topic.gate
            raise _HeldBack
        if topic.policy.queue_max_messages:
            _check_length(topic)
        if self._context.journal.gate.is_blocked and topic.is_stored:
            self.held_by = self._context.journal.gate
            raise _HeldBack

    # Everything else -------------------------------------------------------------------------------------------------

    def _apply_other(self, frame: Frame) -> None:
        try:
            if frame.body and frame.command != "SEND":
                forbid_body(frame, self._client.version)
            _APPLY[frame.command](self, frame)
        except PeerViolation as violation:
            violation.receipt = violation.receipt or frame.receipt
            raise

    def _check_reply_to_not_held(self, question: Question) -> None:
        """What nobody gets goes there, and must not fill it either."""
        reply_to = question.reply_to and self._context.registry.topics.get(question.reply_to.key)
        if reply_to is not None:
            self._check_not_held(reply_to)

    def _send_and_ask(self, run: SendRun, plan: SendPlan, question: Question) -> None:
        self._hand_over()
        self._reporting.send(run, plan, question, self._publishing, self._applied_at_ns)

    def _send_in_transaction(self, frame: Frame) -> None:
        # Planned now, so that a wrong destination is an error at once and COMMIT has less to do in its one step.
        plan = self._publishing.plan(frame.head)
        if plan.question is not None:
            check_number_in_transaction(frame, plan.question)
        if plan.sets_value:
            self._publishing.check_values_fit({plan.topic: len(frame.body)})
        if plan.replies:
            self._read_replies(plan.replies)
        # The receipt of a frame in a transaction says that it was received, and COMMIT's that it was done.
        self.transactions.add(frame.headers["transaction"], frame)
        self._owe_receipt(frame)

    def _read_replies(self, destinations: Sequence[str]) -> None:
        """Whoever names a temporary destination as reply-to is subscribed to it, as with RabbitMQ."""
        for destination in destinations:
            if not self.consumers.have(destination):
                request = self._subscribing.to_replies(destination)
                self._submit(self._subscribing.open(request, lambda: None))

    def _subscribe(self, frame: Frame) -> None:
        request = self._subscribing.read(frame.headers)
        # What this client sent before it subscribed is not for it.
        self._hand_over()
        self._submit(self._subscribing.open(request, self._receipt_of(frame)))

    def _unsubscribe(self, frame: Frame) -> None:
        # Answers that came before it in the same chunk still count.
        self._hand_over()
        if asks_for_durable(frame.headers) and not self._subscribing.is_of_all(frame.headers):
            self._submit(self._subscribing.delete(frame.headers, self._receipt_of(frame)))
            return
        is_kept = self._subscribing.close(frame.headers)
        self._owe_receipt(frame)
        # Its receipt also stands for acknowledgements that asked for none.
        self._hand_over(needs_order=is_kept)

    def _answer(self, frame: Frame) -> None:
        """ACK and NACK."""
        if isinstance(frame, AnswerRun):
            self._answer_run(frame)
            return
        delivery = self.consumers.find_delivery(frame.headers, self._client.version)
        if frame.command == "NACK":
            read_refusal(frame.headers, 0)  # raises before anything is gathered
        if "transaction" in frame.headers:
            transaction = self.transactions.add(frame.headers["transaction"], frame)
            transaction.deliveries.append(delivery)
            if delivery is not None and frame.command == "ACK":
                transaction.borrow(delivery)
        else:
            self._settle(frame, delivery)
        self._owe_receipt(frame)

    def _begin(self, frame: Frame) -> None:
        self.transactions.begin(frame.headers["transaction"], self._applied_at_ns)
        self._owe_receipt(frame)

    def _commit(self, frame: Frame) -> None:
        """Everything the transaction gathered becomes one unit, and so happens as a whole or not at all."""
        # First what came before it: that may fill a topic this transaction publishes to.
        self._hand_over()
        name = frame.headers["transaction"]
        frames = self.transactions.find(name).frames
        plans = {each.head: self._publishing.plan(each.head) for each in frames if each.command == "SEND"}
        for topic in {plan.topic for plan in plans.values()}:
            self._check_not_held(topic)
        valued = [each for each in frames if each.head in plans and plans[each.head].sets_value]
        if valued:
            self._publishing.check_values_fit({plans[each.head].topic: len(each.body) for each in valued})
        producers = self._publishing.producers_of(plans, frames, self._applied_at_ns)
        transaction = self.transactions.end(name)
        self.published += len(transaction.frames)
        deliveries = iter(transaction.deliveries)
        for each in transaction.frames:
            if each.head in producers:
                plan, producer = plans[each.head], producers[each.head]
                (message,) = self._publishing.messages_of(plan, [each.body], self._applied_at_ns)
                number = int(each.sequence or 0)
                self._unit.number(plan.topic, message, producer, number, sets_value=plan.sets_value)
            elif each.command == "SEND":
                run = SendRun(each.head, each.body, None)
                self._publishing.gather(plans[each.head], run, self._unit, self._applied_at_ns)
            else:
                self._settle(each, next(deliveries))
        self._owe_receipt(frame)
        unit = self._unit.take(self._lane, self._give_receipts)
        unit.is_transaction = True
        self._submit(unit)

    def _abort(self, frame: Frame) -> None:
        self.transactions.end(frame.headers["transaction"])
        self._owe_receipt(frame)

    def _disconnect(self, frame: Frame) -> None:
        self._publishing.note_done(frame.headers, self._applied_at_ns)
        self._hand_over()
        self.abandon(Leaving.ENDED)
        self._owe_receipt(frame)
        unit = self._unit.take(self._lane, self._give_last_receipts)
        # Its receipt also stands for acknowledgements that asked for none.
        unit.needs_order = self._subscribing.had_durable and unit.owes_receipt
        self._submit(unit)

    # Parts of the above --------------------------------------------------------------------------------------------

    def _settle(self, frame: Frame, delivery: Named | None) -> None:
        if delivery is None:
            self.late_answers += 1
        else:
            self._answer_between(frame, delivery.consumer, [(delivery.number, delivery.number)])

    def _answer_between(self, frame: Frame, consumer: Consumer, ranges: list[tuple[int, int]]) -> None:
        """Each range is the first and the last of the numbers of some deliveries."""
        if frame.command == "ACK":
            for first, last in ranges:
                self._unit.acknowledge(consumer, first, last)
            return
        # One time for the whole chunk: what is refused together comes again together, in its order.
        refusal = read_refusal(frame.headers, self._applied_at_ns)
        for first, last in ranges:
            self.refusals += last + 1 - first
            self._unit.refuse(consumer, first, last, refusal)

    def _answer_run(self, run: AnswerRun) -> None:
        """Many bare ACKs or NACKs, looked up in one step if they name deliveries of one consumer."""
        ordinals, digits = zip(*run.ids, strict=True)
        consumer = self.consumers.find_open(int(ordinals[0]))
        if consumer is not None and ordinals.count(ordinals[0]) == len(ordinals):
            ranges = _ranges_of(list(map(int, digits)))
            takes = consumer.subscription.browser is None and (run.command == "ACK" or not consumer.is_cumulative)
            if takes and all(map(consumer.sent.was_given, chain.from_iterable(ranges))):
                self._answer_between(run, consumer, ranges)
                return
        for ordinal, number in run.ids:
            delivery = self.consumers.find_by_ack_id(f"{ordinal.decode()}-{number.decode()}")
            self._settle(run, delivery)

    def _owe_receipt(self, frame: Frame) -> None:
        if frame.receipt is not None:
            self._unit.receipts.append(frame.receipt)

    def _hand_over(self, *, needs_order: bool = False) -> None:
        """Give what was gathered to the journal."""
        if self._unit:
            unit = self._unit.take(self._lane, self._give_receipts)
            unit.needs_order = needs_order
            self._submit(unit)

    def _submit(self, unit: Unit) -> None:
        unit.refused = unit.refused or self._refuse
        self._context.journal.submit(unit)

    def _refuse(self, reason: str) -> None:
        """The store rejects what this client sent for good."""
        self._client.disconnect(PeerViolation("cannot be stored", reason))

    def _receipt_of(self, frame: Frame) -> Callable[[], None]:
        """Gives the receipt that a frame asks for, if any."""
        return partial(self._give_receipts, [] if frame.receipt is None else [frame.receipt])

    def _give_receipts(self, receipts: list[str]) -> None:
        if receipts:
            self._outbox.put(render_receipts(receipts, self._client.version, self._context.settings.after_frame))

    def _give_last_receipts(self, receipts: list[str]) -> None:
        self._give_receipts(receipts)
        self._client.end()


def _ranges_of(numbers: list[int]) -> list[tuple[int, int]]:
    """Numbers in a row, as they come, are one range: first and last. Work that grows with their count is done in C."""
    first, last = numbers[0], numbers[-1]
    if last - first + 1 == len(numbers) and numbers == list(range(first, last + 1)):
        return [(first, last)]
    found: list[tuple[int, int]] = []
    position = 0
    for distance, in_a_row in groupby(map(sub, numbers, count())):
        stop = position + len(list(in_a_row))
        found.append((distance + position, distance + stop - 1))
        position = stop
    return found


_APPLY: Final[Mapping[str, Callable[[Commands, Frame], None]]] = {
    "SEND": Commands._send_in_transaction,
    "SUBSCRIBE": Commands._subscribe,
    "UNSUBSCRIBE": Commands._unsubscribe,
    "ACK": Commands._answer,
    "NACK": Commands._answer,
    "BEGIN": Commands._begin,
    "COMMIT": Commands._commit,
    "ABORT": Commands._abort,
    "DISCONNECT": Commands._disconnect,
}


def _check_length(topic: Topic) -> None:
    """Raise PeerViolation if a queue holds as many messages as it may. What is on its way to it does not count."""
    for reading in topic.readings.values() if topic.is_queue else ():
        held = reading.unsettled
        if held >= topic.policy.queue_max_messages:
            raise PeerViolation(
                "queue is full",
                f"{str(topic.destination)!r} holds {held} messages, and may hold {topic.policy.queue_max_messages} "
                "(queue_max_messages); send more when consumers have acknowledged some",
            )
