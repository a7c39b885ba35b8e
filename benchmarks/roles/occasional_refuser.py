"""A role that is a durable subscriber which refuses every tenth message once, and takes it when it comes again.

Law: which messages are refused depends on nothing but their number. It is owed what was published, and what it refused
once more; it asks for no wait between the two, of brokers that can be asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from benchmarks.answering import RefuseEveryTenthOnce
from benchmarks.durable_identity import numbered_identity
from benchmarks.roles.subscriber import RECEIVE_BYTES, AnsweringReceiver, SubscriberReport, receive_and_leave
from benchmarks.session import Session

if TYPE_CHECKING:
    from benchmarks.address import Address
    from benchmarks.roles.child_end import ChildEnd

#: Of ours; others do not know them, and send again at once anyway.
_NO_BACK_OFF: Final = {"redelivery-delay": "0", "redelivery-multiplier": "1", "redelivery-jitter": "0"}


@dataclass(frozen=True, slots=True, kw_only=True)
class OccasionalRefuserAssignment:
    address: Address
    destination: str
    #: Seconds without a byte, once the publisher has finished, after which what is missing counts as lost.
    stall_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OccasionalRefuserReport:
    subscribed: SubscriberReport
    refused: int


def run(assignment: OccasionalRefuserAssignment, control: ChildEnd) -> OccasionalRefuserReport:
    with Session.open(assignment.address, identity=numbered_identity(0)) as session:
        session.subscribe(assignment.destination, ack_mode="client-individual", headers=_NO_BACK_OFF)
        session.socket.setblocking(False)
        answering = RefuseEveryTenthOnce()
        receiver = AnsweringReceiver(session.socket, bytearray(RECEIVE_BYTES), answering)
        subscribed = receive_and_leave([session], [receiver], control, assignment.stall_s)
    return OccasionalRefuserReport(subscribed=subscribed, refused=answering.refused)
