"""What a client's frames do to topics.

Law: one method per command, synchronous. It gathers what frames change and hands it to the journal as one unit: at the
end of a chunk, and before any frame whose effect must not be mixed with what came before it.
Mistakes are raised as PeerViolation. The session sends the ERROR, and parks frames that have to be held back.

Hot path: `_publish_run`, for all SENDs of one head at once. `make bench` (topic 1→1) and
`tests/sessions/test_hot_path.py` guard it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, ClassVar, final

from stompbroker.changes import Unit
from stompbroker.clock import NANOSECONDS
from stompbroker.delivery import Leaving
from stompbroker.errors import PeerViolation
from stompbroker.sessions.consumers import Consumers
from stompbroker.sessions.delivery_headers import read_refusal
from stompbroker.sessions.header_values import check_name
from stompbroker.sessions.open_transaction import OpenTransaction
from stompbroker.sessions.publishing import Publishing
from stompbroker.sessions.subscribe_headers import asks_for_durable
from stompbroker.sessions.subscribing import Subscribing
from stompbroker.sessions.unit_builder import UnitBuilder
from stompbroker.stomp import (
    AnswerRun,
    SendRun,
    Transactions,
    Version,
    forbid_body,
    render_receipts,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from stompbroker.changes import Lane
    from stompbroker.delivery import Consumer, Gate, Topic
    from stompbroker.sessions.client import Client
    from stompbroker.sessions.consumers import Named
    from stompbroker.sessions.outbox import Outbox
    from stompbroker.sessions.session_context import SessionContext
    from stompbroker.stomp import Frame

__all__ = ["Commands"]


@final
class Commands:
    """
    Invariants:
        nothing is applied once `is_over` is set
        the open transactions are those of `_open_transactions`, oldest first
        the unit being built is empty between two calls from outside
    """

    __slots__ = (
        "_applied_at_ns",
        "_client",
        "_context",
        "_lane",
        "_open_transactions",
        "_outbox",
        "_publishing",
        "_subscribing",
        "_transactions",
        "_unit",
        "consumers",
        "held_by",
        "is_over",
        "late_answers",
        "refusals",
    )

    def __init__(
        self,
        context: SessionContext,
        client: Client,
        outbox: Outbox,
        lane: Lane,
    ) -> None:
        self._context = context
        #: When the frames came that are being applied.
        self._applied_at_ns = 0
        self._client = client
        self._outbox = outbox
        self._lane = lane
        self._publishing = Publishing(context, client)
        self._unit = UnitBuilder()
        self._transactions = Transactions(context.settings.limits)
        self._open_transactions: dict[str, OpenTransaction] = {}
        self.consumers = Consumers(context.message_ids, context.settings.max_subscriptions)
        self._subscribing = Subscribing(context, client, self.consumers, outbox, lane)
        #: The topic that was full, or the journal's gate that was closed, when a frame had to be held back.
        self.held_by: Gate | None = None
        #: Answers to deliveries of subscriptions that were closed by then.
        self.late_answers = 0
        #: NACKs since the session last set it to 0.
        self.refusals = 0
        self.is_over = False

    @property
    def client(self) -> Client:
        return self._client

    # For the session -------------------------------------------------------------------------------------------------

    def introduce(self, version: Version, client_id: str | None) -> None:
        """What is known of the client since its CONNECT. Raises PeerViolation."""
        self._client.version = version
        self._client.client_id = None if client_id is None else check_name("client-id", client_id)
        self._client.name = client_id or self._context.message_ids.connection_name(self._client.connection_id)

    @property
    def kept_bytes(self) -> int:
        """What open transactions keep in memory."""
        return self._transactions.size_bytes

    @property
    def commit_by_ns(self) -> int | None:
        """When the oldest open transaction is given up; None if there is none."""
        oldest = next(iter(self._open_transactions.values()), None)
        return None if oldest is None else oldest.begun_at_ns + self._context.settings.transaction_timeout_ns

    def check_transactions(self, now_ns: int) -> None:
        """Raise PeerViolation if one is open for too long."""
        if self.commit_by_ns is not None and now_ns >= self.commit_by_ns:
            timeout_s = self._context.settings.transaction_timeout_ns / NANOSECONDS
            raise PeerViolation(
                "transaction open too long",
                f"{next(iter(self._open_transactions))!r} was neither committed nor aborted within {timeout_s:g} s; "
                "COMMIT sooner",
            )

    def apply(self, frames: Sequence[Frame]) -> int:
        """Apply frames in order until one has to be held back; returns how many were applied.

        Raises PeerViolation for a frame that is wrong; what stood before it has been applied by then.
        """
        now_ns = self._applied_at_ns = self._context.clock.now_ns()
        try:
            for index, frame in enumerate(frames):
                if isinstance(frame, SendRun):
                    is_applied = self._publish_run(frame, now_ns)
                else:
                    is_applied = self._apply_other(frame)
                if not is_applied:
                    return index
                if self.is_over:
                    break
        finally:
            self._hand_over()
        return len(frames)

    def abandon(self, leaving: Leaving) -> None:
        """End all its open transactions and subscriptions, and apply nothing more."""
        self.is_over = True
        for transaction in self._open_transactions.values():
            transaction.end()
        self._open_transactions.clear()
        self._transactions.clear()
        self._client.leave_topics()
        self._context.registry.leave(self.consumers.clear(), self._context.clock.now_ns(), leaving=leaving)

    def when_done(self, then: Callable[[], None]) -> None:
        """Call `then` when everything this client asked for before has been done."""
        self._context.journal.submit(Unit(then=then, lane=self._lane))

    def check_invariants(self) -> None:
        self._transactions.check_invariants()
        assert self._open_transactions.keys() == self._transactions.names()
        assert not self._unit
        assert not self.is_over or not self.consumers

    # SEND ------------------------------------------------------------------------------------------------------------

    def _publish_run(self, run: SendRun, now_ns: int) -> bool:
        """SENDs with one head. False if their topic is blocked."""
        if self._is_held_by(self._publishing.plan(run.head, run.receipt).topic):
            return False
        self._publishing.gather(run, self._unit, now_ns)
        return True

    def _is_held_by(self, topic: Topic) -> bool:
        """Whether what is published to this topic has to wait, for the topic or for the journal."""
        if topic.gate.is_blocked:
            self.held_by = topic.gate
            return True
        if topic.is_stored and self._context.journal.gate.is_blocked:
            self.held_by = self._context.journal.gate
            return True
        return False

    # Everything else: each returns False if the frame has to be held back ---------------------------------------------

    def _apply_other(self, frame: Frame) -> bool:
        try:
            if frame.body and frame.command != "SEND":
                forbid_body(frame, self._client.version)
            return self._COMMANDS[frame.command](self, frame)
        except PeerViolation as violation:
            violation.receipt = violation.receipt or frame.receipt
            raise

    def _send_in_transaction(self, frame: Frame) -> bool:
        # Planned now: a wrong destination is told at once, and COMMIT, which is one step, has less to do.
        self._publishing.plan(frame.head, frame.receipt)
        self._gather(frame)
        return True

    def _subscribe(self, frame: Frame) -> bool:
        request = self._subscribing.read(frame.headers)
        # What this client sent before it subscribed is not for it.
        self._hand_over()
        self._submit(self._subscribing.open(request, self._receipt_of(frame)))
        return True

    def _unsubscribe(self, frame: Frame) -> bool:
        # Answers that came before it in the same chunk still count.
        self._hand_over()
        if asks_for_durable(frame.headers):
            self._submit(self._subscribing.delete(frame.headers, self._receipt_of(frame)))
            return True
        is_kept = self._subscribing.close(frame.headers)
        self._owe_receipt(frame)
        # Its receipt also stands for acknowledgements that asked for none.
        self._hand_over(needs_order=is_kept)
        return True

    def _answer(self, frame: Frame) -> bool:
        """ACK and NACK."""
        if isinstance(frame, AnswerRun):
            self._answer_run(frame)
            return True
        delivery = self.consumers.find_delivery(frame.headers, self._client.version)
        if frame.command == "NACK":
            read_refusal(frame.headers, 0)  # raises before anything is gathered
        if "transaction" in frame.headers:
            self._gather(frame)
            transaction = self._open_transactions[frame.headers["transaction"]]
            transaction.deliveries.append(delivery)
            if delivery is not None and frame.command == "ACK":
                transaction.borrow(delivery)
        else:
            self._settle(frame, delivery)
            self._owe_receipt(frame)
        return True

    def _begin(self, frame: Frame) -> bool:
        transaction = frame.headers["transaction"]
        self._transactions.begin(transaction)
        self._open_transactions[transaction] = OpenTransaction(self._context.clock.now_ns())
        self._owe_receipt(frame)
        return True

    def _commit(self, frame: Frame) -> bool:
        """Everything the transaction gathered becomes one unit, and so happens as a whole or not at all."""
        # First what came before it: that may fill a topic this transaction publishes to.
        self._hand_over()
        transaction = frame.headers["transaction"]
        gathered = self._transactions.frames(transaction)
        topics = {self._publishing.plan(each.head, frame.receipt).topic for each in gathered if each.command == "SEND"}
        if any(self._is_held_by(topic) for topic in topics):
            return False
        deliveries = iter(self._open_transactions[transaction].deliveries)
        self._end_transaction(transaction)
        now_ns = self._context.clock.now_ns()
        for each in gathered:
            if each.command == "SEND":
                self._publishing.gather(SendRun(each.head, each.body, None), self._unit, now_ns)
            else:
                self._settle(each, next(deliveries))
        self._owe_receipt(frame)
        unit = self._unit.take(self._lane, self._give_receipts)
        unit.is_transaction = True
        self._submit(unit)
        return True

    def _abort(self, frame: Frame) -> bool:
        self._end_transaction(frame.headers["transaction"])
        self._owe_receipt(frame)
        return True

    def _disconnect(self, frame: Frame) -> bool:
        self._hand_over()
        self.abandon(Leaving.ENDED)
        self._owe_receipt(frame)
        unit = self._unit.take(self._lane, self._give_last_receipts)
        # Its receipt also stands for acknowledgements that asked for none.
        unit.needs_order = self._subscribing.had_durable and unit.owes_receipt
        self._submit(unit)
        return True

    _COMMANDS: ClassVar[Mapping[str, Callable[[Commands, Frame], bool]]] = {
        "SEND": _send_in_transaction,
        "SUBSCRIBE": _subscribe,
        "UNSUBSCRIBE": _unsubscribe,
        "ACK": _answer,
        "NACK": _answer,
        "BEGIN": _begin,
        "COMMIT": _commit,
        "ABORT": _abort,
        "DISCONNECT": _disconnect,
    }

    # Parts of the above --------------------------------------------------------------------------------------------

    def _settle(self, frame: Frame, delivery: Named | None) -> None:
        if delivery is None:
            self.late_answers += 1
        else:
            self._answer_between(frame, delivery.consumer, delivery.number, delivery.number)

    def _answer_between(self, frame: Frame, consumer: Consumer, first: int, last: int) -> None:
        if frame.command == "ACK":
            self._unit.acknowledge(consumer, first, last)
        else:
            self.refusals += last + 1 - first
            # One time for the whole chunk: what is refused together comes again together, in its order.
            self._unit.refuse(consumer, first, last, read_refusal(frame.headers, self._applied_at_ns))

    def _answer_run(self, run: AnswerRun) -> None:
        """Many bare ACKs or NACKs. If they name neighbouring deliveries of one consumer, as they mostly do, it is one
        step."""
        ordinals, digits = zip(*run.ids, strict=True)
        numbers = list(map(int, digits))
        first, last = numbers[0], numbers[-1]
        is_gapless = last - first + 1 == len(numbers) and numbers == list(range(first, last + 1))
        if is_gapless and ordinals.count(ordinals[0]) == len(ordinals):
            consumer = self.consumers.find_open(int(ordinals[0]))
            is_known = consumer is not None and consumer.sent.was_given(first) and consumer.sent.was_given(last)
            if consumer is not None and is_known and (run.command == "ACK" or not consumer.is_cumulative):
                self._answer_between(run, consumer, first, last)
                return
        for ordinal, number in run.ids:
            delivery = self.consumers.find_by_ack_id(f"{ordinal.decode()}-{number.decode()}")
            self._settle(run, delivery)

    def _gather(self, frame: Frame) -> None:
        """Keep a frame for COMMIT. Its receipt says that it was received, and COMMIT's that it was done."""
        self._transactions.add(frame.headers["transaction"], frame)
        self._owe_receipt(frame)

    def _end_transaction(self, transaction: str) -> None:
        self._transactions.end(transaction)
        self._open_transactions.pop(transaction).end()

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
        """The store cannot take what this client sent, whatever is tried."""
        self._client.disconnect(PeerViolation("cannot be stored", reason))

    def _receipt_of(self, frame: Frame) -> Callable[[], None]:
        """Gives the receipt that a frame asks for, if it does."""
        return partial(self._give_receipts, [] if frame.receipt is None else [frame.receipt])

    def _give_receipts(self, receipts: list[str]) -> None:
        if receipts:
            self._outbox.put(render_receipts(receipts, self._client.version, self._context.settings.after_frame))

    def _give_last_receipts(self, receipts: list[str]) -> None:
        self._give_receipts(receipts)
        self._client.end()
