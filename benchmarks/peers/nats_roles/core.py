"""Publisher and subscriber for NATS core: topics, nothing stored, nothing acknowledged.

Like `roles.publisher` without receipts and `roles.subscriber` without acknowledgements.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from benchmarks.flow_roles import FlowRoles
from benchmarks.peers.nats_roles.counting import MessageCounter
from benchmarks.peers.nats_roles.nats_session import NatsSession
from benchmarks.peers.nats_roles.protocol import ring_of_publishes, subject_of
from benchmarks.roles.publisher import RING_BYTES, SendStream, publish
from benchmarks.roles.subscriber import RECEIVE_BYTES, CountingReceiver, receive_and_leave

if TYPE_CHECKING:
    from benchmarks.roles.child_end import ChildEnd
    from benchmarks.roles.publisher import PublisherAssignment, PublisherReport
    from benchmarks.roles.subscriber import SubscriberAssignment, SubscriberReport


def run_publisher(assignment: PublisherAssignment, control: ChildEnd) -> PublisherReport:
    assert not assignment.receipt_window, "NATS core confirms nothing"
    ring = ring_of_publishes(
        subject_of(assignment.destination),
        body_bytes=assignment.body_bytes,
        frames=max(1, RING_BYTES // (assignment.body_bytes + 64)),
    )
    with NatsSession.open(assignment.address) as session:
        stream = SendStream(
            session.socket,
            ring,
            receipt_window=0,
            most_messages=assignment.most_messages,
            receipts=MessageCounter(),
        )
        report = publish(stream, assignment, control)
        session.leave()
    return report


def run_subscriber(assignment: SubscriberAssignment, control: ChildEnd) -> SubscriberReport:
    assert not assignment.acknowledges, "NATS core takes no acknowledgements"
    with ExitStack() as open_sessions:
        sessions = [
            open_sessions.enter_context(NatsSession.open(assignment.address)) for _ in range(assignment.connections)
        ]
        for session in sessions:
            session.subscribe(subject_of(assignment.destination))
            session.socket.setblocking(False)
        buffer = bytearray(RECEIVE_BYTES)
        receivers = [CountingReceiver(session.socket, buffer, MessageCounter()) for session in sessions]
        return receive_and_leave(sessions, receivers, control, assignment.stall_s)


CORE_ROLES: Final = FlowRoles(publish=run_publisher, subscribe=run_subscriber)
