"""A durable subscriber that refuses everything at full speed.

Subscribes when told to go, until told to stop. The broker decides how long a refused message waits, so silence is not a
fault: everything may be waiting.
"""

from __future__ import annotations

import os
import select
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from benchmarks.answering import RefuseAll
from benchmarks.roles.child_end import ChildEnd, Stage
from benchmarks.roles.subscriber import RECEIVE_BYTES, AnsweringReceiver
from benchmarks.session import Session

if TYPE_CHECKING:
    import socket

    from benchmarks.address import Address
    from benchmarks.durable_identity import DurableIdentity

_NICENESS: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class RefuserAssignment:
    address: Address
    destination: str
    identity: DurableIdentity


@dataclass(frozen=True, slots=True, kw_only=True)
class RefuserReport:
    refused: int
    elapsed_s: float
    processor_s: float


def run(assignment: RefuserAssignment, control: ChildEnd) -> RefuserReport:
    # With fewer cores than processes, it must not take the processor from the measuring role.
    os.nice(_NICENESS)
    with Session.open(assignment.address, identity=assignment.identity) as session:
        control.reach(Stage.READY)
        control.wait_word()
        processor_at_start, started_at = time.process_time(), time.monotonic()
        session.subscribe(assignment.destination, ack_mode="client-individual")
        session.socket.setblocking(False)
        receiver = AnsweringReceiver(session.socket, bytearray(RECEIVE_BYTES), RefuseAll())
        has_unsent = receiver.take_leftover(session.leftover)
        waited_for: list[socket.socket | ChildEnd] = [session.socket, control]
        while True:
            readable, _, _ = select.select(waited_for, [session.socket] if has_unsent else [], [])
            if control in readable:
                break
            has_unsent = receiver.receive() if readable else receiver.flush()
        return RefuserReport(
            refused=receiver.answered,
            elapsed_s=time.monotonic() - started_at,
            processor_s=time.process_time() - processor_at_start,
        )
