"""Receives and counts on one or many connections, with or without acknowledgements.

No work per message, except one regular expression match for ids to acknowledge. Frames are counted by their NULs; every
connection, or all of them together, must get exactly what the publisher sent. Other roles use the parts with other
answers.
"""

from __future__ import annotations

import selectors
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, final

from benchmarks.answering import AcknowledgeAll
from benchmarks.broken import Broken
from benchmarks.durable_identity import numbered_identity
from benchmarks.frame_counting import FrameCounter
from benchmarks.roles.child_end import ChildEnd, Expect, Stage
from benchmarks.session import Session, raise_if_error

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from benchmarks.address import Address
    from benchmarks.answering import Answering
    from benchmarks.frame_counting import StreamCounter

RECEIVE_BYTES: Final = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriberAssignment:
    address: Address
    destination: str
    connections: int
    #: `client-individual` with an ACK for every MESSAGE, instead of `auto`.
    acknowledges: bool
    #: Each connection has its own durable subscription, see `numbered_identity`.
    is_durable: bool = False
    durable_name: str = "benchmark"
    #: Each message goes to one of the connections.
    is_shared: bool = False
    #: Seconds without a byte, once the publisher has finished, after which missing messages count as lost.
    stall_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriberReport:
    #: Messages received on each connection.
    received: tuple[int, ...]
    byte_count: int
    #: When the last message arrived or, with acknowledgements, the broker had taken the last one.
    finished_at: float
    #: Processor time of this process, and over what time: from its first message to `finished_at`.
    processor_s: float
    busy_s: float


def run(assignment: SubscriberAssignment, control: ChildEnd) -> SubscriberReport:
    ack_mode = "client-individual" if assignment.acknowledges else "auto"
    with ExitStack() as open_sessions:
        sessions = [
            open_sessions.enter_context(
                Session.open(
                    assignment.address,
                    identity=numbered_identity(number, assignment.durable_name) if assignment.is_durable else None,
                )
            )
            for number in range(assignment.connections)
        ]
        for session in sessions:
            session.subscribe(assignment.destination, ack_mode=ack_mode)
            session.socket.setblocking(False)
        # One buffer for all connections: a receiver has counted it before the next one fills it.
        buffer = bytearray(RECEIVE_BYTES)
        receivers: list[Receiver] = [
            AnsweringReceiver(session.socket, buffer, AcknowledgeAll())
            if assignment.acknowledges
            else CountingReceiver(session.socket, buffer)
            for session in sessions
        ]
        return receive_and_leave(sessions, receivers, control, assignment.stall_s, is_shared=assignment.is_shared)


class Leaving(Protocol):
    """A connected client of any protocol."""

    def leave(self) -> int:
        """Disconnect; returns how many messages came before the broker had read everything."""


def receive_and_leave(
    sessions: Sequence[Leaving],
    receivers: Sequence[Receiver],
    control: ChildEnd,
    stall_s: float,
    *,
    is_shared: bool = False,
) -> SubscriberReport:
    """Receive what the publisher sent on subscribed sessions, on each or on all together, and disconnect."""
    control.reach(Stage.READY)
    started = _receive_all(receivers, control, stall_s, is_shared=is_shared)
    finished_at = time.monotonic()
    extra = [session.leave() for session in sessions]
    if any(isinstance(receiver, AnsweringReceiver) for receiver in receivers):
        finished_at = time.monotonic()
    return SubscriberReport(
        received=tuple(receiver.messages + more for receiver, more in zip(receivers, extra, strict=True)),
        byte_count=sum(receiver.byte_count for receiver in receivers),
        finished_at=finished_at,
        processor_s=time.process_time() - started.processor_s,
        busy_s=time.monotonic() - started.at,
    )


@dataclass(frozen=True, slots=True)
class _Start:
    at: float
    processor_s: float


def _receive_all(receivers: Sequence[Receiver], control: ChildEnd, stall_s: float, *, is_shared: bool) -> _Start:
    """Receive until every connection has everything, or all together, or nothing more arrives."""
    start: _Start | None = None
    expected: int | None = None
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        for receiver in receivers:
            selector.register(receiver.socket, selectors.EVENT_READ, receiver)
        while expected is None or _is_waiting(receivers, expected, is_shared=is_shared):
            ready = selector.select(None if expected is None else stall_s)
            if not ready:
                break
            control.progress(receivers[0].counted)
            start = start or _Start(time.monotonic(), time.process_time())
            for key, mask in ready:
                if key.data is None:
                    word = control.wait_word()
                    assert isinstance(word, Expect)
                    expected = word.messages
                    selector.unregister(control)
                    continue
                receiver = key.data
                wants_to_send = receiver.receive() if mask & selectors.EVENT_READ else receiver.flush()
                events = selectors.EVENT_READ | (selectors.EVENT_WRITE if wants_to_send else 0)
                if events != key.events:
                    selector.modify(receiver.socket, events, receiver)
    return start or _Start(time.monotonic(), time.process_time())


def _is_waiting(receivers: Sequence[Receiver], expected: int, *, is_shared: bool) -> bool:
    if is_shared:
        if sum(receiver.counted for receiver in receivers) < expected:
            return True
        expected = 0  # answers may still have to be sent
    return any(receiver.is_waiting_for(expected) for receiver in receivers)


class Receiver(Protocol):
    """One connection's receiving side; both methods return whether something is left to send."""

    socket: socket.socket

    @property
    def messages(self) -> int:
        """Called at the end; raises `Broken` if the numbers do not match the answers."""

    @property
    def counted(self) -> int:
        """Messages so far. One may be answered and not yet counted."""

    @property
    def byte_count(self) -> int: ...
    def is_waiting_for(self, expected: int) -> bool: ...
    def receive(self) -> bool: ...
    def flush(self) -> bool: ...


@final
class CountingReceiver:
    """Counts messages and sends nothing."""

    def __init__(self, connected: socket.socket, buffer: bytearray, counter: StreamCounter | None = None) -> None:
        self.socket = connected
        self._buffer = buffer
        self._counter = counter or FrameCounter()

    @property
    def messages(self) -> int:
        return self._counter.frames

    @property
    def counted(self) -> int:
        return self._counter.frames

    @property
    def byte_count(self) -> int:
        return self._counter.byte_count

    def is_waiting_for(self, expected: int) -> bool:
        return self._counter.frames < expected

    def receive(self) -> bool:
        length = receive_into(self.socket, self._buffer)
        self._counter.count(self._buffer, length)
        return False

    def flush(self) -> bool:
        return False


@final
class AnsweringReceiver:
    """Answers every message, all of one buffer in one write.

    `again` is the number of redeliveries, because something is refused.

    Invariant: `_unsent` holds the answers, in order, that the kernel has not yet taken.
    """

    def __init__(
        self,
        connected: socket.socket,
        buffer: bytearray,
        answering: Answering,
        *,
        again: int = 0,
        counter: StreamCounter | None = None,
    ) -> None:
        self.socket = connected
        self._buffer = buffer
        self._answering = answering
        self._again = again
        self._counter = counter or FrameCounter()
        self._unsent = bytearray()
        self.answered = 0

    @property
    def messages(self) -> int:
        if self._counter.frames != self.answered:
            raise Broken(f"{self._counter.frames} messages came with {self.answered} ack headers")
        return self._counter.frames

    @property
    def counted(self) -> int:
        return self._counter.frames

    @property
    def byte_count(self) -> int:
        return self._counter.byte_count

    def is_waiting_for(self, expected: int) -> bool:
        return self._counter.frames < expected + self._again or bool(self._unsent)

    def receive(self) -> bool:
        return self._take(receive_into(self.socket, self._buffer))

    def take_leftover(self, leftover: bytes) -> bool:
        """Count and answer what came after the answer to SUBSCRIBE."""
        self._buffer[: len(leftover)] = leftover
        return self._take(len(leftover))

    def _take(self, length: int) -> bool:
        self._counter.count(self._buffer, length)
        answer = self._answering.answer(bytes(memoryview(self._buffer)[:length]))
        self.answered += answer.messages
        self._unsent += answer.frames
        return self.flush()

    def flush(self) -> bool:
        if self._unsent:
            try:
                sent = self.socket.send(self._unsent)
            except BlockingIOError:
                return True
            except ConnectionError as error:
                raise Broken(f"the broker dropped a subscriber: {error}") from error
            del self._unsent[:sent]
        return bool(self._unsent)


def receive_into(connected: socket.socket, buffer: bytearray) -> int:
    """Fill `buffer` and return the length; 0 if nothing is there. A broker that closes is broken.

    An ERROR that came before is then still in `buffer`.
    """
    try:
        length = connected.recv_into(buffer)
    except BlockingIOError:
        return 0
    except ConnectionError as error:
        raise Broken(f"the broker dropped a subscriber: {error}") from error
    if length == 0:
        raise_if_error(bytes(buffer))
        raise Broken("the broker closed a subscriber's connection")
    return length
