"""Publishes at a fixed rate and receives the messages, to measure latency.

The schedule is open-loop: message n is due at start + n / rate whatever happened before, and its latency counts from
when it was *due*. So a broker that stops reading is charged for the whole queue it causes, not for one message
("coordinated omission"). The generator's own lateness is reported too, so that it is not taken for the broker's.

With a durable subscription the publisher asks for a receipt for every message and the subscriber acknowledges each;
neither waits for answers. One process, one clock, two connections. Told to stop, it publishes no more and waits for
what it has published.

At high rates some messages travel as companions: encoded once, sent before each timed message, and only counted. The
timed message is then the last of those due together.
"""

from __future__ import annotations

import select
import time
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from benchmarks.broken import Broken
from benchmarks.durable_identity import DurableIdentity, numbered_identity
from benchmarks.frame_counting import AckIdReader, FrameCounter, StampReader, stamped_body
from benchmarks.frames import acknowledge_all, send
from benchmarks.roles.child_end import ChildEnd, Stage, Stop
from benchmarks.session import Session, raise_if_error, receive

if TYPE_CHECKING:
    import socket

    from benchmarks.address import Address

_RECEIVE_BYTES: Final = 256 * 1024
_SECOND_NS: Final = 1_000_000_000
#: Seconds of polling instead of sleeping before a message is due: waking up takes the kernel about 0.1 ms, a third of
#: what is measured. It costs a fifth of a core at 1,000 messages a second.
_SPIN_S: Final = 0.0002
_SUBSCRIBER: Final = numbered_identity(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PacedAssignment:
    address: Address
    destination: str
    body_bytes: int
    messages_per_s: int
    #: At most: fewer if it is told to stop.
    messages: int
    #: Untimed messages sent before each timed one. All other numbers here count the timed ones.
    companions: int = 0
    is_durable: bool = False
    #: The durable subscriber; an identity never changes its destination.
    identity: DurableIdentity = _SUBSCRIBER
    #: Seconds without a message, once all are sent, after which missing ones count as lost.
    stall_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PacedReport:
    #: When the first message was due; number n was due n / rate later, and is the n-th of the latencies.
    starts_at_ns: int
    sent: int
    received: int
    #: Messages that arrived twice or out of order.
    misplaced: int
    #: From due to received, in the order of arrival.
    latencies_ns: array[int]
    #: From due to handed to the kernel.
    lateness_ns: array[int]
    #: From the first due time to the last arrival.
    elapsed_s: float
    processor_s: float


def run(assignment: PacedAssignment, control: ChildEnd) -> PacedReport:
    with (
        Session.open(assignment.address) as publisher,
        Session.open(assignment.address, identity=assignment.identity if assignment.is_durable else None) as subscriber,
    ):
        subscriber.subscribe(assignment.destination, ack_mode="client-individual" if assignment.is_durable else "auto")
        control.reach(Stage.READY)
        control.wait_word()
        processor_at_start = time.process_time()
        arrivals = Arrivals(subscriber.socket if assignment.is_durable else None)
        schedule = Schedule(assignment, publisher.socket, starts_at_ns=time.monotonic_ns())
        _keep_schedule(schedule, arrivals, subscriber.socket, control, assignment.stall_s)
        ended_at_ns = time.monotonic_ns()
        processor_s = time.process_time() - processor_at_start
        if assignment.is_durable:
            _wait_receipts(schedule, assignment.stall_s)
        receipts = schedule.receipts + publisher.leave()
        extra = subscriber.leave()
    if assignment.is_durable and receipts != schedule.messages_with_companions:
        raise Broken(f"{receipts:,} receipts for {schedule.messages_with_companions:,} messages")
    came, owed = arrivals.frames + extra, schedule.messages_with_companions
    if arrivals.count == schedule.messages and came != owed:
        difference = f"{came - owed:,} messages too many beside" if came > owed else f"{owed - came:,} are lost of"
        raise Broken(f"{difference} {owed:,}")
    return PacedReport(
        starts_at_ns=schedule.starts_at_ns,
        sent=schedule.messages,
        received=arrivals.count + extra,
        misplaced=arrivals.misplaced + extra,
        latencies_ns=arrivals.latencies_ns,
        lateness_ns=schedule.lateness_ns,
        elapsed_s=(ended_at_ns - schedule.starts_at_ns) / _SECOND_NS,
        processor_s=processor_s,
    )


def _keep_schedule(
    schedule: Schedule, arrivals: Arrivals, subscriber: socket.socket, control: ChildEnd, stall_s: float
) -> None:
    """Send what is due and receive, until everything is back or nothing more arrives."""
    subscriber.setblocking(False)
    waited_for: list[socket.socket | ChildEnd] = [subscriber, schedule.socket, control]
    while arrivals.count < schedule.messages:
        schedule.send_due(time.monotonic_ns())
        control.progress(arrivals.count)
        to_next_s = schedule.seconds_to_next(time.monotonic_ns())
        # `select` waits for microseconds, where `epoll` rounds up to milliseconds.
        readable, _, _ = select.select(
            waited_for,
            [schedule.socket] if schedule.has_unsent else [],
            [],
            stall_s if to_next_s is None else max(0.0, to_next_s - _SPIN_S),
        )
        if subscriber in readable:
            chunk = receive(subscriber, _RECEIVE_BYTES)
            arrivals.note(chunk, time.monotonic_ns())
            arrivals.acknowledge(chunk)
        if control in readable:
            assert isinstance(control.wait_word(), Stop)
            waited_for.remove(control)
            schedule.stop()
        if schedule.socket in readable:
            schedule.take_answers(receive(schedule.socket, _RECEIVE_BYTES))
        elif not readable and to_next_s is None and not schedule.has_unsent:
            return


def _wait_receipts(schedule: Schedule, stall_s: float) -> None:
    """Wait for the receipts: a broker may deliver before it has stored, and drop receipts on DISCONNECT."""
    while schedule.receipts < schedule.messages_with_companions:
        readable, _, _ = select.select([schedule.socket], [], [], stall_s)
        if not readable:
            return
        schedule.take_answers(receive(schedule.socket, _RECEIVE_BYTES))


@final
class Schedule:
    """The publishing side: message n is due at `starts_at_ns` + n / rate.

    Invariant: messages below `_next` are with the kernel, or in `_unsent` while the kernel takes none.
    """

    def __init__(self, assignment: PacedAssignment, connected: socket.socket, *, starts_at_ns: int) -> None:
        connected.setblocking(False)
        self.socket = connected
        self.messages = assignment.messages
        self.starts_at_ns = starts_at_ns
        self.lateness_ns = array("q")
        self._assignment = assignment
        self._headers = assignment.address.dialect.of_send(is_stored=assignment.is_durable)
        self._companions = assignment.companions * send(
            assignment.destination,
            b"x" * assignment.body_bytes,
            receipt="companion" if assignment.is_durable else None,
            headers=self._headers,
        )
        self._next = 0
        self._unsent = bytearray()
        self._receipts = FrameCounter()

    @property
    def messages_with_companions(self) -> int:
        return self.messages * (1 + self._assignment.companions)

    @property
    def receipts(self) -> int:
        return self._receipts.frames

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    def due_at_ns(self, number: int) -> int:
        return self.starts_at_ns + number * _SECOND_NS // self._assignment.messages_per_s

    def seconds_to_next(self, now_ns: int) -> float | None:
        """None if all have been handed over."""
        if self._next == self.messages:
            return None
        return max(0, self.due_at_ns(self._next) - now_ns) / _SECOND_NS

    def stop(self) -> None:
        """Nothing more becomes due."""
        self.messages = self._next

    def send_due(self, now_ns: int) -> None:
        while self._next < self.messages and (due_at_ns := self.due_at_ns(self._next)) <= now_ns:
            body = stamped_body(self._next, due_at_ns, body_bytes=self._assignment.body_bytes)
            receipt = f"{self._next}" if self._assignment.is_durable else None
            self._unsent += self._companions
            self._unsent += send(self._assignment.destination, body, receipt=receipt, headers=self._headers)
            self.lateness_ns.append(now_ns - due_at_ns)
            self._next += 1
        if self._unsent:
            try:
                del self._unsent[: self.socket.send(self._unsent)]
            except BlockingIOError:
                return  # the broker holds us back, and due times pass
            except ConnectionError as error:
                raise Broken(f"the broker dropped the publisher: {error}") from error

    def take_answers(self, chunk: bytes) -> None:
        """Receipts if requested; anything else is broken."""
        raise_if_error(chunk)
        if not self._assignment.is_durable:
            raise Broken(f"the broker told the publisher {chunk[:400]!r}")
        self._receipts.count(bytearray(chunk), len(chunk))


@final
class Arrivals:
    """The receiving side; acknowledges if it has a socket for that.

    Invariant: `count` messages have arrived, of which `misplaced` were not the successor of an earlier one.
    """

    def __init__(self, acknowledged_to: socket.socket | None = None) -> None:
        self._acknowledged_to = acknowledged_to
        self._ack_ids = AckIdReader()
        self.latencies_ns = array("q")
        self.misplaced = 0
        #: Including companions.
        self.frames = 0
        self._stamps = StampReader()
        self._newest = -1

    @property
    def count(self) -> int:
        return len(self.latencies_ns)

    def note(self, chunk: bytes, now_ns: int) -> None:
        self.frames += chunk.count(b"\0")
        for number, due_at_ns in self._stamps.read(chunk):
            self.latencies_ns.append(now_ns - due_at_ns)
            if number <= self._newest:
                self.misplaced += 1
            self._newest = max(self._newest, number)

    def acknowledge(self, chunk: bytes) -> None:
        if self._acknowledged_to is not None and (ack_ids := self._ack_ids.read(chunk)):
            # A few ACKs fit a buffer of megabytes; if not, the schedule is lost anyway.
            sent = acknowledge_all(ack_ids)
            if self._acknowledged_to.send(sent) != len(sent):
                raise Broken("the broker takes no acknowledgements from the subscriber")
