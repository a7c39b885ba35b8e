"""Publisher and subscriber for JetStream: every message is stored and confirmed, every delivery acknowledged.

Like `roles.publisher` with a window of receipts and `roles.subscriber` with durable subscriptions. One stream holds all
topics; each subscriber has its own durable push consumer with explicit acknowledgements, and an identity returns to its
consumer.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from benchmarks.durable_identity import numbered_identity
from benchmarks.flow_roles import FlowRoles
from benchmarks.peers.nats_roles.counting import AcknowledgeReplies, MessageCounter, StoredCounter
from benchmarks.peers.nats_roles.nats_session import NatsSession
from benchmarks.peers.nats_roles.protocol import ring_of_publishes, subject_of
from benchmarks.roles.publisher import SendStream, publish
from benchmarks.roles.subscriber import RECEIVE_BYTES, AnsweringReceiver, receive_and_leave

if TYPE_CHECKING:
    from benchmarks.durable_identity import DurableIdentity
    from benchmarks.roles.child_end import ChildEnd
    from benchmarks.roles.publisher import PublisherAssignment, PublisherReport
    from benchmarks.roles.subscriber import SubscriberAssignment, SubscriberReport

_STREAM: Final = "benchmark"
STREAM: Final = {"name": _STREAM, "subjects": ["topic.>"], "storage": "file", "retention": "limits"}
#: Our broker's default prefetch.
MAX_ACK_PENDING: Final = 1000


def run_publisher(assignment: PublisherAssignment, control: ChildEnd) -> PublisherReport:
    inbox = f"stored.{os.getpid()}"
    ring = ring_of_publishes(
        subject_of(assignment.destination),
        body_bytes=assignment.body_bytes,
        frames=assignment.receipt_window,
        reply_to=inbox,
    )
    with NatsSession.open(assignment.address) as session:
        session.listen(inbox)
        stream = SendStream(
            session.socket,
            ring,
            receipt_window=assignment.receipt_window,
            most_messages=assignment.most_messages,
            receipts=StoredCounter(),
        )
        report = publish(stream, assignment, control)
        session.leave()
    return report


def run_subscriber(assignment: SubscriberAssignment, control: ChildEnd) -> SubscriberReport:
    assert assignment.acknowledges, "a durable consumer is measured with acknowledgements"
    subject = subject_of(assignment.destination)
    with ExitStack() as open_sessions:
        sessions = [
            open_sessions.enter_context(NatsSession.open(assignment.address)) for _ in range(assignment.connections)
        ]
        for number, session in enumerate(sessions):
            _attach(session, subject, numbered_identity(number, assignment.durable_name))
            session.socket.setblocking(False)
        buffer = bytearray(RECEIVE_BYTES)
        receivers = [
            AnsweringReceiver(session.socket, buffer, AcknowledgeReplies(), counter=MessageCounter())
            for session in sessions
        ]
        return receive_and_leave(sessions, receivers, control, assignment.stall_s)


def _attach(session: NatsSession, subject: str, identity: DurableIdentity) -> None:
    """Attach to a durable consumer; creates it and the stream if needed."""
    name = f"{identity.client_id}-{identity.name}-{subject.replace('.', '-')}"
    inbox = f"answers.{name}"
    session.listen(inbox)
    session.ask(f"$JS.API.STREAM.CREATE.{_STREAM}", STREAM, inbox=inbox)
    session.subscribe(f"deliver.{name}")
    consumer = {
        "durable_name": name,
        "deliver_subject": f"deliver.{name}",
        "deliver_policy": "new",
        "filter_subject": subject,
        "ack_policy": "explicit",
        "max_ack_pending": MAX_ACK_PENDING,
    }
    question = {"stream_name": _STREAM, "config": consumer}
    session.ask(f"$JS.API.CONSUMER.DURABLE.CREATE.{_STREAM}.{name}", question, inbox=inbox)


JETSTREAM_ROLES: Final = FlowRoles(publish=run_publisher, subscribe=run_subscriber)
