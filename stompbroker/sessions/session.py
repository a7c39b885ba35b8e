"""One connected client: what its frames do to topics, and what it is told.

Law: synchronous. The worker feeds it chunks and sends its outbox, the pacemaker calls `beat`; everything between two
calls is consistent. Knows no socket. Every frame of a chunk is applied in one loop, and the chunk's changes go to the
journal as one unit; receipts are owed when that unit is complete.

A client that publishes to a topic whose window is full is *held back*: its SENDs, and whatever comes behind them, are
parked, while ACK, NACK and heart-beats still count, since they are what may give the topic room again.

Hot path: `_publish_run`, for all SENDs of one head at once. `make bench` (topic 1→1) and
`tests/sessions/test_hot_path.py` guard it.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, ClassVar, final

import structlog

from stompbroker.clock import NANOSECONDS
from stompbroker.errors import InvalidDestination, PeerViolation
from stompbroker.message import Message
from stompbroker.outbox import Outbox
from stompbroker.sessions.batch import Batch
from stompbroker.sessions.borrowing import Borrowing
from stompbroker.sessions.consumers import Consumers
from stompbroker.sessions.parking import Parking
from stompbroker.sessions.statistics import ConnectionStatistics
from stompbroker.sessions.subscribe_headers import read_subscribe
from stompbroker.sessions.vital_signs import VitalSigns
from stompbroker.signals import Signal
from stompbroker.stomp import (
    HEART_BEAT,
    MAX_FRAMES_PER_CALL,
    MESSAGE_TAIL,
    AckRun,
    Connection,
    SendRun,
    Transactions,
    Version,
    forbid_body,
    render_error,
    render_passed_through,
    render_receipts,
)
from stompbroker.topics import Consumer, Subscription, parse_topic_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from stompbroker.ids import ConnectionId
    from stompbroker.sessions.consumers import Named
    from stompbroker.sessions.surroundings import Surroundings
    from stompbroker.stomp import Frame, Head
    from stompbroker.topics import Topic

__all__ = ["Ending", "Session"]

log = structlog.get_logger()


def _do_nothing() -> None:
    """What is interrupted while nobody reads."""


@final
class Ending(Enum):
    """Why nothing more is taken from a client."""

    DISCONNECTED = "the client said DISCONNECT"
    FAILED = "the client was sent an ERROR"
    LOST = "the connection is gone"


@final
class _SendPlan:
    """What a SEND's header block comes to; kept on the head, which all frames with the same block share."""

    __slots__ = ("headers", "is_plain", "passed_through", "topic")

    def __init__(self, head: Head, topic: Topic) -> None:
        self.headers = head.headers
        self.topic = topic
        self.passed_through = render_passed_through(head.headers, Version.V1_2)
        self.is_plain = b"\\r" not in self.passed_through


@final
class _Begun:
    """When an open transaction began, and what was answered in it."""

    __slots__ = ("at_ns", "borrowing", "deliveries")

    def __init__(self, at_ns: int) -> None:
        self.at_ns = at_ns
        self.borrowing = Borrowing()
        #: What its ACKs and NACKs named, in their order: found out when they came, so that COMMIT cannot fail halfway.
        self.deliveries: list[Named | None] = []


@final
class Session:
    """
    Invariants:
        nothing is applied and nothing delivered once `ending` is set
        while anything is parked, every frame that comes is parked behind it, except ACK and NACK outside transactions
        partial frames, parked frames and transactions are charged to the memory budget
    """

    __slots__ = (
        "_around",
        "_batch",
        "_begun",
        "_charged_bytes",
        "_consumers",
        "_held_by",
        "_parking",
        "_parking_full_since_ns",
        "_protocol",
        "_transactions",
        "_vital_signs",
        "bytes_in",
        "connected_at_ns",
        "connection_id",
        "ending",
        "interrupt",
        "late_answers",
        "outbox",
        "peer",
        "resumed",
    )

    def __init__(self, around: Surroundings, connection_id: ConnectionId, peer: str) -> None:
        settings = around.settings
        now_ns = around.clock.now_ns()
        self._around = around
        self.connection_id = connection_id
        #: The client's address, for people to read.
        self.peer = peer
        self.connected_at_ns = now_ns
        self.bytes_in = 0
        #: Answers to deliveries of subscriptions that were closed by then.
        self.late_answers = 0
        self.outbox = Outbox(around.budget)
        self.ending: Ending | None = None
        #: Called when `ending` is set, to stop the worker's reading; the worker's to set.
        self.interrupt: Callable[[], None] = _do_nothing
        #: Woken when parked frames were applied.
        self.resumed = Signal()
        self._protocol = Connection(
            settings.limits,
            heart_beat_send_ms=settings.heart_beat_send_ms,
            heart_beat_want_ms=settings.heart_beat_want_ms,
        )
        self._vital_signs = VitalSigns(now_ns, settings.connect_timeout_ns)
        self._consumers = Consumers(around.message_ids, settings.max_subscriptions)
        self._transactions = Transactions(settings.limits)
        #: The open transactions, oldest first.
        self._begun: dict[str, _Begun] = {}
        self._batch = Batch()
        self._parking = Parking(around.budget, settings.parking_bytes)
        self._parking_full_since_ns: int | None = None
        self._held_by: Topic | None = None
        #: Partial frames and transactions, as last charged.
        self._charged_bytes = 0
        around.rhythm.schedule(self, now_ns + settings.connect_timeout_ns)

    # Receiving -------------------------------------------------------------------------------------------------------

    @property
    def version(self) -> Version:
        return self._protocol.version

    @property
    def is_held_back(self) -> bool:
        return len(self._parking) > 0

    @property
    def wants_more(self) -> bool:
        """Whether the worker should read on: not when the client is done, nor while its parking is full."""
        return self.ending is None and not self._parking.is_full

    @property
    def partial_bytes(self) -> int:
        """Bytes of a frame that has not come in full."""
        return self._protocol.pending_bytes

    def receive(self, chunk: bytes) -> bool:
        """Take a chunk and apply its frames, at most MAX_FRAMES_PER_CALL of them.

        True if there are more: then `receive(b"")` goes on, after a checkpoint.
        """
        self.bytes_in += len(chunk)
        self._vital_signs.last_received_ns = self._around.clock.now_ns()
        try:
            frames = self._protocol.receive(chunk)
            if self.is_held_back:
                self._overtake_or_park(frames)
            else:
                self._apply_or_park(frames)
        except PeerViolation as violation:
            self._batch_done()
            if self.is_held_back:
                self._parking.put(violation)
            else:
                self.fail(violation)
        self._charge()
        return self._protocol.has_more and self.ending is None

    def resume(self) -> bool:
        """Apply parked frames, at most MAX_FRAMES_PER_CALL of them. True if there are more that can be applied now."""
        if self.ending is not None:
            return False
        try:
            frames = self._parking.take(MAX_FRAMES_PER_CALL)
            applied = self._apply(frames)
        except PeerViolation as violation:
            self._batch_done()
            self.fail(violation)
            return False
        self._parking.put_back(frames[applied:])
        self._note_parking()
        self.resumed.wake()
        return self.is_held_back and applied > 0

    async def wait_released(self) -> None:
        """Until the topic that holds this session back takes messages again, or there is nothing to wait for."""
        while self.ending is None and self._held_by is not None and self._held_by.is_blocked:
            await self._held_by.unblocked.wait()

    async def wait_wanting_more(self) -> None:
        """Until there is room for more of what this client sends, or it has ended."""
        while self.ending is None and self._parking.is_full:
            await self.resumed.wait_either(self._around.budget.eased)
            self._note_parking()

    def _apply_or_park(self, frames: Sequence[Frame]) -> None:
        applied = self._apply(frames)
        if applied < len(frames):
            self._overtake_or_park(frames[applied:])

    def _overtake_or_park(self, frames: Sequence[Frame]) -> None:
        """Answers count at once; everything else keeps its order behind what is parked."""
        for frame in frames:
            if frame.command in ("ACK", "NACK") and "transaction" not in frame.headers:
                self._apply_other(frame)
            else:
                self._parking.put(frame)
        self._batch_done()
        self._note_parking()

    def _note_parking(self) -> None:
        if not self._parking.is_full:
            self._parking_full_since_ns = None
        elif self._parking_full_since_ns is None:
            self._parking_full_since_ns = self._around.clock.now_ns()
            self._look_at_times()

    def _apply(self, frames: Sequence[Frame]) -> int:
        """Apply frames in order until one has to be held back; returns how many were applied."""
        now_ns = self._around.clock.now_ns()
        for index, frame in enumerate(frames):
            is_applied = self._publish_run(frame, now_ns) if isinstance(frame, SendRun) else self._apply_other(frame)
            if not is_applied:
                self._batch_done()
                return index
            if self.ending is not None:
                return len(frames)
        self._batch_done()
        return len(frames)

    def _publish_run(self, run: SendRun, now_ns: int) -> bool:
        """The hot path: SENDs with one head, each made a message on its topic's run. False if the topic is blocked."""
        plan = self._plan_send(run.head, run.receipt)
        if plan.topic.is_blocked:
            self._held_by = plan.topic
            return False
        headers, passed_through, is_plain = plan.headers, plan.passed_through, plan.is_plain
        connection_id = self.connection_id
        message_ids = self._around.message_ids
        prefix, first = message_ids.prefix, message_ids.next_number
        message_ids.next_number = first + len(run.bodies)
        messages = [
            Message(
                headers,
                len(body),
                MESSAGE_TAIL % (b"%b%d" % (prefix, number), len(body), passed_through, body),
                is_plain,
                connection_id,
                now_ns,
            )
            for number, body in enumerate(run.bodies, first)
        ]
        batch = self._batch
        if plan.topic in batch.publications:
            batch.publications[plan.topic] += messages
        else:
            batch.publications[plan.topic] = messages
        if run.receipts:
            batch.receipts.extend([receipt for receipt in run.receipts if receipt is not None])
        return True

    def _plan_send(self, head: Head, receipt: str | None) -> _SendPlan:
        plan = head.plan
        if not isinstance(plan, _SendPlan) or plan.topic.is_removed:
            plan = _SendPlan(head, self._topic_of(head, receipt))
            head.plan = plan
        return plan

    def _topic_of(self, head: Head, receipt: str | None) -> Topic:
        try:
            name = parse_topic_name(head.headers["destination"])
        except InvalidDestination as error:
            raise PeerViolation("invalid destination", str(error), receipt=receipt) from None
        return self._around.registry.topic(name, self._around.clock.now_ns())

    def _apply_other(self, frame: Frame) -> bool:
        """Apply any frame but a plain SEND. False if it has to be held back."""
        if self.ending is not None:
            return True
        try:
            if frame.body and frame.command != "SEND":
                forbid_body(frame, self.version)
            return self._COMMANDS[frame.command](self, frame)
        except PeerViolation as violation:
            violation.receipt = violation.receipt or frame.receipt
            raise

    def _batch_done(self) -> None:
        """Hand what was gathered to the journal."""
        if self._batch:
            self._around.journal.submit(self._batch.take(self._give_receipts))

    def _charge(self) -> None:
        kept_bytes = self._protocol.pending_bytes + self._transactions.size_bytes
        self._around.budget.adjust(kept_bytes - self._charged_bytes)
        self._charged_bytes = kept_bytes

    # Commands: each returns False if the frame has to be held back ----------------------------------------------------

    def _connect(self, frame: Frame) -> bool:
        greeting = self._protocol.greeting
        assert greeting is not None
        self._vital_signs.connected(greeting.heart_beats, self._around.settings.heart_beat_margin)
        self.outbox.put(self._protocol.render_connected(str(self.connection_id), self._around.server))
        self._look_at_times()
        return True

    def _send_in_transaction(self, frame: Frame) -> bool:
        # Planned now: a wrong destination is told at once, and COMMIT, which is one step, has less to do.
        self._plan_send(frame.head, frame.receipt)
        self._gather(frame)
        return True

    def _subscribe(self, frame: Frame) -> bool:
        request = read_subscribe(frame.headers, self._around.settings)
        self._consumers.check_may_open(request.name, request.destination)
        subscription = Subscription(
            name=request.name,
            destination=request.destination,
            pattern=request.pattern,
            ack_mode=request.ack_mode,
            is_no_local=request.is_no_local,
            connection_id=self.connection_id,
        )
        registry = self._around.registry
        consumer = Consumer(
            subscription,
            ordinal=self._consumers.next_ordinal,
            version=self.version,
            outbox=self.outbox,
            credit=request.credit,
            queue=registry.ready,
            redeliveries=registry.redeliveries,
            disconnect=self.fail,
        )
        self._consumers.add(consumer)
        self._owe_receipt(frame)
        # What this client sent before it subscribed is not for it, and its receipt comes before its first message.
        self._batch_done()
        registry.attach(subscription, consumer, self._around.clock.now_ns())
        return True

    def _unsubscribe(self, frame: Frame) -> bool:
        consumer = self._consumers.remove(frame.headers.get("id"), frame.headers.get("destination"))
        # Answers that came before it in the same chunk still count.
        self._batch_done()
        self._around.registry.close([consumer.subscription], self._around.clock.now_ns())
        self._owe_receipt(frame)
        return True

    def _answer(self, frame: Frame) -> bool:
        """ACK and NACK."""
        if isinstance(frame, AckRun):
            self._acknowledge_run(frame)
            return True
        delivery = self._consumers.find_delivery(frame.headers, self.version)
        if "transaction" in frame.headers:
            self._gather(frame)
            begun = self._begun[frame.headers["transaction"]]
            begun.deliveries.append(delivery)
            if delivery is not None and frame.command == "ACK":
                begun.borrowing.add(delivery)
        else:
            self._settle(frame, delivery)
            self._owe_receipt(frame)
        return True

    def _begin(self, frame: Frame) -> bool:
        transaction = frame.headers["transaction"]
        self._transactions.begin(transaction)
        self._begun[transaction] = _Begun(self._around.clock.now_ns())
        self._owe_receipt(frame)
        self._look_at_times()
        return True

    def _commit(self, frame: Frame) -> bool:
        """Everything the transaction gathered becomes one unit, and so happens as a whole or not at all."""
        transaction = frame.headers["transaction"]
        gathered = self._transactions.frames(transaction)
        topics = {self._plan_send(each.head, frame.receipt).topic for each in gathered if each.command == "SEND"}
        for topic in topics:
            if topic.is_blocked:
                self._held_by = topic
                return False
        self._batch_done()
        deliveries = iter(self._begun[transaction].deliveries)
        self._end_transaction(transaction)
        now_ns = self._around.clock.now_ns()
        for each in gathered:
            if each.command == "SEND":
                self._publish_run(SendRun(each.head, each.body, None), now_ns)
            else:
                self._settle(each, next(deliveries))
        self._owe_receipt(frame)
        self._batch_done()
        return True

    def _abort(self, frame: Frame) -> bool:
        self._end_transaction(frame.headers["transaction"])
        self._owe_receipt(frame)
        return True

    def _disconnect(self, frame: Frame) -> bool:
        self._batch_done()
        self._abandon()
        self._owe_receipt(frame)
        self._around.journal.submit(self._batch.take(self._give_last_receipts))
        return True

    _COMMANDS: ClassVar[Mapping[str, Callable[[Session, Frame], bool]]] = {
        "CONNECT": _connect,
        "STOMP": _connect,
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

    # What commands are made of ---------------------------------------------------------------------------------------

    def _settle(self, frame: Frame, delivery: Named | None) -> None:
        if delivery is None:
            self.late_answers += 1
        elif frame.command == "ACK":
            self._batch.acknowledge(delivery.consumer, delivery.number, delivery.number)
        else:
            self._batch.refuse(
                delivery.consumer,
                delivery.number,
                due_ns=self._around.clock.now_ns() + self._around.settings.nack_delay_ns,
                reason=frame.headers.get("reason", ""),
            )

    def _acknowledge_run(self, run: AckRun) -> None:
        """Many bare ACKs. If they name neighbouring deliveries of one consumer, as they mostly do, it is one step."""
        ordinal, first = run.ids[0]
        count = len(run.ids)
        start = int(first)
        if run.ids == [(ordinal, b"%d" % number) for number in range(start, start + count)]:
            consumer = self._consumers.find_open(int(ordinal))
            if consumer is not None and consumer.sent.was_given(start) and consumer.sent.was_given(start + count - 1):
                self._batch.acknowledge(consumer, start, start + count - 1)
                return
        for ordinal, number in run.ids:
            delivery = self._consumers.find_by_ack_id(f"{ordinal.decode()}-{number.decode()}")
            if delivery is None:
                self.late_answers += 1
            else:
                self._batch.acknowledge(delivery.consumer, delivery.number, delivery.number)

    def _gather(self, frame: Frame) -> None:
        """Keep a frame for COMMIT. Its receipt says that it was received, and COMMIT's that it was done."""
        self._transactions.add(frame.headers["transaction"], frame)
        self._owe_receipt(frame)

    def _end_transaction(self, transaction: str) -> None:
        self._transactions.end(transaction)
        self._begun.pop(transaction).borrowing.end()

    def _owe_receipt(self, frame: Frame) -> None:
        if frame.receipt is not None:
            self._batch.receipts.append(frame.receipt)

    def _give_receipts(self, receipts: list[str]) -> None:
        if receipts:
            self.outbox.put(render_receipts(receipts, self.version))

    def _give_last_receipts(self, receipts: list[str]) -> None:
        self._give_receipts(receipts)
        self._end(Ending.DISCONNECTED)

    # Time ------------------------------------------------------------------------------------------------------------

    def _look_at_times(self) -> None:
        """Have `beat` called soon: something with a time limit has begun."""
        self._around.rhythm.schedule(self, self._around.clock.now_ns())

    def beat(self, now_ns: int) -> int | None:
        """Do what is due: send a heart-beat, give up a client that is overdue. Returns when to be called again."""
        if self.ending is not None:
            return None
        settings = self._around.settings
        try:
            self._vital_signs.check(now_ns, is_reading=self.wants_more)
            self._check_transactions(now_ns)
            self._check_parking(now_ns)
        except PeerViolation as violation:
            self.fail(violation)
            return None
        if self._vital_signs.owes_heart_beat(self.outbox.put_bytes):
            self.outbox.put(HEART_BEAT)
        due = [self._vital_signs.next_look_ns(now_ns)]
        if self._begun:
            due.append(next(iter(self._begun.values())).at_ns + settings.transaction_timeout_ns)
        if self._parking_full_since_ns is not None:
            due.append(self._parking_full_since_ns + settings.block_timeout_ns)
        return min((at_ns for at_ns in due if at_ns is not None), default=None)

    def _check_transactions(self, now_ns: int) -> None:
        for transaction, begun in self._begun.items():
            if now_ns - begun.at_ns < self._around.settings.transaction_timeout_ns:
                break  # the others were begun later
            raise PeerViolation(
                "transaction open too long",
                f"{transaction!r} was neither committed nor aborted within "
                f"{self._around.settings.transaction_timeout_ns / NANOSECONDS:g} s",
            )

    def _check_parking(self, now_ns: int) -> None:
        """A client that is held back for long while we wait for its answers may be waiting for itself."""
        full_since_ns = self._parking_full_since_ns
        if full_since_ns is None or now_ns - full_since_ns < self._around.settings.block_timeout_ns:
            return
        self._parking_full_since_ns = now_ns
        if self._consumers.in_flight and self._held_by is not None:
            raise PeerViolation(
                "held back too long",
                f"topic {self._held_by.name!r} is full, {self._parking.size_bytes} bytes of what this connection sent "
                f"wait for it, and {self._consumers.in_flight} deliveries to it are not acknowledged",
            )

    # Ending ----------------------------------------------------------------------------------------------------------

    def fail(self, violation: PeerViolation) -> None:
        """Tell the client what is wrong; from then on it gets nothing more, and nothing more is taken from it."""
        if self.ending is not None:
            return
        self._protocol.fail()
        self._abandon()
        self.outbox.put(render_error(violation, self.version))
        log.info("client failed", connection=self.connection_id, peer=self.peer, error=str(violation))
        self._end(Ending.FAILED)

    def lose(self) -> None:
        """The connection is gone, or about to be: give back everything that was kept for it."""
        self._abandon()
        self._end(self.ending or Ending.LOST)
        self.outbox.close()
        self._parking.clear()
        self._around.budget.adjust(-self._charged_bytes)
        self._charged_bytes = 0

    def _abandon(self) -> None:
        """Open transactions and all subscriptions end."""
        for begun in self._begun.values():
            begun.borrowing.end()
        self._begun.clear()
        self._transactions.clear()
        subscriptions = [consumer.subscription for consumer in self._consumers.clear()]
        self._around.registry.close(subscriptions, self._around.clock.now_ns())

    def _end(self, ending: Ending) -> None:
        self.ending = ending
        self._around.rhythm.forget(self)
        self.interrupt()
        self.resumed.wake()
        if self._held_by is not None:
            self._held_by.unblocked.wake()

    # Looking at it ---------------------------------------------------------------------------------------------------

    def statistics(self) -> ConnectionStatistics:
        return ConnectionStatistics(
            id=self.connection_id,
            peer=self.peer,
            version=self.version.value if self._protocol.greeting is not None else None,
            subscriptions=len(self._consumers),
            bytes_in=self.bytes_in,
            bytes_out=self.outbox.sent_bytes,
            connected_at_ns=self.connected_at_ns,
            is_held_back=self.is_held_back,
            late_answers=self.late_answers,
        )

    def check_invariants(self) -> None:
        self._transactions.check_invariants()
        assert self._begun.keys() == self._transactions.names()
        assert self.ending is None or not self._consumers
