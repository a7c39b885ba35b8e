"""Several durable subscribers of one topic, the first of which refuses poison.

Like `subscriber`; every connection also counts poison and redeliveries. The first one asks for a short back-off and few
attempts, so that the poison is a dead letter before the measurement is over.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.answering import NoticePoison
from benchmarks.durable_identity import numbered_identity
from benchmarks.roles.subscriber import RECEIVE_BYTES, AnsweringReceiver, SubscriberReport, receive_and_leave
from benchmarks.session import Session

if TYPE_CHECKING:
    from benchmarks.address import Address
    from benchmarks.roles.child_end import ChildEnd


@dataclass(frozen=True, slots=True, kw_only=True)
class PoisonedAssignment:
    address: Address
    destination: str
    subscribers: int
    #: Deliveries of the poison to the first subscriber, and the wait between them.
    attempts: int
    delay_ms: int
    #: Whether there is any poison.
    is_poisoned: bool
    #: Seconds without a byte, once the publisher has finished, after which missing messages count as lost.
    stall_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PoisonedReport:
    subscribed: SubscriberReport
    #: On each connection.
    poisoned: tuple[int, ...]
    redelivered: tuple[int, ...]


def run(assignment: PoisonedAssignment, control: ChildEnd) -> PoisonedReport:
    policy = {
        "max-attempts": str(assignment.attempts),
        "redelivery-delay": str(assignment.delay_ms),
        "redelivery-multiplier": "1",
        "redelivery-jitter": "0",
    }
    buffer = bytearray(RECEIVE_BYTES)
    with ExitStack() as open_sessions:
        sessions: list[Session] = []
        receivers: list[AnsweringReceiver] = []
        noticed: list[NoticePoison] = []
        for number in range(assignment.subscribers):
            is_first = number == 0
            session = open_sessions.enter_context(Session.open(assignment.address, identity=numbered_identity(number)))
            session.subscribe(
                assignment.destination, ack_mode="client-individual", headers=policy if is_first else None
            )
            session.socket.setblocking(False)
            sessions.append(session)
            noticed.append(NoticePoison(refuses=is_first))
            again = assignment.attempts - 1 if is_first and assignment.is_poisoned else 0
            receivers.append(AnsweringReceiver(session.socket, buffer, noticed[-1], again=again))
        subscribed = receive_and_leave(sessions, receivers, control, assignment.stall_s)
    return PoisonedReport(
        subscribed=subscribed,
        poisoned=tuple(each.poisoned for each in noticed),
        redelivered=tuple(each.redelivered for each in noticed),
    )
