"""A role of the load generator: connections and topics that come and go at a fixed rate.

A connection sends everything at once and ends when the broker has closed it or has answered. Each publishes to topics
of its own, and they end in turn in every possible way. A generator that falls behind catches up, and reports the rate
it reached.
"""

from __future__ import annotations

import select
import socket
import time
from dataclasses import dataclass
from enum import Enum
from itertools import count, cycle
from typing import TYPE_CHECKING, Final, final

from benchmarks import frames
from benchmarks.broken import Broken
from benchmarks.roles.child_end import Stage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.address import Address
    from benchmarks.roles.child_end import ChildEnd

#: Source addresses. One address has 28,000 ports, and each is unusable for a minute after its connection ends.
_SOURCES: Final = [f"127.0.0.{number}" for number in range(2, 34)]
#: Concurrent connections: a generator that falls behind must not flood the broker.
_MOST_OPEN: Final = 64
#: Seconds between two looks at the clock.
_TICK_S: Final = 0.002
_STALL_S: Final = 30.0
#: SO_LINGER value that makes closing reset the connection.
_RESET: Final = b"\1\0\0\0\0\0\0\0"
_RECEIVE_BYTES: Final = 64 * 1024


@final
class Way(Enum):
    """How a connection ends, and what it does before."""

    DISCONNECTS = "says DISCONNECT"
    VANISHES = "closes without a word"
    IS_RESET = "is reset"
    ERRS = "sends what is no command"
    SUBSCRIBES = "has a subscription to its topic"
    SUBSCRIBES_TO_PATTERN = "has a subscription to a pattern"
    LEAVES_TRANSACTION = "leaves a transaction open"


#: The broker closes these; the others close when they have their answer.
_CLOSED_BY_BROKER: Final = frozenset({Way.DISCONNECTS, Way.ERRS, Way.SUBSCRIBES, Way.SUBSCRIBES_TO_PATTERN})


@dataclass(frozen=True, slots=True, kw_only=True)
class ChurnAssignment:
    address: Address
    connections_per_s: float
    topics_per_connection: int
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ChurnReport:
    connections: int
    topics: int
    elapsed_s: float


def said_by(way: Way, number: int, topics: int, connect: bytes) -> bytes:
    """Everything that a connection sends."""
    names = [f"/topic/churn.{number}.{each}" for each in range(topics)]
    parts = [connect]
    if way is Way.SUBSCRIBES:
        parts.append(b"SUBSCRIBE\nid:0\nack:client-individual\ndestination:%s\n\n\0" % names[0].encode())
    elif way is Way.SUBSCRIBES_TO_PATTERN:
        parts.append(b"SUBSCRIBE\nid:0\ndestination:/topic/churn.%d.>\n\n\0" % number)
    elif way is Way.LEAVES_TRANSACTION:
        parts.append(b"BEGIN\ntransaction:t\n\n\0")
        parts.append(b"SEND\ntransaction:t\ndestination:%s\n\nx\0" % names[0].encode())
    parts += [frames.send(name, b"x") for name in names]
    if way is Way.ERRS:
        parts.append(b"NONSENSE\n\n\0")
    elif way in _CLOSED_BY_BROKER:
        parts.append(frames.disconnect("bye"))
    else:
        parts.append(b"BEGIN\ntransaction:last\nreceipt:bye\n\n\0")
    return b"".join(parts)


def run(assignment: ChurnAssignment, control: ChildEnd) -> ChurnReport:
    control.reach(Stage.READY)
    control.wait_word()
    churn = _Churn(assignment)
    started_at = time.monotonic()
    while (elapsed_s := time.monotonic() - started_at) < assignment.duration_s:
        churn.open(int(elapsed_s * assignment.connections_per_s))
        churn.wait(_TICK_S)
        control.progress(churn.ended)
    churn.wait_all()
    return ChurnReport(
        connections=churn.ended,
        topics=churn.ended * assignment.topics_per_connection,
        elapsed_s=time.monotonic() - started_at,
    )


@final
class _Churn:
    def __init__(self, assignment: ChurnAssignment) -> None:
        self._assignment = assignment
        self._connect = frames.connect(assignment.address)
        self._numbers = count()
        self._ways: Iterator[Way] = cycle(Way)
        self._sources: Iterator[str] = cycle(_SOURCES)
        self._poll = select.poll()
        self._open: dict[int, tuple[socket.socket, Way]] = {}
        self._opened = 0
        self.ended = 0

    def open(self, due: int) -> None:
        """Open connections until `due` have been opened, or too many are open."""
        while self._opened < due and len(self._open) < _MOST_OPEN:
            way = next(self._ways)
            connected = self._connected()
            connected.sendall(said_by(way, next(self._numbers), self._assignment.topics_per_connection, self._connect))
            connected.setblocking(False)
            self._open[connected.fileno()] = connected, way
            self._poll.register(connected, select.POLLIN)
            self._opened += 1

    def _connected(self) -> socket.socket:
        opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        opened.settimeout(_STALL_S)
        opened.setsockopt(socket.SOL_IP, socket.IP_BIND_ADDRESS_NO_PORT, 1)
        opened.bind((next(self._sources), 0))
        try:
            opened.connect((self._assignment.address.host, self._assignment.address.port))
        except OSError as error:
            raise Broken(f"cannot connect to {self._assignment.address}: {error}") from error
        return opened

    def wait(self, timeout_s: float) -> None:
        """Receive, and disconnect after the last answer."""
        for descriptor, _ in self._poll.poll(timeout_s * 1000):
            connected, way = self._open[descriptor]
            try:
                received = connected.recv(_RECEIVE_BYTES)
            except ConnectionError:
                received = b""
            if b"ERROR\n" in received and way is not Way.ERRS:
                raise Broken(f"the broker sent {received!r} to one that {way.value}")
            if received and (way in _CLOSED_BY_BROKER or b"receipt-id:bye" not in received):
                continue
            self._poll.unregister(descriptor)
            del self._open[descriptor]
            if way is Way.IS_RESET:
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            connected.close()
            self.ended += 1

    def wait_all(self) -> None:
        gives_up_at = time.monotonic() + _STALL_S
        while self._open:
            self.wait(_TICK_S)
            if time.monotonic() > gives_up_at:
                raise Broken(f"{len(self._open)} connections are still open after {_STALL_S:g} s")
