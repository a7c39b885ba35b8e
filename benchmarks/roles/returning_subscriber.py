"""Returns to a durable subscription and acknowledges everything it missed.

The clock starts with the SUBSCRIBE, which is answered before the first message; then `AnsweringReceiver` counts and
acknowledges every buffer. It must get exactly what the measurement says.
"""

from __future__ import annotations

import select
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.answering import AcknowledgeAll
from benchmarks.roles.child_end import ChildEnd, Expect, Stage
from benchmarks.roles.subscriber import RECEIVE_BYTES, AnsweringReceiver
from benchmarks.session import Session

if TYPE_CHECKING:
    from benchmarks.address import Address
    from benchmarks.durable_identity import DurableIdentity


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturningAssignment:
    address: Address
    destination: str
    identity: DurableIdentity
    #: Seconds without a byte after which missing messages count as lost.
    stall_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturningReport:
    received: int
    byte_count: int
    #: From the SUBSCRIBE to the first bytes of the first message.
    first_after_s: float
    #: From the SUBSCRIBE until the broker had taken the last acknowledgement.
    elapsed_s: float
    processor_s: float


def run(assignment: ReturningAssignment, control: ChildEnd) -> ReturningReport:
    with Session.open(assignment.address, identity=assignment.identity) as session:
        control.reach(Stage.READY)
        word = control.wait_word()
        assert isinstance(word, Expect)
        processor_at_start, started_at = time.process_time(), time.monotonic()
        session.subscribe(assignment.destination, ack_mode="client-individual")
        session.socket.setblocking(False)
        receiver = AnsweringReceiver(session.socket, bytearray(RECEIVE_BYTES), AcknowledgeAll())
        first_after_s = _receive_all(session, receiver, word.messages, control, assignment.stall_s) - started_at
        extra = session.leave()
        elapsed_s, processor_s = time.monotonic() - started_at, time.process_time() - processor_at_start
    return ReturningReport(
        received=receiver.messages + extra,
        byte_count=receiver.byte_count,
        first_after_s=first_after_s,
        elapsed_s=elapsed_s,
        processor_s=processor_s,
    )


def _receive_all(
    session: Session, receiver: AnsweringReceiver, expected: int, control: ChildEnd, stall_s: float
) -> float:
    """Receive until everything is there or nothing more arrives; returns when the first bytes arrived."""
    first_at = time.monotonic() if session.leftover else None
    has_unsent = receiver.take_leftover(session.leftover)
    session.leftover = b""
    while receiver.is_waiting_for(expected):
        readable, writable, _ = select.select([session.socket], [session.socket] if has_unsent else [], [], stall_s)
        if not readable and not writable:
            break
        first_at = first_at or time.monotonic()
        has_unsent = receiver.receive() if readable else receiver.flush()
        control.progress(receiver.answered)
    return first_at or time.monotonic()
