"""Many idle clients: each connects, subscribes, and waits for one message.

Connections are made in groups, and each step is done by a whole group: the broker always has work, but never more than
a listen queue holds.
"""

from __future__ import annotations

import selectors
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from benchmarks import frames
from benchmarks.broken import Broken
from benchmarks.roles.child_end import ChildEnd, Stage
from benchmarks.session import Session, receive

if TYPE_CHECKING:
    import socket

    from benchmarks.address import Address

#: Connections made at a time; the smallest usual listen backlog is 128.
_GROUP: Final = 100
#: Timeout for all of them. CoilMQ, with the listen queue of Python's `socketserver`, accepted six a second.
_CONNECTING_S: Final = 100.0
_RECEIVE_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleCrowdAssignment:
    address: Address
    destination: str
    connections: int
    body_bytes: int
    #: Seconds without a byte after which missing messages count as lost.
    stall_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleCrowdReport:
    #: From the first connect to the last subscription's receipt.
    connecting_s: float
    #: Processor time of this process while connecting.
    processor_s: float
    #: From sending the one message to its last arrival.
    serving_s: float
    #: Connections that got it exactly once.
    served: int


def run(assignment: IdleCrowdAssignment, control: ChildEnd) -> IdleCrowdReport:
    with ExitStack() as open_sockets, Session.open(assignment.address) as publisher:
        control.reach(Stage.READY)
        control.wait_word()
        processor_at_start, started_at = time.process_time(), time.monotonic()
        crowd: list[socket.socket] = []
        while len(crowd) < assignment.connections:
            if time.monotonic() > started_at + _CONNECTING_S:
                made = f"{len(crowd):,} of {assignment.connections:,} connections"
                raise Broken(f"only {made} were made in {_CONNECTING_S:g} s")
            crowd += _connect_group(assignment, min(_GROUP, assignment.connections - len(crowd)), open_sockets)
        connecting_s, processor_s = time.monotonic() - started_at, time.process_time() - processor_at_start
        control.reach(Stage.CROWD_CONNECTED)
        control.wait_word()
        sent_at = time.monotonic()
        publisher.socket.sendall(frames.send(assignment.destination, b"x" * assignment.body_bytes))
        received = _receive_one_each(crowd, assignment.stall_s)
        serving_s = time.monotonic() - sent_at
        publisher.leave()
    return IdleCrowdReport(
        connecting_s=connecting_s,
        processor_s=processor_s,
        serving_s=serving_s,
        served=sum(1 for messages in received if messages == 1),
    )


def _connect_group(assignment: IdleCrowdAssignment, size: int, open_sockets: ExitStack) -> list[socket.socket]:
    sessions: list[Session] = []
    for _ in range(size):
        sessions.append(open_sockets.enter_context(Session.begin_connect(assignment.address)))
    for session in sessions:
        session.wait_connected()
        session.begin_subscribe(assignment.destination)
    for session in sessions:
        session.wait_subscribed()
    return [session.socket for session in sessions]


def _receive_one_each(crowd: list[socket.socket], stall_s: float) -> list[int]:
    """Messages of each connection, once all have one or nothing more arrives."""
    received = [0] * len(crowd)
    served = 0
    with selectors.DefaultSelector() as selector:
        for number, member in enumerate(crowd):
            member.setblocking(False)
            selector.register(member, selectors.EVENT_READ, number)
        while served < len(crowd) and (ready := selector.select(stall_s)):
            for key, _ in ready:
                had = received[key.data]
                received[key.data] += receive(crowd[key.data], _RECEIVE_BYTES).count(b"\0")
                served += had == 0 and received[key.data] > 0
    return received
