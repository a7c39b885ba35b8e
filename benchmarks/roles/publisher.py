"""A role that publishes as fast as it is allowed to, for a given time or until it has published enough.

Messages are counted in bytes: all frames have one size and are encoded before the clock starts, so a position in the
stream says how many messages have been sent and how many the window still allows.
"""

from __future__ import annotations

import math
import secrets
import select
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from benchmarks.broken import Broken
from benchmarks.frame_counting import FrameCounter
from benchmarks.frames import FrameRing, ring_of_sends
from benchmarks.roles.child_end import ChildEnd, Stage
from benchmarks.session import Session, raise_if_error

if TYPE_CHECKING:
    import socket

    from benchmarks.address import Address
    from benchmarks.frame_counting import StreamCounter

#: Bytes per call without a window: large enough that calls cost nothing compared with copying.
RING_BYTES: Final = 256 * 1024
_RECEIVE_BYTES: Final = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherAssignment:
    address: Address
    destination: str
    body_bytes: int
    #: Ends at whichever comes first.
    duration_s: float = math.inf
    most_messages: int | None = None
    #: Outstanding RECEIPTs; 0 asks for none.
    receipt_window: int
    #: Whether every message must be on disk before its RECEIPT, for brokers that have to be told.
    is_stored: bool = False
    #: Which message, counted from 0, is poison; needs a bound on the messages.
    poison_at: int | None = None
    #: Whether they are numbered by a producer; needs a bound, too.
    is_numbered: bool = False
    #: Seconds without progress after which the broker counts as hung.
    stall_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherReport:
    messages: int
    started_at: float
    #: When the last message was sent or, with a window, the last RECEIPT arrived.
    finished_at: float
    processor_s: float


def run(assignment: PublisherAssignment, control: ChildEnd) -> PublisherReport:
    frames_in_ring = assignment.receipt_window or max(1, RING_BYTES // (assignment.body_bytes + 64))
    if assignment.poison_at is not None or assignment.is_numbered:
        assert assignment.most_messages is not None
        # One round, so one poison message, and no number twice.
        frames_in_ring = max(frames_in_ring, assignment.most_messages)
    ring = ring_of_sends(
        assignment.destination,
        body_bytes=assignment.body_bytes,
        frames=frames_in_ring,
        with_receipts=assignment.receipt_window > 0,
        poison_at=assignment.poison_at,
        producer=f"benchmark-{secrets.token_hex(8)}" if assignment.is_numbered else None,
        headers=assignment.address.dialect.of_send(is_stored=assignment.is_stored),
    )
    with Session.open(assignment.address) as session:
        stream = SendStream(
            session.socket,
            ring,
            receipt_window=assignment.receipt_window,
            most_messages=assignment.most_messages,
        )
        report = publish(stream, assignment, control)
        session.leave()
    return report


def publish(stream: SendStream, assignment: PublisherAssignment, control: ChildEnd) -> PublisherReport:
    """Wait for `Go`, and send as fast as possible until time or messages are used up."""
    control.reach(Stage.READY)
    control.wait_word()
    processor_at_start, started_at = time.process_time(), time.monotonic()
    stops_at = started_at + assignment.duration_s
    while time.monotonic() < stops_at and not stream.is_exhausted():
        if not stream.push():
            stream.wait(assignment.stall_s)
            control.progress(stream.messages)
    stream.finish()
    while not stream.is_complete():
        if not stream.push():
            stream.wait(assignment.stall_s)
    finished_at, processor_s = time.monotonic(), time.process_time() - processor_at_start
    return PublisherReport(
        messages=stream.messages, started_at=started_at, finished_at=finished_at, processor_s=processor_s
    )


@final
class ReceiptCounter:
    """Counts RECEIPTs; raises an ERROR."""

    def __init__(self) -> None:
        self._counter = FrameCounter()

    @property
    def frames(self) -> int:
        return self._counter.frames

    @property
    def byte_count(self) -> int:
        return self._counter.byte_count

    def count(self, buffer: bytearray, length: int) -> None:
        raise_if_error(bytes(buffer[:length]))
        self._counter.count(buffer, length)


@final
class SendStream:
    """A stream of SENDs into one non-blocking socket, endless unless it is given an end.

    Invariants:
        messages * frame_bytes - frame_bytes < position <= messages * frame_bytes
        with a window: messages - receipts <= receipt_window
        with an end: messages <= most_messages
    """

    def __init__(
        self,
        connected: socket.socket,
        ring: FrameRing,
        *,
        receipt_window: int,
        most_messages: int | None = None,
        receipts: StreamCounter | None = None,
    ) -> None:
        """`receipts` counts answers, if the protocol is not STOMP."""
        connected.setblocking(False)
        self.socket = connected
        self._ring = ring
        self._view = memoryview(ring.data)
        self._window_bytes = receipt_window * ring.frame_bytes
        self._end = math.inf if most_messages is None else most_messages * ring.frame_bytes
        self._receipts = receipts or ReceiptCounter()
        self._buffer = bytearray(_RECEIVE_BYTES)
        self._is_finishing = False
        self.position = 0

    @property
    def messages(self) -> int:
        """Messages sent, including an unfinished one."""
        return -(-self.position // self._ring.frame_bytes)

    def is_exhausted(self) -> bool:
        """Whether its end has been reached."""
        return self.position >= self._end

    def is_complete(self) -> bool:
        """Whether the stream is between two frames and no RECEIPT is missing."""
        is_between_frames = self._ring.bytes_to_boundary(self.position) == 0
        return is_between_frames and (not self._window_bytes or self._receipts.frames == self.messages)

    def end_at(self, messages: int) -> None:
        """Set its end, which it must not have passed."""
        self._end = messages * self._ring.frame_bytes

    def finish(self) -> None:
        """From now on only complete the current frame."""
        self._is_finishing = True

    def may_send(self) -> bool:
        """Whether the window allows more."""
        return self._allowed_bytes() > 0

    def push(self) -> bool:
        """Send what kernel and window allow now. False if that is nothing."""
        begin, allowed = self.position % len(self._view), self._allowed_bytes()
        if allowed == 0:
            return False
        try:
            self.position += self.socket.send(self._view[begin : begin + allowed])
        except BlockingIOError:
            return False
        except ConnectionError as error:
            self.receive()  # raises the broker's ERROR, if there is one
            raise Broken(f"the broker dropped the publisher: {error}") from error
        return True

    def wait(self, stall_s: float) -> None:
        """Wait until the kernel takes more or a RECEIPT arrives."""
        if not self._wait_and_receive([], stall_s):
            raise Broken(f"the broker took nothing from the publisher for {stall_s:g} s")

    def wait_or_word(self, control: ChildEnd) -> None:
        """The same without a timeout, or until `control` has a message."""
        self._wait_and_receive([control], None)

    def _wait_and_receive(self, also: list[ChildEnd], timeout_s: float | None) -> bool:
        wants_to_send = [self.socket] if self._allowed_bytes() else []
        waited_for: list[socket.socket | ChildEnd] = [self.socket, *also]
        readable, writable, _ = select.select(waited_for, wants_to_send, [], timeout_s)
        if self.socket in readable:
            self.receive()
        return bool(readable or writable)

    def _allowed_bytes(self) -> int:
        if self._is_finishing:
            return self._ring.bytes_to_boundary(self.position)
        to_end = min(len(self._view), self._end - self.position)
        if not self._window_bytes:
            return int(to_end)
        return int(min(to_end, self._receipts.frames * self._ring.frame_bytes + self._window_bytes - self.position))

    def receive(self) -> None:
        """Count the receipts that have arrived."""
        try:
            length = self.socket.recv_into(self._buffer)
        except (BlockingIOError, ConnectionError):
            return
        if length == 0:
            raise Broken("the broker closed the publisher's connection")
        self._receipts.count(self._buffer, length)
