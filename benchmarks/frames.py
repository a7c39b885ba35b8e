"""The few STOMP 1.2 frames a load generator sends, as bytes.

Law: encoding only. Callers pass names and ids that need no escaping, and bodies without NUL and without a line feed:
that is what lets the receiving side count frames by counting NUL bytes, and find headers by their line starts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.durable_identity import DurableIdentity

#: Header lines of a SEND that asks for a receipt hold a number of this many digits, so that all frames have one size.
_RECEIPT_DIGITS = 8

#: How the body of a message begins that somebody cannot take.
POISON: Final = b"poison "


def connect(host: str, identity: DurableIdentity | None = None) -> bytes:
    client_id_line = b"" if identity is None else b"client-id:%b\n" % identity.client_id.encode()
    return b"CONNECT\naccept-version:1.2\nhost:%b\nheart-beat:0,0\n%b\n\0" % (host.encode(), client_id_line)


def subscribe(
    destination: str,
    *,
    subscription: int,
    ack_mode: str = "auto",
    identity: DurableIdentity | None = None,
    headers: Mapping[str, str] | None = None,
    receipt: str,
) -> bytes:
    return b"SUBSCRIBE\nid:%d\ndestination:%b\nack:%b\nreceipt:%b\n%b%b\n\0" % (
        subscription,
        destination.encode(),
        ack_mode.encode(),
        receipt.encode(),
        b"" if identity is None else _name_line(identity),
        b"".join(f"{name}:{value}\n".encode() for name, value in (headers or {}).items()),
    )


def delete_subscription(identity: DurableIdentity, *, subscription: int, receipt: str) -> bytes:
    """The UNSUBSCRIBE that ends a durable subscription for good; one without the name only detaches."""
    return b"UNSUBSCRIBE\nid:%d\nreceipt:%b\n%b\n\0" % (subscription, receipt.encode(), _name_line(identity))


def _name_line(identity: DurableIdentity) -> bytes:
    return b"activemq.subscriptionName:%b\n" % identity.name.encode()


def send(destination: str, body: bytes, *, receipt: str | None = None) -> bytes:
    receipt_line = b"" if receipt is None else b"receipt:%b\n" % receipt.encode()
    return b"SEND\ndestination:%b\ncontent-length:%d\n%b\n%b\0" % (destination.encode(), len(body), receipt_line, body)


def disconnect(receipt: str) -> bytes:
    return b"DISCONNECT\nreceipt:%b\n\n\0" % receipt.encode()


def acknowledge_all(ack_ids: list[bytes]) -> bytes:
    """One ACK frame for each id, joined; the ids are used as they came, which keeps their escaping intact."""
    return _answer_all(b"ACK", ack_ids)


def acknowledge(ack_id: bytes, *, receipt: str) -> bytes:
    return b"ACK\nid:%b\nreceipt:%b\n\n\0" % (ack_id, receipt.encode())


def refuse_all(ack_ids: list[bytes]) -> bytes:
    """The same with NACK frames."""
    return _answer_all(b"NACK", ack_ids)


def _answer_all(command: bytes, ack_ids: list[bytes]) -> bytes:
    if not ack_ids:
        return b""
    begin, end = command + b"\nid:", b"\n\n\0"
    return begin + (end + begin).join(ack_ids) + end


@dataclass(frozen=True, slots=True)
class FrameRing:
    """SEND frames of one size, encoded once and sent over and over: byte n of the stream is `data[n % len(data)]`."""

    data: bytes
    frame_bytes: int

    def bytes_to_boundary(self, position: int) -> int:
        """How many bytes are left of the frame that stream position `position` is inside of; 0 between two frames."""
        return -position % self.frame_bytes


def ring_of_sends(
    destination: str, *, body_bytes: int, frames: int, with_receipts: bool, poison_at: int | None = None
) -> FrameRing:
    """`frames` equal SENDs, one of which may be poison; with receipts each has an id of its own, which comes again once
    round the ring."""
    body, poison = b"x" * body_bytes, POISON.ljust(body_bytes, b"x")
    encoded = [
        send(
            destination,
            poison if number == poison_at else body,
            receipt=f"{number:0{_RECEIPT_DIGITS}d}" if with_receipts else None,
        )
        for number in range(frames)
    ]
    return FrameRing(data=b"".join(encoded), frame_bytes=len(encoded[0]))
