"""A durable subscriber that refuses every tenth message once and acknowledges its redelivery.

Only a message's number decides whether it is refused. It expects everything published, and refused messages once more.
Brokers that can be asked are asked for no back-off.
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

#: Headers of our broker; others ignore them and redeliver at once anyway.
_NO_BACK_OFF: Final = {"redelivery-delay": "0", "redelivery-multiplier": "1", "redelivery-jitter": "0"}


@dataclass(frozen=True, slots=True, kw_only=True)
class OccasionalRefuserAssignment:
    address: Address
    destination: str
    #: Seconds without a byte, once the publisher has finished, after which missing messages count as lost.
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
