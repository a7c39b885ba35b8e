"""Several subscribers, each with its own topics.

Like `subscriber`, where all connections have the same topic. Every connection must get the same number of messages over
all its topics.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks import frames
from benchmarks.answering import AcknowledgeAll
from benchmarks.durable_identity import numbered_identity
from benchmarks.roles.subscriber import (
    RECEIVE_BYTES,
    AnsweringReceiver,
    CountingReceiver,
    Receiver,
    SubscriberReport,
    receive_and_leave,
)
from benchmarks.session import Session

if TYPE_CHECKING:
    from benchmarks.address import Address
    from benchmarks.roles.child_end import ChildEnd


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSubscribersAssignment:
    address: Address
    #: The topics of each connection; a durable one has one topic.
    destinations: tuple[tuple[str, ...], ...]
    #: `client-individual` with an ACK for every MESSAGE, instead of `auto`.
    acknowledges: bool = False
    is_durable: bool = False
    #: Seconds without a byte, once the publishers have finished, after which missing messages count as lost.
    stall_s: float


def run(assignment: TopicSubscribersAssignment, control: ChildEnd) -> SubscriberReport:
    buffer = bytearray(RECEIVE_BYTES)
    receivers: list[Receiver] = []
    with ExitStack() as open_sessions:
        sessions: list[Session] = []
        for number, destinations in enumerate(assignment.destinations):
            identity = numbered_identity(number) if assignment.is_durable else None
            session = open_sessions.enter_context(Session.open(assignment.address, identity=identity))
            # Confirming the last subscription confirms all, since the broker takes them in order.
            session.socket.sendall(frames.subscribe_besides(destinations[:-1]))
            session.subscribe(destinations[-1], ack_mode="client-individual" if assignment.acknowledges else "auto")
            session.socket.setblocking(False)
            sessions.append(session)
            receivers.append(
                AnsweringReceiver(session.socket, buffer, AcknowledgeAll())
                if assignment.acknowledges
                else CountingReceiver(session.socket, buffer)
            )
        return receive_and_leave(sessions, receivers, control, assignment.stall_s)
