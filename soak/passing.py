"""A role of the load generator that passes messages through a durable topic and knows exactly how many are in flight.

A message is in flight from its SEND until the receipt for its ACK; a window bounds their number. SENDs are written in
batches whose last one asks for a receipt; so are ACKs, one batch per received buffer. Every message comes exactly once.
"""

from __future__ import annotations

import select
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from benchmarks import frames
from benchmarks.broken import Broken
from benchmarks.durable_identity import numbered_identity
from benchmarks.frame_counting import CompleteFrames, FrameCounter, ack_ids_in
from benchmarks.roles.child_end import Stage
from benchmarks.session import Session, raise_if_error, receive

if TYPE_CHECKING:
    import socket

    from benchmarks.address import Address
    from benchmarks.roles.child_end import ChildEnd

_RECEIVE_BYTES: Final = 256 * 1024
_RECEIPT: Final = b"RECEIPT\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class PassingAssignment:
    address: Address
    destination: str
    messages: int
    body_bytes: int
    #: Messages that may be in flight.
    window: int
    #: SENDs per receipt; a divisor of `window`.
    batch: int
    #: Seconds without a byte after which missing messages count as lost.
    stall_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PassingReport:
    messages: int
    #: Peak, in bytes of SEND frames.
    in_flight_messages: int
    in_flight_bytes: int
    elapsed_s: float


def run(assignment: PassingAssignment, control: ChildEnd) -> PassingReport:
    with (
        Session.open(assignment.address) as publisher,
        Session.open(assignment.address, identity=numbered_identity(0)) as subscriber,
    ):
        subscriber.subscribe(assignment.destination, ack_mode="client-individual")
        control.reach(Stage.READY)
        control.wait_word()
        started_at = time.monotonic()
        passing = Passing(assignment)
        _pass_all(passing, publisher.socket, subscriber.socket, control, assignment.stall_s)
        elapsed_s = time.monotonic() - started_at
        extra = subscriber.leave() + publisher.leave()
    if extra:
        raise Broken(f"{extra:,} frames too many behind the last of {assignment.messages:,} messages")
    return PassingReport(
        messages=passing.settled,
        in_flight_messages=passing.most_in_flight,
        in_flight_bytes=passing.most_in_flight * passing.frame_bytes,
        elapsed_s=elapsed_s,
    )


def _pass_all(
    passing: Passing, publisher: socket.socket, subscriber: socket.socket, control: ChildEnd, stall_s: float
) -> None:
    unsent = {publisher: bytearray(), subscriber: bytearray()}
    for connected in unsent:
        connected.setblocking(False)
    while not passing.is_over:
        unsent[publisher] += passing.next_sends()
        readable, writable, _ = select.select(unsent, [each for each in unsent if unsent[each]], [], stall_s)
        if not readable and not writable:
            raise Broken(
                f"nothing came for {stall_s:g} s: {passing.sent:,} messages are sent and {passing.settled:,} settled"
            )
        if publisher in readable:
            passing.take_answers(receive(publisher, _RECEIVE_BYTES))
        if subscriber in readable:
            unsent[subscriber] += passing.take_deliveries(receive(subscriber, _RECEIVE_BYTES))
        for connected in writable:
            try:
                del unsent[connected][: connected.send(unsent[connected])]
            except ConnectionError as error:
                raise Broken(f"the broker dropped a connection: {error}") from error
        control.progress(passing.settled)


@final
class Passing:
    """What to write next, and how far everything is. Knows no sockets.

    Invariants:
        settled <= received <= sent <= settled + window
        the sum of `_unconfirmed` is the number of received and unsettled messages
    """

    def __init__(self, assignment: PassingAssignment) -> None:
        self._assignment = assignment
        self._batch = batch_of_sends(assignment.destination, assignment.body_bytes, assignment.batch)
        self._receipts = FrameCounter()
        self._receipts_owed = 0
        self._frames = CompleteFrames()
        #: Messages that the receipt for each batch of ACKs will settle, the oldest first.
        self._unconfirmed: deque[int] = deque()
        self.frame_bytes = -(-len(self._batch) // assignment.batch)
        self.sent = 0
        self.received = 0
        self.settled = 0
        self.most_in_flight = 0

    @property
    def is_over(self) -> bool:
        return self.settled == self._assignment.messages and self._receipts.frames == self._receipts_owed

    def next_sends(self) -> bytes:
        """As many batches as the window allows."""
        assignment, written = self._assignment, []
        while (size := min(assignment.batch, assignment.messages - self.sent)) and (
            self.sent + size <= self.settled + assignment.window
        ):
            is_whole = size == assignment.batch
            written.append(
                self._batch if is_whole else batch_of_sends(assignment.destination, assignment.body_bytes, size)
            )
            self.sent += size
            self._receipts_owed += 1
        self.most_in_flight = max(self.most_in_flight, self.sent - self.settled)
        return b"".join(written)

    def take_answers(self, chunk: bytes) -> None:
        """Take receipts of the publisher."""
        raise_if_error(chunk)
        self._receipts.count(bytearray(chunk), len(chunk))

    def take_deliveries(self, chunk: bytes) -> bytes:
        """Take what the subscriber gets, messages and receipts; returns the ACKs of the messages."""
        raise_if_error(chunk)
        complete = self._frames.take(chunk)
        for _ in range(complete.count(_RECEIPT)):
            self.settled += self._unconfirmed.popleft()
        ack_ids = ack_ids_in(complete)
        if not ack_ids:
            return b""
        self.received += len(ack_ids)
        if self.received > self.sent:
            raise Broken(f"{self.received:,} messages came of {self.sent:,} that were sent")
        self._unconfirmed.append(len(ack_ids))
        return frames.acknowledge_all(ack_ids[:-1]) + frames.acknowledge(ack_ids[-1], receipt="settled")


def batch_of_sends(destination: str, body_bytes: int, size: int) -> bytes:
    """A batch of SENDs whose last one asks for a receipt."""
    body = b"x" * body_bytes
    return frames.send(destination, body) * (size - 1) + frames.send(destination, body, receipt="stored")
